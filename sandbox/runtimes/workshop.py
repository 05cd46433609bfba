"""Where bundles are made: pinned artifacts in, verified tars out, one maker a bundle at a time."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.cache import published
from sandbox.progress import Progress
from sandbox.runtimes.apt import Apt
from sandbox.runtimes.bundle import (
    Grove,
    Ingredient,
    artifacts_of,
    assemble,
    check_assembled,
    trees_of,
)
from sandbox.runtimes.fetch import Fetcher, Source
from sandbox.runtimes.forester import Forester, packages_for
from sandbox.runtimes.lock import LockedArtifact, LockedBundle, LockedTree
from sandbox.runtimes.pins import Pins, Runtime
from sandbox.runtimes.pip import Pip
from sandbox.runtimes.sources import Sources
from sandbox.runtimes.staging import Assembled
from sandbox.runtimes.store import Store
from sandbox.runtimes.tools import ensure_tool, host_platform, tool_at_hand, tool_for
from sandbox.runtimes.trees import source_of


class Workshop:
    """The store and the clients of one pins file; a context manager.

    Args:
        pins: what may be made.
        known: lock entries by artifact id; those of tools are looked up here.
        pins_path: where they were read; the sources of trees lie beside it.
        store: where files are kept.
        progress: told about all long work.
        sources: overrides how artifacts are fetched, by client name.
        env: what the package clients find their configuration with (this process's when None).
        npm: gives the argv of a pinned npm (that of these pins when None).
    """

    def __init__(
        self,
        pins: Pins,
        known: Callable[[], Mapping[str, LockedArtifact]],
        *,
        pins_path: Path,
        store: Store,
        progress: Progress,
        sources: Mapping[str, Callable[[], Source]] | None = None,
        env: Mapping[str, str] | None = None,
        npm: Callable[[], tuple[str, ...]] | None = None,
    ) -> None:
        self.pins, self.store, self.progress = pins, store, progress
        env = dict(os.environ if env is None else env)
        npm = npm or partial(self.pinned_tool, "npm")
        self.clients = Sources(npm, pip=Pip(env=env), apt=Apt(env=env), env=env)
        self._known = known
        self._fetcher = Fetcher(store, sources or self.clients.by_client())
        self._forester = Forester(self._fetcher, self.clients.pip, progress)
        self._pins_path = pins_path

    def __enter__(self) -> Self:
        self.clients.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clients.__exit__(kind, error, trace)

    def fetch(self, artifact: LockedArtifact) -> Path:
        """Return the verified file of a locked artifact; see ``Fetcher.ensure``."""
        return self._fetcher.ensure(artifact, self.progress)

    def resolve(self, artifact: str) -> LockedArtifact:
        """Return a new lock entry for a pinned artifact; see ``Fetcher.resolve``."""
        return self._fetcher.resolve(self.pins.artifact[artifact], self.progress)

    def source_of(self, tree: str) -> Path:
        """Return the path of a tree's source."""
        return source_of(self.pins.tree[tree], self._pins_path)

    def resolve_tree(self, name: str) -> LockedTree:
        """Return a new lock entry for a pinned tree; see ``Forester.resolve``."""
        pin, platforms = self.pins.tree[name], self.pins.platforms_of_tree(name)
        return self._forester.resolve(name, pin, platforms, self.source_of(name))

    def pinned_tool(self, name: str) -> tuple[str, ...]:
        """Return the argv of a pinned tool, fetched and unpacked if need be."""
        tool = tool_for(self.pins, name, host_platform())
        artifact = self._known().get(tool.artifact) or self.resolve(tool.artifact)
        return ensure_tool(
            tool, artifact, store=self.store, fetch=self.fetch, progress=self.progress
        )

    def npm_at_hand(self) -> bool:
        """Whether npm can be asked at once: it is on PATH, or the pinned one is unpacked."""
        if shutil.which("npm", path=self.clients.env.get("PATH", "")):
            return True
        tool = tool_for(self.pins, "npm", host_platform())
        artifact = self._known().get(tool.artifact)
        return artifact is not None and tool_at_hand(tool, artifact, self.store)

    def make(
        self,
        harness: str,
        runtime: Runtime,
        artifacts: Mapping[str, LockedArtifact],
        path: Path,
        *,
        trees: Mapping[str, LockedTree],
        expect: LockedBundle | None,
    ) -> Assembled:
        """Fetch what a bundle is made of and publish it at ``path``.

        Args:
            harness: whose bundle it is.
            runtime: the pins' recipe.
            artifacts: lock entries by artifact id.
            trees: lock entries by tree id.
            path: where the tar is to be; the caller holds its lock.
            expect: the bundle it must come out as; None while locking.

        Raises:
            IntegrityError: it came out as another one; nothing is published.
        """
        ingredients = {
            name: Ingredient(self.pins.artifact[name], artifacts[name], self.fetch(artifacts[name]))
            for name in artifacts_of(runtime)
        }
        groves = {name: self._grove(name, trees[name], runtime) for name in trees_of(runtime)}
        pin = self.pins.harness[harness]
        label = f"{harness} for {' and '.join(runtime.platforms)}"
        with (
            published(path) as out,
            _stage(path) as stage,
            self.progress.step(f"assembling {label}") as step,
        ):
            if expect:
                step.total(2 * expect.size)  # every byte is unpacked, then packed
            made = assemble(
                harness,
                pin,
                runtime,
                ingredients,
                out,
                groves=groves,
                python=lambda: self.pinned_tool("python"),
                stage=stage,
                step=step,
            )
            if expect:
                check_assembled(made, size=expect.size, sha256=expect.sha256, what=label)
        return made

    def _grove(self, name: str, tree: LockedTree, runtime: Runtime) -> Grove:
        pin, packages = self.pins.tree[name], packages_for(name, tree, runtime.platforms)
        paths = self._forester.fetch(name, pin, packages, runtime.platforms[0])
        return Grove(pin, [(package, paths[package.integrity]) for package in packages])


@contextmanager
def _stage(path: Path) -> Iterator[Path]:
    # named like the leftovers that the next writer of ``path`` removes
    folder = path.parent / f".{path.name}.tmp-stage-{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
