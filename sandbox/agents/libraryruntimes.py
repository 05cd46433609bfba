"""Runtimes for an agent that is a process of its own: copied into the sandbox."""

from __future__ import annotations

from sandbox.agents.ports import Place
from sandbox.engine.facts import ImageFacts
from sandbox.evidence.records import InstallReceipt
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.install import install
from sandbox.runtimes.library import Bundle, RuntimeLibrary
from sandbox.runtimes.needs import Refusal


class LibraryRuntimes:
    """The library's runtimes; a lent sandbox shows nothing of this machine, so they are copied."""

    def __init__(self, library: RuntimeLibrary | RuntimeCollection) -> None:
        self._library = library

    def refusals(self, harness: str, platform: str, facts: ImageFacts) -> tuple[Refusal, ...]:
        """Return what an image lacks for the bundle; raises Unsupported without a pin."""
        return self._library.refusals(harness, platform, facts)

    def bundle(self, harness: str, platform: str) -> Bundle:
        """Return the verified bundle, fetched if need be; raises Unsupported without a pin."""
        return self._library.ensure_bundle(harness, platform)

    def room(self, bundle: Bundle) -> int:
        """Return how many bytes an installation takes: its tar and what comes out."""
        return 2 * bundle.size

    def install(self, place: Place, bundle: Bundle, prefix: str) -> InstallReceipt:
        """Run the installer in the sandbox and return its checked receipt."""
        return install(place, bundle, prefix)
