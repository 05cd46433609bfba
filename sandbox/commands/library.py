"""Opens the pinned runtimes of all installed harnesses, for the commands that use them."""

from __future__ import annotations

from sandbox.harnesses.registry import Registered, registered
from sandbox.progress import Progress
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeLibrary


def open_library(shown: Progress, harnesses: Registered | None = None) -> RuntimeCollection:
    """Return our runtimes and those that adapters of other packages bring; a context manager.

    Args:
        shown: told about long work.
        harnesses: the adapters; those of the installed packages by default.
    """
    known = harnesses or registered()
    own = RuntimeLibrary(progress=shown)
    return RuntimeCollection(own, known.pins_files, progress=shown)
