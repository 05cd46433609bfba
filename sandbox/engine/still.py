"""What an image is, read from its files without running anything in it.

In an image without a shell nothing can be asked; the engine still gives its whole file system as
one tar stream (``docker export`` of a container that is never started). What is found is written
in the words of facts.sh, so that there is one reader of facts.
"""

from __future__ import annotations

import posixpath
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from sandbox.engine.client import Engine
from sandbox.engine.facts import ImageFacts, parse_facts
from sandbox.engine.failure import each, engine_errors
from sandbox.engine.owner import Ownership
from sandbox.engine.scripts import script
from sandbox.engine.unpack import BUFFER, IterReader
from sandbox.errors import CouldNotFindOut

_CHUNK = 1 << 20
_LIMIT = 16 << 20
_STEPS = 1000  # more is a loop of links
_LOADER = re.compile(
    r"/(usr/)?lib(64|/[^/]*-linux-gnu[^/]*)?/(ld-linux[^/]*\.so\.\d+|ld-musl-[^/]*\.so\.1)"
)
_LIBRARY = re.compile(r"/(usr/(local/)?)?lib(64|/[^/]*-linux-gnu[^/]*)?/lib[^/]*\.so\.[^/]*")
_TEXTS = re.compile(
    r"/etc/(passwd|os-release)|/usr/lib/os-release|(/.*)?/libc(\.so\.6|-2\.\d+\.so)"
)
_GLIBC = re.compile(rb"stable release (version \d+\.\d+)")
_MUSL = re.compile(rb"\0(1\.\d+\.\d+)\0")


@dataclass(kw_only=True)
class Files:
    """The files of an image: mode, owner and link target by absolute path, a few contents."""

    members: dict[str, tarfile.TarInfo] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)

    def resolve(self, path: str) -> str | None:
        """Follow symbolic links as the kernel does; None when there is nothing."""
        done, waiting = "/", [part for part in path.split("/") if part]
        for _ in range(_STEPS):
            if not waiting:
                return done
            part = waiting.pop(0)
            done = posixpath.normpath(posixpath.join(done, part))
            if done == "/":
                continue
            member = self.members.get(done)
            if member is None:
                return None
            if member.issym():
                waiting = [*(word for word in member.linkname.split("/") if word), *waiting]
                done = "/" if member.linkname.startswith("/") else posixpath.dirname(done)
        return None

    def text(self, path: str) -> str:
        """Give a kept file's text; '' when there is none."""
        return self.contents.get(self.resolve(path) or "", b"").decode(errors="replace")


def read_files(stream: IO[bytes]) -> Files:
    """Read a file system's tar stream.

    Raises:
        CouldNotFindOut: it is no whole tar stream.
    """
    found = Files()
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=BUFFER) as archive:
            for member in archive:
                path = posixpath.normpath(f"/{member.name}")
                found.members[path] = member
                wanted = _TEXTS.fullmatch(path) or _LOADER.fullmatch(path)
                if wanted and member.isfile() and member.size <= _LIMIT:
                    content = archive.extractfile(member)
                    found.contents[path] = b"" if content is None else content.read()
    except tarfile.TarError as error:
        raise CouldNotFindOut(f"the image's files cannot be read: {error}") from error
    return found


def facts_of(files: Files, config: Mapping[str, Any], architecture: str) -> ImageFacts:
    """Give an image's facts from its files and its configuration (the engine's "Config").

    Which places can be written to is told by modes and owners; ``sh`` is "none" where there is
    none.
    """
    env = dict(line.partition("=")[::2] for line in config.get("Env") or ())
    lines = [*_who(files, str(config.get("User") or "0"), env), *_system(files, architecture)]
    lines += [f"path={env.get('PATH', '')}", f"workdir={config.get('WorkingDir') or '/'}"]
    lines += [
        f"library={path}"
        for path in files.members
        if _LIBRARY.fullmatch(path) and files.resolve(path)
    ]
    lines += _tools(files, env.get("PATH", ""))
    uid = next(line for line in lines if line.startswith("uid=")).removeprefix("uid=")
    lines += [f"writable={path}" for path in _listed("PLACES") if _may_write(files, path, int(uid))]
    shell = files.resolve("/bin/sh")
    lines.append(f"sh_exe={shell or 'none'}")
    return parse_facts("\n".join([*lines, "end=1"]), image_env=env)


def still_facts(engine: Engine, image: str) -> ImageFacts:
    """Give the facts of an image that the engine has, without starting anything.

    Raises:
        NotFound: the engine has no such image.
        EngineFailure: the engine failed.
        CouldNotFindOut: what it gives cannot be read.
    """
    api = engine.sdk.api
    with engine_errors(f"find image {image}"):
        said = api.inspect_image(image)
    with _unstarted(engine, image) as container, engine_errors(f"read the files of {image}"):
        chunks = each(api.export(container, _CHUNK), f"read the files of {image}")
        files = read_files(IterReader(chunks))  # type: ignore[arg-type]
        for _ in chunks:  # to the end, so that the connection can be used again
            pass
    return facts_of(files, said.get("Config") or {}, str(said.get("Architecture") or ""))


@contextmanager
def _unstarted(engine: Engine, image: str) -> Iterator[str]:
    api, owner = engine.sdk.api, Ownership.current(run_id="look")
    with engine_errors(f"make a container of {image} to read"):
        made = api.create_container(
            image, ["/"], entrypoint=["/"], labels=owner.labels(), network_disabled=True
        )
    try:
        yield str(made["Id"])
    finally:
        with engine_errors(f"remove the container of {image}"):
            api.remove_container(made["Id"], force=True, v=True)


def _who(files: Files, user: str, env: Mapping[str, str]) -> Iterator[str]:
    name, _, group = user.partition(":")
    rows = [line.split(":") for line in files.text("/etc/passwd").splitlines()]
    row = next((row for row in rows if len(row) > 5 and name in (row[0], row[2])), None)
    uid = row[2] if row else name if name.isdecimal() else "0"
    gid = group if group.isdecimal() else row[3] if row else "0"
    yield from (f"uid={uid}", f"gid={gid}")
    if row:
        yield from (f"user={row[0]}", f"passwd_home={row[5]}")
    yield f"home={env.get('HOME') or (row[5] if row else '/')}"


def _system(files: Files, architecture: str) -> Iterator[str]:
    yield f"machine={architecture}"
    for path in _loaders(files):
        yield f"loader={path}"
        data = files.contents.get(files.resolve(path) or "", b"")
        if "ld-musl-" in path and (found := _MUSL.search(data)):
            yield f"musl_says=Version {found[1].decode()}"
    found_in = (_GLIBC.search(data) for data in files.contents.values())
    yield from (f"glibc_says={found[1].decode()}" for found in found_in if found)
    for line in files.text("/etc/os-release").splitlines():
        if line.startswith(("ID=", "VERSION_ID=")):
            yield f"os_{line}"
    for path in _listed("CA_FILES"):
        if files.resolve(path):
            yield f"ca_file={path}"


def _loaders(files: Files) -> list[str]:
    """Name the dynamic loaders, also by the paths that programs name, where /lib is a link."""
    names = [path for path in files.members if _LOADER.fullmatch(path)]
    usual = [
        f"/{folder}/{path.rpartition('/')[2]}" for path in names for folder in ("lib64", "lib")
    ]
    return [path for path in dict.fromkeys([*usual, *names]) if files.resolve(path)]


def _tools(files: Files, path: str) -> Iterator[str]:
    for tool in _listed("TOOLS"):
        for folder in path.split(":"):
            member = files.members.get(files.resolve(f"{folder}/{tool}") or "")
            if member is not None and member.mode & 0o111 and not member.isdir():
                yield f"tool={tool} {folder}/{tool}"
                break


def _may_write(files: Files, path: str, uid: int) -> bool:
    member = files.members.get(files.resolve(path) or "")
    if member is None or not member.isdir():
        return False
    return (
        uid == 0 or bool(member.mode & 0o002) or (member.uid == uid and bool(member.mode & 0o200))
    )


def _listed(name: str) -> list[str]:
    """Give the words of one of the lists in facts.sh."""
    found = re.search(rf'^{name}="([^"]*)"', script("facts"), re.MULTILINE)
    assert found is not None
    return found[1].split()
