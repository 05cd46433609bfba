"""Several pins files side by side: this project's own, and those that other packages bring.

Each file is whole in itself, with its lock beside it; only the store and the pinned npm are
shared. A file that cannot be used takes nobody else's runtimes away: whoever asks for its harness
gets the error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.errors import SandboxError, UsageError
from sandbox.progress import Progress
from sandbox.runtimes.library import RuntimeLibrary, choose
from sandbox.runtimes.needs import ImageFacts, Needs, Refusal
from sandbox.runtimes.proofs import Proofs
from sandbox.runtimes.reports import Bundle, FetchEntry, RuntimeEntry, VerifyEntry


class RuntimeCollection:
    """The runtimes of several pins files; a context manager.

    Args:
        own: the library whose store and npm all others use.
        others: more pins files, by the harness whose pins each must hold.
        progress: told about long work.
    """

    def __init__(
        self, own: RuntimeLibrary, others: Mapping[str, Path], *, progress: Progress
    ) -> None:
        self.own = own
        self.broken: dict[str, SandboxError] = {}
        self._progress = progress
        self._by_harness = dict.fromkeys(own.pins.harness, own)
        opened: dict[Path, RuntimeLibrary] = {}
        for harness, path in sorted(others.items()):
            try:
                if path not in opened:
                    opened[path] = self._opened(path)
                self._by_harness[harness] = self._holding(harness, opened[path])
            except SandboxError as error:
                self.broken[harness] = error
        self._stack = ExitStack()

    def _opened(self, path: Path) -> RuntimeLibrary:
        library = RuntimeLibrary(
            path, progress=self._progress, store=self.own.store, npm=self.own.pinned_npm
        )
        library.lock()
        return library

    def _holding(self, harness: str, library: RuntimeLibrary) -> RuntimeLibrary:
        """Return the library if it, and no other, holds the harness."""
        if harness not in library.pins.harness:
            raise UsageError(
                f"{library.pins_path} has no pin for harness {harness!r}",
                cure=f"add a [harness.{harness}] table there, or name another pins_file",
            )
        before = self._by_harness.get(harness, library)
        if before is not library:
            raise UsageError(
                f"harness {harness!r} is pinned in {before.pins_path} and in {library.pins_path}",
                cure="give the adapter and its pin another name, or take one of the pins away",
            )
        return library

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            for library in self.libraries:
                entered.enter_context(library)
            self._stack = entered.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def libraries(self) -> tuple[RuntimeLibrary, ...]:
        """Every library once, the own one first."""
        found = {self.own.pins_path: self.own}
        found |= {library.pins_path: library for library in self._by_harness.values()}
        return tuple(found.values())

    def library(self, harness: str) -> RuntimeLibrary:
        """Return the library that holds a harness.

        Raises:
            SandboxError: its pins file cannot be used.
            UsageError: no pins file holds it.
        """
        if harness in self.broken:
            raise self.broken[harness]
        if harness not in self._by_harness:
            known = ", ".join(sorted(self._by_harness))
            raise UsageError(
                f"no pin for harness {harness!r}",
                cure=f"one of: {known}; an adapter of another package names its own pins_file",
            )
        return self._by_harness[harness]

    def needs(self, harness: str, platform: str) -> Needs:
        """Return what a bundle needs of an image; see ``RuntimeLibrary.needs``."""
        return self.library(harness).needs(harness, platform)

    def refusals(self, harness: str, platform: str, facts: ImageFacts) -> tuple[Refusal, ...]:
        """Return what an image lacks for a bundle; see ``RuntimeLibrary.refusals``."""
        return self.library(harness).refusals(harness, platform, facts)

    def ensure_tree(self, bundle: Bundle) -> Path:
        """Return a bundle's verified tree; see ``RuntimeLibrary.ensure_tree``."""
        return self.library(bundle.harness).ensure_tree(bundle)

    def proofs(self, image_id: str) -> Proofs:
        """Return the proofs that programs ran in an image."""
        return self.own.proofs(image_id)

    def ensure_bundle(self, harness: str, platform: str) -> Bundle:
        """Return the verified bundle of a harness; see ``RuntimeLibrary.ensure_bundle``."""
        return self.library(harness).ensure_bundle(harness, platform)

    def entries(self) -> tuple[RuntimeEntry, ...]:
        """Return every locked bundle of every harness, sorted; what is broken is said."""
        for harness, error in sorted(self.broken.items()):
            self._progress.say(f"{harness} is left out: {error}")
        found = (
            entry
            for library in self.libraries
            for entry in library.entries()
            if self._by_harness.get(entry.harness) is library
        )
        return tuple(sorted(found, key=lambda entry: (entry.harness, entry.platform)))

    def fetch(
        self, harnesses: Sequence[str] = ("*",), platforms: Sequence[str] = ("*",)
    ) -> tuple[FetchEntry, ...]:
        """Bring the bundles that match; see ``RuntimeLibrary.fetch``.

        Raises:
            SandboxError: a harness that is named cannot be had: its pins file is broken.
        """
        for harness in sorted(self.broken.keys() & set(harnesses)):
            raise self.broken[harness]
        wanted = choose(self.entries(), harnesses, platforms)
        return tuple(self.library(entry.harness).fetched(entry) for entry in wanted)

    def verify(self) -> tuple[VerifyEntry, ...]:
        """Hash every cached file of every lock; a pins file that is broken is told as corrupt."""
        found = list(self.own.verify())
        for library in self.libraries[1:]:
            found += (_of(library, entry) for entry in library.verify())
        for harness, error in sorted(self.broken.items()):
            found.append(
                VerifyEntry(kind="lock", name=harness, status="corrupt", detail=error.message)
            )
        return tuple(found)


def _of(library: RuntimeLibrary, entry: VerifyEntry) -> VerifyEntry:
    """Say whose lock it is: every one is called pins.lock."""
    if entry.kind != "lock":
        return entry
    return entry.model_copy(update={"name": str(library.lock_path)})
