"""Verified artifacts into one deterministic tar: the bundle of a harness for its platforms.

Layout: ``MANIFEST.json`` (what it is, what it was made of, every file's sha256), ``bin/<harness>``
(always the entry point), and whatever the pins put beside them. The same pins and artifacts give
the same bytes on every machine and Python.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sandbox.errors import IntegrityError, UsageError
from sandbox.progress import Step
from sandbox.runtimes import ustar
from sandbox.runtimes.archive import Member, Names, members, safe_target
from sandbox.runtimes.artifacts import ArtifactPin
from sandbox.runtimes.entries import ExecEntry, LinkEntry, launcher
from sandbox.runtimes.integrity import hash_file
from sandbox.runtimes.lock import LockedArtifact
from sandbox.runtimes.pins import INSTALLERS, Content, HarnessPin, Runtime, is_below
from sandbox.runtimes.runpath import set_runpath

_SCHEMA = 1
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Ingredient:
    """One artifact of a bundle: its pin, its lock entry, its verified file."""

    pin: ArtifactPin
    locked: LockedArtifact
    path: Path


@dataclass(frozen=True)
class _Staged:
    """One entry to be: a file in the staging folder or in memory, or a link."""

    executable: bool = False
    size: int = 0
    sha256: str = ""
    path: Path | None = None
    data: bytes = b""
    target: str | None = None

    def described(self) -> dict[str, Any]:
        if self.target is not None:
            return {"link": self.target}
        return {"sha256": self.sha256, "size": self.size, "executable": self.executable}


@dataclass(frozen=True)
class Assembled:
    """A written bundle: size in bytes, and sha256."""

    size: int
    sha256: str


def assemble(
    harness: str,
    pin: HarnessPin,
    runtime: Runtime,
    ingredients: Mapping[str, Ingredient],
    out: Path,
    *,
    stage: Path,
    step: Step,
) -> Assembled:
    """Write the bundle of ``runtime`` to ``out``; members pass through the folder ``stage``.

    Raises:
        UsageError: the pins ask for what the artifacts do not hold, or for one name twice.
        IntegrityError: an artifact's members cannot be trusted.
    """
    tree = _Tree(stage)
    try:
        for content in runtime.content:
            tree.take(content, ingredients[content.artifact], step)
        tree.enter(harness, runtime)
    except ValueError as error:
        raise UsageError(
            f"the bundle of {harness} for {runtime.platforms[0]} cannot be put together: {error}",
            cure="correct its runtime table in pins.toml",
        ) from error
    used = [ingredients[name] for name in artifacts_of(runtime)]
    tree.add_data("MANIFEST.json", _manifest(harness, pin, runtime, used, tree.described()))
    return tree.write(out, step)


def artifacts_of(runtime: Runtime) -> tuple[str, ...]:
    """Return the ids of the artifacts a runtime is made of, sorted."""
    return tuple(sorted({content.artifact for content in runtime.content}))


class _Tree:
    """The entries of a bundle to be, by name."""

    def __init__(self, stage: Path) -> None:
        self._stage = stage
        self._names = Names()
        self._entries: dict[str, _Staged] = {}

    def take(self, content: Content, ingredient: Ingredient, step: Step) -> None:
        """Stage what ``content`` selects of an artifact, then its extra links."""
        what = f"{ingredient.pin.name} {ingredient.pin.version}"
        before = len(self._entries)
        with members(ingredient.path, what=what) as found:
            for member in found:
                name = _destination(member.name, content)
                if name is not None:
                    self._put(name, member, content, step)
        if len(self._entries) == before:
            raise ValueError(f"{what} holds nothing below {content.take!r}")
        for link, target in content.links.items():
            self._add(content.put + link, _Staged(target=target))

    def enter(self, harness: str, runtime: Runtime) -> None:
        """Add ``bin/<harness>``, and see that what it starts is there and every link leads on."""
        entry = runtime.entry
        program = self._entries.get(entry.program)
        if program is None or not program.executable:
            raise ValueError(f"the entry's program {entry.program!r} is no executable file")
        if isinstance(entry, ExecEntry) and entry.script and entry.script not in self._entries:
            raise ValueError(f"the entry's script {entry.script!r} is not in the bundle")
        if isinstance(entry, LinkEntry):
            self._add(f"bin/{harness}", _Staged(target=f"../{entry.program}"))
        else:
            text = launcher(entry, INSTALLERS / "launcher.sh")
            self.add_data(f"bin/{harness}", text, executable=True)
        for name, staged in self._entries.items():
            self._check_link(name, staged.target)

    def add_data(self, name: str, data: bytes, *, executable: bool = False) -> None:
        """Add a file from memory."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._add(name, _Staged(executable, len(data), sha256, data=data))

    def described(self) -> dict[str, Any]:
        """Return what the manifest says of each entry."""
        return {name: staged.described() for name, staged in self._entries.items()}

    def write(self, out: Path, step: Step) -> Assembled:
        """Write the tar, sorted, and hash it on the way."""
        with out.open("wb") as stream:
            sink = _Hashing(stream, step)
            folders = ustar.folders_of(self._entries)
            for name in sorted(folders | self._entries.keys()):
                if name in folders:
                    ustar.write_folder(sink, name)
                else:
                    _write_entry(sink, name, self._entries[name])
            ustar.write_end(sink)
        return Assembled(sink.size, sink.digest.hexdigest())

    def _put(self, name: str, member: Member, content: Content, step: Step) -> None:
        if member.data is None:
            self._add(name, _Staged(target=member.target))
            return
        below = name.removeprefix(content.put) or posixpath.basename(name)
        path = self._stage / str(len(self._entries))
        digest, size = hashlib.sha256(), 0
        with path.open("wb") as out:
            while block := member.data.read(_CHUNK):
                out.write(block)
                digest.update(block)
                size += len(block)
                step.advance(len(block))
        sha256 = digest.hexdigest()
        if below in content.runpath:
            sha256 = _with_runpath(path, content.runpath[below], below)
        executable = member.executable or below in content.executable
        self._add(name, _Staged(executable, size, sha256, path))

    def _add(self, name: str, staged: _Staged) -> None:
        self._names.add(name)
        self._entries[name] = staged

    def _check_link(self, name: str, target: str | None) -> None:
        if target is None:
            return
        safe_target(name, target)
        reached = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        if reached not in self._entries.keys() | ustar.folders_of(self._entries):
            raise ValueError(f"link {name!r} leads to {target!r}, which is not in the bundle")


class _Hashing:
    def __init__(self, stream: IO[bytes], step: Step) -> None:
        self._stream, self._step = stream, step
        self.digest, self.size = hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        self._stream.write(data)
        self.digest.update(data)
        self.size += len(data)
        self._step.advance(len(data))


def _write_entry(sink: _Hashing, name: str, staged: _Staged) -> None:
    if staged.target is not None:
        ustar.write_link(sink, name, staged.target)
        return
    with staged.path.open("rb") if staged.path else io.BytesIO(staged.data) as data:
        ustar.write_file(sink, name, data, staged.size, executable=staged.executable)


def _with_runpath(path: Path, runpath: str, name: str) -> str:
    """Write a search path into a staged program and return its new sha256."""
    with path.open("r+b") as program:
        try:
            set_runpath(program, runpath)
        except (ValueError, struct.error) as error:
            raise ValueError(f"{name} cannot be given a runpath: {error}") from error
    return hash_file(path, "sha256")


def _destination(name: str, content: Content) -> str | None:
    """Return where an archive member goes, or None when it is not wanted."""
    if not is_below(name, content.take):
        return None
    if not content.take.endswith("/"):
        return content.put
    rest = name.removeprefix(content.take)
    if any(is_below(rest, left) for left in content.leave):
        return None
    return content.put + rest


def _manifest(
    harness: str,
    pin: HarnessPin,
    runtime: Runtime,
    used: Sequence[Ingredient],
    files: Mapping[str, Any],
) -> bytes:
    manifest = {
        "schema": _SCHEMA,
        "harness": harness,
        "version": runtime.version or pin.version,
        "platforms": sorted(runtime.platforms),
        "licence": pin.licence,
        "entry": f"bin/{harness}",
        "version_argv": list(pin.version_argv),
        "version_output": runtime.version_output or pin.version_output,
        "artifacts": [
            item.locked.model_dump(mode="json", exclude_none=True)
            | item.pin.model_dump(include={"licence", "redistributable"}, exclude_defaults=True)
            for item in used
        ],
        "files": files,
    }
    return (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()


def check_assembled(made: Assembled, *, size: int, sha256: str, what: str) -> None:
    """Raise ``IntegrityError`` unless the bundle made is the one that is locked."""
    if (made.size, made.sha256) != (size, sha256):
        raise IntegrityError(
            f"the bundle {what} came out with sha256 {made.sha256}, locked is {sha256}",
            cure="the artifacts are right, so how bundles are made has changed:"
            " run `sandbox runtimes lock` and review it",
        )
