"""npm, pip and apt as sources of artifacts, with the user's own configuration."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.progress import Step
from sandbox.runtimes.apt import Apt
from sandbox.runtimes.artifacts import ArtifactPin
from sandbox.runtimes.download import Http, Sleep, asked_again
from sandbox.runtimes.fetch import Arrival, Source
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import LockedArtifact, LockedPackage, Wanted
from sandbox.runtimes.npm import NpmRegistry, npm_settings
from sandbox.runtimes.pip import Pip
from sandbox.runtimes.pipindex import PipIndex, pip_access

Pin = ArtifactPin | Wanted


@dataclass(frozen=True)
class NpmSource:
    """npm tarballs; what a killed process had fetched is gone on with."""

    registry: NpmRegistry

    def bring(
        self,
        pin: Pin,
        folder: Path,
        *,
        integrity: Integrity | None,
        size: int | None,
        step: Step,
    ) -> Arrival:
        """See ``Source``."""
        partial = folder / "tarball"
        if isinstance(pin, Wanted) and _of_a_tree(pin):
            resumed = partial.exists()
            if self.registry.download_known(pin.name, pin.file, partial, size=size, step=step):
                return Arrival(partial, pin.file, integrity, resumed)
        said, file, resumed = self.registry.download(
            pin.name, pin.version, partial, integrity=integrity, size=size, step=step
        )
        return Arrival(partial, file, integrity or said, resumed)


def _of_a_tree(pin: Wanted) -> bool:
    # hundreds of small ones, whose hash is known: not worth a question each before the download
    return isinstance(pin, LockedPackage) or not isinstance(pin, LockedArtifact)


@dataclass(frozen=True)
class PipSource:
    """Wheels; pip starts from the beginning after a kill."""

    pip: Pip
    sleep: Sleep = time.sleep

    def bring(
        self,
        pin: Pin,
        folder: Path,
        *,
        integrity: Integrity | None,
        size: int | None,
        step: Step,
    ) -> Arrival:
        """See ``Source``."""
        if size:
            step.total(size)
        retrying = asked_again(sleep=self.sleep, attempts=2)  # pip itself retries too
        path = retrying(self._once, pin, folder, integrity, step)
        return Arrival(path, path.name, integrity)

    def _once(self, pin: Pin, folder: Path, integrity: Integrity | None, step: Step) -> Path:
        fresh = _fresh(folder, "pip-")
        tag = getattr(pin, "tag", None) or "any"
        try:
            return self.pip.download(
                pin.name, pin.version, tag, fresh, integrity=integrity, step=step
            )
        except BaseException:
            shutil.rmtree(fresh)
            raise


@dataclass(frozen=True)
class AptSource:
    """Debian packages; apt starts from the beginning after a kill."""

    apt: Apt
    sleep: Sleep = time.sleep

    def bring(
        self,
        pin: Pin,
        folder: Path,
        *,
        integrity: Integrity | None,
        size: int | None,
        step: Step,
    ) -> Arrival:
        """See ``Source``."""
        if size:
            step.total(size)
        retrying = asked_again(sleep=self.sleep, attempts=2)  # apt itself retries too
        path = retrying(self._once, pin, folder, step)
        return Arrival(path, path.name, integrity)

    def _once(self, pin: Pin, folder: Path, step: Step) -> Path:
        fresh = _fresh(folder, "apt-")
        try:
            return self.apt.download(
                pin.name, pin.version, getattr(pin, "tag", None) or "amd64", fresh, step=step
            )
        except BaseException:
            shutil.rmtree(fresh)
            raise


def _fresh(folder: Path, prefix: str) -> Path:
    """Return a new folder below ``folder``, after removing those of killed tries."""
    for stale in folder.glob(f"{prefix}*"):
        shutil.rmtree(stale)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=folder))


@dataclass
class Sources:
    """The clients of this machine, each set up when first asked for; a context manager.

    Attributes:
        pinned_npm: gives the argv of the pinned npm, for a host without one.
        pip: the pip to use.
        apt: the apt to use.
        env: the environment npm's configuration is read from.
        sleep: how to wait between attempts.
    """

    pinned_npm: Callable[[], tuple[str, ...]]
    pip: Pip = field(default_factory=Pip)
    apt: Apt = field(default_factory=Apt)
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    sleep: Sleep = time.sleep
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _npm: NpmRegistry | None = field(default=None, init=False)
    _index: PipIndex | None = field(default=None, init=False)
    _one: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        self._npm = self._index = None

    def registry(self) -> NpmRegistry:
        """Return the npm registry, asking npm for its configuration the first time."""
        with self._one:
            if self._npm is None:
                settings = npm_settings(self.pinned_npm, env=self.env)
                http = self._stack.enter_context(Http(settings.access, sleep=self.sleep))
                self._npm = NpmRegistry(settings, http)
            return self._npm

    def index(self) -> PipIndex:
        """Return the Python package index, asking pip for its configuration the first time."""
        with self._one:
            if self._index is None:
                http = self._stack.enter_context(Http(pip_access(self.pip), sleep=self.sleep))
                self._index = PipIndex(self.pip, http)
            return self._index

    def by_client(self) -> dict[str, Callable[[], Source]]:
        """Return what ``Fetcher`` takes."""
        return {
            "npm": lambda: NpmSource(self.registry()),
            "pip": lambda: PipSource(self.pip, self.sleep),
            "apt": lambda: AptSource(self.apt, self.sleep),
        }
