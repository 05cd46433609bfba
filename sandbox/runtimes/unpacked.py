"""Bundles unpacked on this machine, once each, for sandboxes to see read-only.

``trees/<sha256>/root`` is what the tar holds; ``figures.json`` beside it is the proof that it still
does: a digest over path, kind, mode, size, mtime, ctime (both in ns) and inode of every entry. The
kernel sets ctime at every write, rename and change of mode, and no call sets it back. Where the
figures differ every entry is compared with the bundle, byte for byte, before anything is used; a
tree that differs is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from sandbox.cache import locked, published, writable
from sandbox.errors import IntegrityError
from sandbox.progress import Progress, Step
from sandbox.runtimes.archive import safe_name, safe_target
from sandbox.runtimes.reports import Bundle

MARK = ".bundle-sha256"  # the installer's own mark of an installed bundle, see install.sh
_CHUNK = 1 << 20
_ODD_NAMES = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


def ensure_unpacked(bundle: Bundle, folder: Path, progress: Progress) -> Path:
    """Return the verified tree of ``bundle``, unpacking it into ``folder`` if need be.

    Concurrent callers, in this process or another, share one unpacking; a killed one leaves
    nothing that the next does not remove.

    Raises:
        IntegrityError: the bundle's bytes are not the pinned ones; nothing was published.
        CacheUnusable: the disk is full or not writable.
    """
    root = folder / "root"
    with locked(folder):
        if folder.exists():
            wrong = check_unpacked(bundle.path, bundle.sha256, folder)
            if wrong is None:
                return root
            progress.say(f"{bundle.harness} for {bundle.platform}: {wrong}; unpacking it again")
            _drop(folder)
        label = f"unpacking {bundle.harness} for {bundle.platform}"
        with progress.step(label) as step, published(folder) as fresh:
            step.total(bundle.size)
            fresh.mkdir(mode=0o755)
            with _damage(bundle):
                _unpack(bundle, fresh / "root", step)
            _keep(fresh, bundle.sha256)
    return root


def check_unpacked(bundle: Path, sha256: str, folder: Path, *, rehash: bool = False) -> str | None:
    """Say what differs between an unpacked tree and its bundle; None when nothing does.

    Args:
        bundle: the verified tar.
        sha256: its hash.
        folder: where it is unpacked.
        rehash: compare all bytes even if the kept figures are still good.
    """
    try:
        if not rehash and _kept(folder) == _figures(folder / "root", sha256):
            return None
        wrong = _difference(bundle, sha256, folder / "root")
    except OSError as error:
        wrong = f"{error.filename}: {error.strerror}"
    if wrong is not None:
        return f"the unpacked bundle was changed: {wrong}"
    _keep(folder, sha256)
    return None


@contextmanager
def _damage(bundle: Bundle) -> Iterator[None]:
    """Turn what a tar of other bytes may do to its reader into an ``IntegrityError``."""
    try:
        yield
    except (tarfile.TarError, ValueError, *_ODD_NAMES) as error:
        raise IntegrityError(
            f"{bundle.path} cannot be unpacked: {error}",
            cure="run `sandbox pins verify`; nothing was unpacked",
        ) from error


def _unpack(bundle: Bundle, root: Path, step: Step) -> None:
    """Unpack the tar, hashing what is read: only the pinned bytes are ever published."""
    with bundle.path.open("rb") as stream:
        source = _Hashing(stream, step)
        root.mkdir()
        folders = [root]
        with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r|", bufsize=_CHUNK) as tar:
            for member in tar:
                path = root / _place(member)
                if member.isdir():
                    path.mkdir()
                    folders.append(path)
                else:
                    _write(tar, member, path)
        while source.read(_CHUNK):
            pass
    if source.digest.hexdigest() != bundle.sha256:
        raise IntegrityError(
            f"{bundle.path} has sha256 {source.digest.hexdigest()}, pinned is {bundle.sha256}",
            cure="run `sandbox pins verify`; nothing was unpacked",
        )
    (root / MARK).write_text(f"{bundle.sha256}\n", "ascii")
    (root / MARK).chmod(0o644)
    for folder in folders:
        folder.chmod(0o755)
        os.utime(folder, (0, 0))  # as the tar has it: a copy has the same times


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    if member.issym():
        path.symlink_to(safe_target(member.name, member.linkname))
        return
    data = tar.extractfile(member)
    assert data is not None  # ``_place`` lets nothing else through
    with path.open("xb") as out:
        shutil.copyfileobj(data, out, _CHUNK)
    path.chmod(_mode(member))
    os.utime(path, (member.mtime, member.mtime))


def _place(member: tarfile.TarInfo) -> str:
    """Return a member's checked name; bundles hold folders, files and links that stay inside."""
    if not (member.isdir() or member.isreg() or member.issym()):
        raise ValueError(f"the bundle holds {member.name!r}, which is no file, folder or link")
    return safe_name(member.name)


def _mode(member: tarfile.TarInfo) -> int:
    return 0o755 if member.mode & 0o100 else 0o644


def _difference(bundle: Path, sha256: str, root: Path) -> str | None:
    """Compare every entry with the bundle; return the first that differs."""
    left = {str(Path(path).relative_to(root)) for path, _ in _walk(root)} - {".", MARK}
    if (root / MARK).read_text("ascii") != f"{sha256}\n":
        return f"{MARK} names another bundle"
    with bundle.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            name = _place(member)
            if name not in left or not _same(tar, member, root / name):
                return name
            left.remove(name)
    return min(left, default=None)


def _same(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> bool:
    found = path.lstat()
    if member.issym():
        return stat.S_ISLNK(found.st_mode) and str(path.readlink()) == member.linkname
    if member.isdir():
        return found.st_mode == stat.S_IFDIR | 0o755
    if found.st_mode != stat.S_IFREG | _mode(member) or found.st_size != member.size:
        return False
    data = tar.extractfile(member)
    assert data is not None
    with path.open("rb") as here:
        return _digest(here) == _digest(data)


def _digest(stream: IO[bytes]) -> bytes:
    return hashlib.file_digest(stream, "sha256").digest()  # type: ignore[arg-type]


def _figures(root: Path, sha256: str) -> list[int | str]:
    """Return what changes when anything at or below ``root`` is touched."""
    digest, count = hashlib.sha256(sha256.encode()), 0
    start = len(str(root))  # the same whatever the tree was called while it was made
    for path, found in _walk(root):
        said = (
            *(path[start:], found.st_mode, found.st_size, found.st_ino),
            *(found.st_mtime_ns, found.st_ctime_ns),
        )
        digest.update(repr(said).encode())
        count += 1
    return [count, digest.hexdigest()]


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Give every entry at and below ``root`` with its status, in one order; links unfollowed."""
    yield str(root), root.lstat()
    waiting = [str(root)]
    while waiting:
        with os.scandir(waiting.pop()) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            yield entry.path, entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)


def _keep(folder: Path, sha256: str) -> None:
    kept = folder / "figures.json"
    with writable(kept):
        kept.write_text(json.dumps(_figures(folder / "root", sha256)), "utf-8")


def _kept(folder: Path) -> object:
    try:
        return json.loads((folder / "figures.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _drop(folder: Path) -> None:
    """Remove a tree so that no half of it is ever found at its place."""
    aside = folder.with_name(f".{folder.name}.tmp-dropped")
    with writable(folder):
        if aside.exists():
            shutil.rmtree(aside)
        folder.rename(aside)
        shutil.rmtree(aside)


class _Hashing:
    """Reads a file and hashes what it gave."""

    def __init__(self, stream: IO[bytes], step: Step) -> None:
        self._stream, self._step, self.digest = stream, step, hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        self._step.advance(len(data))
        return data
