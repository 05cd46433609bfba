"""What all cells of a run share: engine, images, runtimes, adapters, and where results go."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sandbox.engine.client import Engine
from sandbox.engine.images import LoadedImage
from sandbox.evidence.records import InstallReceipt
from sandbox.harnesses.base import Harness
from sandbox.progress import Progress
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.install import Target, install
from sandbox.runtimes.library import Bundle, RuntimeLibrary

BUNDLE_MOUNT = "/tmp/.sandbox-bundle.tar"  # noqa: S108 - a read-only mount inside the sandbox


@dataclass(frozen=True, kw_only=True)
class World:
    """Inputs of every cell; nothing here changes while cells run.

    ``folder`` is the run's folder. ``isolation`` is passed to the model link. ``cancel`` is set
    when the run is to end early.
    """

    engine: Engine
    images: Mapping[str, LoadedImage]
    harnesses: Mapping[str, Harness]
    library: RuntimeLibrary | RuntimeCollection
    run_id: str
    folder: Path
    progress: Progress
    isolation: Literal["auto", "namespace", "bridge"] = "auto"
    cancel: threading.Event = field(default_factory=threading.Event)


class CellRuntimes:
    """The runtimes as one cell's agent gets them.

    On a local engine the bundle's file is shown to the sandbox as a read-only mount, so it is not
    copied; the installer verifies it there all the same.
    """

    def __init__(self, library: RuntimeLibrary | RuntimeCollection, *, mounted: bool) -> None:
        self._library = library
        self._mounted = mounted

    def bundle(self, harness: str, platform: str) -> Bundle:
        """Return the verified bundle, fetched if need be; raises Unsupported without a pin."""
        return self._library.ensure_bundle(harness, platform)

    def install(self, place: Target, bundle: Bundle, prefix: str) -> InstallReceipt:
        """Run the installer in the sandbox and return its checked receipt."""
        path = BUNDLE_MOUNT if self._mounted else None
        return install(place, bundle, prefix, bundle_path=path)
