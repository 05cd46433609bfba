"""The entries of a bundle before it is written: staged files, data from memory, links."""

from __future__ import annotations

import hashlib
import io
import posixpath
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from sandbox.progress import Step
from sandbox.runtimes import ustar
from sandbox.runtimes.archive import Member, Names, safe_target
from sandbox.runtimes.elf import is_elf
from sandbox.runtimes.integrity import hash_file
from sandbox.runtimes.needs import Needs
from sandbox.runtimes.runpath import set_runpath

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Staged:
    """One entry to be: a file in the staging folder or in memory, or a link."""

    executable: bool = False
    size: int = 0
    sha256: str = ""
    path: Path | None = None
    data: bytes = b""
    target: str | None = None
    elf: bool = False

    def described(self) -> dict[str, Any]:
        """Return what the manifest says of it."""
        if self.target is not None:
            return {"link": self.target}
        return {"sha256": self.sha256, "size": self.size, "executable": self.executable}


@dataclass(frozen=True)
class Assembled:
    """A written bundle: size in bytes, sha256, and what it needs of an image."""

    size: int
    sha256: str
    needs: Needs = field(default_factory=Needs)


class Staging:
    """Entries by name; what cannot stand in one tree is a ``ValueError`` that says why.

    Args:
        folder: an empty folder that file contents pass through.
        step: told the bytes as they are staged and written.
    """

    def __init__(self, folder: Path, step: Step) -> None:
        self._folder, self._step = folder, step
        self._names, self._count = Names(), 0
        self.entries: dict[str, Staged] = {}

    def put(
        self, name: str, member: Member, *, executable: bool = False, runpath: str | None = None
    ) -> None:
        """Stage a member under ``name``.

        Args:
            name: where it goes.
            member: an archive's file or link.
            executable: set the x bit even if the archive has lost it.
            runpath: a search path for libraries to write into the program.
        """
        if member.data is None:
            self.add_link(name, member.target or "")
        else:
            self._add(name, self._staged(name, member, executable=executable, runpath=runpath))

    def put_package_file(
        self, names: Sequence[str], member: Member, *, executable: bool, runpath: str | None
    ) -> None:
        """Stage a file of a tree's package under every one of ``names``.

        A package may hold it twice, if the bytes are the same.
        """
        staged = self._staged(names[0], member, executable=executable, runpath=runpath)
        for name in names:
            known = self.entries.get(name)
            if known is None or known.sha256 != staged.sha256:
                self._add(name, staged)

    def add_link(self, name: str, target: str) -> None:
        """Add a symlink."""
        self._add(name, Staged(target=target))

    def add_data(self, name: str, data: bytes, *, executable: bool = False) -> None:
        """Add a file from memory."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._add(name, Staged(executable, len(data), sha256, data=data))

    def add_file(self, name: str, path: Path) -> None:
        """Add a file that lies in the staging folder already."""
        sha256 = hash_file(path, "sha256")
        self._add(name, Staged(size=path.stat().st_size, sha256=sha256, path=path))

    def check_links(self) -> None:
        """Raise ``ValueError`` when a link leads nowhere in the bundle."""
        reachable = self.entries.keys() | ustar.folders_of(self.entries)
        for name, staged in self.entries.items():
            if staged.target is not None:
                _check_link(name, staged.target, reachable)

    def described(self) -> dict[str, Any]:
        """Return what the manifest says of each entry."""
        return {name: staged.described() for name, staged in self.entries.items()}

    def write(self, out: Path) -> Assembled:
        """Write the tar, sorted, and hash it on the way."""
        with out.open("wb") as stream:
            sink = _Hashing(stream, self._step)
            folders = ustar.folders_of(self.entries)
            for name in sorted(folders | self.entries.keys()):
                if name in folders:
                    ustar.write_folder(sink, name)
                else:
                    _write_entry(sink, name, self.entries[name])
            ustar.write_end(sink)
        return Assembled(sink.size, sink.digest.hexdigest())

    def _staged(
        self, name: str, member: Member, *, executable: bool, runpath: str | None
    ) -> Staged:
        self._count += 1
        path = self._folder / str(self._count)
        assert member.data is not None
        sha256, size = self._copy(member.data, path)
        if runpath:
            sha256 = _with_runpath(path, runpath, name)
        with path.open("rb") as written:
            elf = is_elf(written.read(4))
        return Staged(member.executable or executable, size, sha256, path, elf=elf)

    def _copy(self, data: IO[bytes], path: Path) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        with path.open("wb") as out:
            while block := data.read(_CHUNK):
                out.write(block)
                digest.update(block)
                size += len(block)
                self._step.advance(len(block))
        return digest.hexdigest(), size

    def _add(self, name: str, staged: Staged) -> None:
        self._names.add(name)
        self.entries[name] = staged


class _Hashing:
    def __init__(self, stream: IO[bytes], step: Step) -> None:
        self._stream, self._step = stream, step
        self.digest, self.size = hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        self._stream.write(data)
        self.digest.update(data)
        self.size += len(data)
        self._step.advance(len(data))


def _write_entry(sink: _Hashing, name: str, staged: Staged) -> None:
    if staged.target is not None:
        ustar.write_link(sink, name, staged.target)
        return
    with staged.path.open("rb") if staged.path else io.BytesIO(staged.data) as data:
        ustar.write_file(sink, name, data, staged.size, executable=staged.executable)


def _check_link(name: str, target: str, reachable: Collection[str]) -> None:
    safe_target(name, target)
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if reached not in reachable:
        raise ValueError(f"link {name!r} leads to {target!r}, which is not in the bundle")


def _with_runpath(path: Path, runpath: str, name: str) -> str:
    """Write a search path into a staged program and return its new sha256."""
    with path.open("r+b") as program:
        try:
            set_runpath(program, runpath)
        except (ValueError, struct.error) as error:
            raise ValueError(f"{name} cannot be given a runpath: {error}") from error
    return hash_file(path, "sha256")
