"""Dependency trees: from their sources into lock entries, from lock entries into the store."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from sandbox.cache import locked, scratch, writable
from sandbox.errors import FetchError, UsageError
from sandbox.progress import PlainProgress, Progress, Step
from sandbox.runtimes.fetch import Fetcher
from sandbox.runtimes.integrity import Integrity, verify_file
from sandbox.runtimes.lock import LockedPackage, LockedTree, Wanted
from sandbox.runtimes.npmtree import NpmPackage, read_npm_tree
from sandbox.runtimes.pip import Pip
from sandbox.runtimes.pytree import described_wheel, platform_tags
from sandbox.runtimes.trees import NpmTreePin, PipTreePin, TreePin, digest_of
from sandbox.runtimes.words import Platform

_AT_ONCE = 6
_QUIET = PlainProgress(quiet=True)


class Forester:
    """Fetches trees.

    Args:
        fetcher: fills the store, one npm package at a time.
        pip: fetches wheels, many at a time: starting it costs a second.
        progress: told about all long work.
    """

    def __init__(self, fetcher: Fetcher, pip: Pip, progress: Progress) -> None:
        self._fetcher, self._pip, self._progress = fetcher, pip, progress

    def resolve(
        self, name: str, pin: TreePin, platforms: Sequence[Platform], source: Path
    ) -> LockedTree:
        """Return a tree's new lock entry; all its packages are in the store afterwards.

        Raises:
            UsageError: the source is no lock file of its client.
            FetchError: a package could not be had.
            IntegrityError: a registry serves other bytes than the source names.
        """
        if isinstance(pin, NpmTreePin):
            packages = list(self._resolve_npm(name, read_npm_tree(source, platforms)))
        else:
            packages = self._resolve_pip(name, pin, platforms, source)
        found = tuple(sorted(packages, key=lambda one: (one.name, one.version, one.file)))
        return LockedTree(digest=digest_of(pin, platforms, source), packages=found)

    def fetch(
        self, name: str, pin: TreePin, packages: Sequence[LockedPackage], platform: Platform
    ) -> dict[str, Path]:
        """Return the verified file of each package, by its integrity.

        Raises:
            FetchError: one could not be had.
            IntegrityError: what came is not what is locked; nothing of it was kept.
        """
        if isinstance(pin, PipTreePin):
            missing = [one for one in packages if not self._held(one)]
            if missing:
                size = sum(one.size for one in missing)
                label = f"fetching {len(missing)} wheels of {name} ({size / 1e6:.0f} MB)"
                with self._progress.step(label) as step:
                    step.total(size)
                    self._fetch_wheels(pin, missing, platform, step)
            return {one.integrity: self._path(one) for one in packages}
        return self._fetch_npm(name, packages)

    def _resolve_npm(self, name: str, tree: Sequence[NpmPackage]) -> Iterator[LockedPackage]:
        paths = self._fetch_npm(name, [package.wanted for package in tree])
        for package in tree:
            size = paths[package.wanted.integrity].stat().st_size
            said = package.wanted.model_dump(exclude={"size"})
            placed = package.model_dump(include={"licence", "paths", "bins", "platforms"})
            yield LockedPackage(**said, **placed, size=size)

    def _fetch_npm(self, name: str, wanted: Sequence[Wanted]) -> dict[str, Path]:
        missing = [one for one in wanted if not self._held(one)]
        if missing:
            with self._progress.step(f"fetching {len(missing)} packages of {name}") as step:
                step.total(len(missing))
                shared = _Counting(step)

                def one(package: Wanted) -> None:
                    self._fetcher.ensure(package, _QUIET)
                    shared.count()

                with ThreadPoolExecutor(_AT_ONCE) as pool:
                    try:
                        list(pool.map(one, missing))
                    except BaseException:
                        pool.shutdown(cancel_futures=True)
                        raise
        return {one.integrity: self._path(one) for one in wanted}

    def _resolve_pip(
        self, name: str, pin: PipTreePin, platforms: Sequence[Platform], source: Path
    ) -> list[LockedPackage]:
        by_file: dict[str, LockedPackage] = {}
        served: dict[str, list[Platform]] = defaultdict(list)
        for platform in platforms:
            label = f"resolving {name} for {platform}"
            with self._progress.step(label) as step, self._folder() as folder:
                tags = platform_tags(platform)
                for path in self._pip.download_all(source, tags, pin.python, folder, step=step):
                    served[path.name].append(platform)
                    package = described_wheel(path, platforms)
                    by_file[path.name] = package
                    self._keep(package, path)
        return [
            package.model_copy(update={"platforms": tuple(sorted(served[file]))})
            for file, package in by_file.items()
        ]

    def _fetch_wheels(
        self, pin: PipTreePin, missing: Sequence[LockedPackage], platform: Platform, step: Step
    ) -> None:
        with self._folder() as folder:
            asked = folder / "requirements.txt"
            lines = [f"{one.name}=={one.version} --hash={one.integrity}\n" for one in missing]
            asked.write_text("".join(lines), "utf-8")
            tags = platform_tags(platform)
            found = self._pip.download_all(asked, tags, pin.python, folder, step=step)
            came = {path.name: path for path in found}
            for package in missing:
                if package.file not in came:
                    raise FetchError(
                        f"pip brought no {package.file}",
                        cure="the index no longer holds that wheel: lock another version",
                    )
                self._keep(package, came[package.file])

    def _keep(self, package: LockedPackage, file: Path) -> None:
        integrity, path = Integrity.parse(package.integrity), self._path(package)
        verify_file(file, integrity, size=package.size, what=package.file)
        with locked(path), writable(path):
            file.replace(path)
            self._fetcher.store.holds(path, integrity, size=package.size)

    def _held(self, one: Wanted) -> bool:
        path, integrity = self._path(one), Integrity.parse(one.integrity)
        with locked(path):
            if wrong := self._fetcher.store.holds_or_drops(path, integrity, size=one.size):
                self._progress.say(f"{wrong}; fetching it again")
            return path.exists()

    def _path(self, one: Wanted) -> Path:
        return self._fetcher.store.artifact(Integrity.parse(one.integrity))

    def _folder(self) -> AbstractContextManager[Path]:
        return scratch(self._fetcher.store.root / "artifacts", ".tree-")


class _Counting:
    def __init__(self, step: Step) -> None:
        self._step, self._one = step, threading.Lock()

    def count(self) -> None:
        with self._one:
            self._step.advance(1)


def packages_for(
    name: str, tree: LockedTree, platforms: Sequence[Platform]
) -> tuple[LockedPackage, ...]:
    """Return the packages of a tree that ``platforms``, which share one bundle, get.

    Raises:
        UsageError: they do not get the same ones.
    """
    chosen = [tuple(p for p in tree.packages if one in p.platforms) for one in platforms]
    if any(one != chosen[0] for one in chosen):
        raise UsageError(
            f"the tree {name} differs between {' and '.join(platforms)}",
            cure="give each of these platforms a runtime table of its own in pins.toml",
        )
    return chosen[0]
