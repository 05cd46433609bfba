"""Copies files into and out of a container, whatever kind of mount they lie on."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any

from sandbox.engine import archive, unpack
from sandbox.engine.archive import Owner, PutFile
from sandbox.engine.copyin import copy_in, is_small
from sandbox.engine.copyout import copy_out
from sandbox.engine.executor import Executor
from sandbox.engine.failure import each, engine_errors
from sandbox.engine.place import HostLocator, Located
from sandbox.errors import CouldNotFindOut, NotFound, UsageError

CHUNK = 1 << 20


class Transfer:
    """Copies for one container; threads may share it."""

    def __init__(self, api: Any, container: str, executor: Executor, *, as_root: bool) -> None:
        self._api = api
        self._container = container
        self._executor = executor
        self._as_root = as_root

    def put(self, files: Sequence[PutFile] | Path, dest: str, owner: Owner) -> None:
        """Put files, or a host folder's content or one host file, into folder ``dest``."""
        place = self._locate(dest)
        if place.kind not in {"folder", "missing"}:
            raise UsageError(f"{dest} in the sandbox is no folder: nothing can be put in it")
        below = str(PurePosixPath(place.path).relative_to(place.existing))
        if (
            not isinstance(files, Path)
            and is_small(files)
            and self._put_by_hand(files, place, below, owner)
        ):
            return
        prefix = "" if below == "." else f"{below}/"
        members = (
            archive.stream_tree(files, prefix, owner)
            if isinstance(files, Path)
            else archive.stream_files(files, prefix, owner)
        )
        tar = archive.coalesce(chain(archive.stream_folders(prefix, owner), members))
        if place.archived:
            self._put_archive(place.existing, tar)
        else:
            same_owner = ["-p"] if self._as_root else ["-o", "-p"]
            self._executor.tool(
                ["tar", "-x", *same_owner, "-f", "-", "-C", place.existing], stdin=tar
            )

    def get(self, path: str, dest: Path) -> tuple[str, ...]:
        """Copy a file or tree to ``dest``; see ``Sandbox.get``."""
        place = self._find(path)
        if os.path.lexists(dest):
            raise UsageError(f"{dest} exists: a copy from a sandbox overwrites nothing")
        try:
            dest.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".get-", dir=dest.parent) as folder:
                return self._get(place, dest, Path(folder))
        except (OSError, tarfile.TarError) as error:
            raise CouldNotFindOut(f"cannot copy {path} from the sandbox: {error}") from error

    def read(self, path: str, limit: int) -> bytes:
        """Read a file of at most ``limit`` bytes; see ``Sandbox.read``."""
        place = self._find(path)
        if place.kind != "file":
            raise NotFound(f"{path} in the sandbox is a {place.kind}, no file")
        data = self._read(place, limit + 1)
        if len(data) > limit:
            raise CouldNotFindOut(
                f"{path} in the sandbox is larger than {limit} bytes",
                cure="raise the limit, or copy it with get",
            )
        return data

    def _put_by_hand(
        self, files: Sequence[PutFile], place: Located, below: str, owner: Owner
    ) -> bool:
        """Write small files through the host's view; False when that is left to a tar."""
        locator = self._executor.inside.locator
        if not isinstance(locator, HostLocator) or not locator.shares_users():
            return False
        trusted = self._as_root or place.archived
        try:
            with locator.opened_root() as root:
                copy_in(root, place.existing, below, files, owner, trusted=trusted)
        except OSError:
            return False  # the tar meets the same, and explains it
        return True

    def _put_archive(self, folder: str, tar: Iterable[bytes]) -> None:
        try:
            with engine_errors(f"put files into {folder}"):
                self._api.put_archive(self._container, folder, tar)
        except NotFound:
            self._executor.expect_container()
            raise

    def _get(self, place: Located, dest: Path, folder: Path) -> tuple[str, ...]:
        target = folder / "content"
        target.mkdir()
        locator = self._executor.inside.locator
        if isinstance(locator, HostLocator):
            with locator.opened_root() as root:
                left_out = copy_out(root, place.path, target / "copy")
        else:
            with self._tar_of(place, folder) as tar:
                left_out = unpack.unpack(tar, target)
        found = list(target.iterdir())
        if len(found) != 1:
            raise CouldNotFindOut(f"nothing of {place.path} could be copied: {left_out}")
        found[0].rename(dest)
        return left_out

    def _read(self, place: Located, limit: int) -> bytes:
        locator = self._executor.inside.locator
        if isinstance(locator, HostLocator):
            try:
                return locator.read(place.path, limit)
            except OSError as error:
                raise NotFound(f"{place.path} in the sandbox cannot be read: {error}") from error
        if not place.archived:
            data = bytearray()
            self._executor.tool(["head", "-c", str(limit), place.path], stdout=data.extend)
            return bytes(data)
        with self._tar_of(place, None) as tar, tarfile.open(fileobj=tar, mode="r|") as members:
            member = members.next()
            file = None if member is None else members.extractfile(member)
            return b"" if file is None else file.read(limit)

    def _locate(self, path: str) -> Located:
        if not PurePosixPath(path).is_absolute():
            raise UsageError(f"a path in a sandbox must be absolute, not {path!r}")
        return self._executor.inside.locator.locate(path)

    def _find(self, path: str) -> Located:
        place = self._locate(path)
        if place.kind == "missing":
            raise NotFound(f"there is no {path} in the sandbox")
        if place.path == "/":
            raise UsageError("the whole file system of a sandbox cannot be copied; see diff")
        return place

    @contextmanager
    def _tar_of(self, place: Located, spool: Path | None) -> Iterator[IO[bytes]]:
        """Open a tar of what lies at ``place``: as a stream, or from a file in ``spool``."""
        if place.archived:
            doing = f"read {place.path}"
            with engine_errors(doing):
                chunks, _ = self._api.get_archive(self._container, place.path, CHUNK)
            rest = each(chunks, doing)
            yield unpack.IterReader(rest)  # type: ignore[misc]
            for _ in rest:  # to the end, so that the connection can be used again
                pass
            return
        pure = PurePosixPath(place.path)
        with tempfile.TemporaryFile(dir=spool) as file:
            self._executor.tool(
                ["tar", "-c", "-f", "-", "-C", str(pure.parent), f"./{pure.name}"],
                stdout=file.write,
            )
            file.seek(0)
            yield file
