"""Opens the pinned runtimes of all installed harnesses, for the commands that use them."""

from __future__ import annotations

from pathlib import Path

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


def selected_library(pins: Path | None, shown: Progress) -> RuntimeLibrary | RuntimeCollection:
    """Return the runtimes of one pins file when it is named, of all otherwise."""
    return open_library(shown) if pins is None else RuntimeLibrary(pins, progress=shown)


def libraries_of(library: RuntimeLibrary | RuntimeCollection) -> tuple[RuntimeLibrary, ...]:
    """Return every single library, the own one first."""
    return library.libraries if isinstance(library, RuntimeCollection) else (library,)


def library_of(harness: str, library: RuntimeLibrary | RuntimeCollection) -> RuntimeLibrary:
    """Return the single library that holds a harness; raises what keeps it from being used."""
    return library.library(harness) if isinstance(library, RuntimeCollection) else library
