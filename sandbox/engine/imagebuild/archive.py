"""Write a docker-archive whose bytes, and so its image ID, depend on nothing but the input.

The format of ``docker save``: one uncompressed layer (two for an image on top of another), a
configuration with a fixed ``created``, and manifest.json. The image ID is the SHA-256 of the
configuration (Docker image spec v1.2).
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from pydantic import BaseModel, ConfigDict

from sandbox.engine.imagebuild.definition import Arch, Settings
from sandbox.engine.imagebuild.tartree import XATTR
from sandbox.engine.imagebuild.tree import Entry, Kind
from sandbox.errors import IntegrityError

_LAYER = "layer.tar"
_BELOW = "below.tar"
_MANIFEST = "manifest.json"
_CHUNK = 1 << 18
_TYPES = {
    Kind.FOLDER: tarfile.DIRTYPE,
    Kind.FILE: tarfile.REGTYPE,
    Kind.SYMLINK: tarfile.SYMTYPE,
    Kind.HARDLINK: tarfile.LNKTYPE,
}
_ARCHITECTURE: dict[Arch, dict[str, str]] = {
    "x64": {"architecture": "amd64"},
    "arm64": {"architecture": "arm64", "variant": "v8"},
}


class Written(BaseModel):
    """What an archive holds: the image's ID, its layer's digest, and the layer's bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_id: str
    diff_id: str
    layer_size: int


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer that is there already: an archive of ours begins with it."""

    archive: Path
    diff_id: str
    size: int

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Give the archive's file, positioned where the layer begins."""
        with self.archive.open("rb") as stream:
            stream.seek(tarfile.BLOCKSIZE)
            yield stream


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


class _Counted:
    """Hashes and counts what passes on its way to ``target``."""

    def __init__(self, target: _Sink) -> None:
        self._target = target
        self._sha256 = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._target.write(data)
        self._sha256.update(data)
        self.size += len(data)
        return len(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._sha256.hexdigest()}"


def write_archive(
    target: BinaryIO,
    entries: Iterable[Entry],
    *,
    settings: Settings,
    arch: Arch,
    labels: Mapping[str, str],
    reference: str,
    below: Layer | None = None,
) -> Written:
    """Write the archive to the seekable, empty file ``target`` in one pass.

    The layer's size is known only after it was written, so its header is written twice.

    Args:
        target: where to; positioned at 0.
        entries: the root file system in canonical order (``tree.canonical``).
        settings: the image's configuration.
        arch: for the configuration.
        labels: for the configuration.
        reference: ``name:tag`` that loading gives the image.
        below: the layer that ``entries`` go on top of.

    Raises:
        IntegrityError: the layer below is not the one it is said to be.
    """
    target.write(_header(_LAYER, 0))
    layer = _Counted(target)
    write_layer(layer, entries)
    target.write(b"\0" * (-layer.size % tarfile.BLOCKSIZE))
    if below is not None:
        _add_layer(target, below)
    diff_ids = [*([below.diff_id] if below else []), layer.digest]
    config = config_json(settings=settings, arch=arch, labels=labels, diff_ids=diff_ids)
    config_hash = hashlib.sha256(config).hexdigest()
    _add(target, f"{config_hash}.json", config)
    manifest: list[dict[str, Any]] = [{"Config": f"{config_hash}.json", "RepoTags": [reference]}]
    manifest[0]["Layers"] = [*([_BELOW] if below else []), _LAYER]
    _add(target, _MANIFEST, _json(manifest))
    target.write(b"\0" * 2 * tarfile.BLOCKSIZE)
    target.seek(0)
    target.write(_header(_LAYER, layer.size))
    return Written(image_id=f"sha256:{config_hash}", diff_id=layer.digest, layer_size=layer.size)


def write_layer(target: _Sink, entries: Iterable[Entry]) -> None:
    """Write ``entries`` as a pax tar stream, in the order given."""
    sink = cast("Any", target)
    with tarfile.open(fileobj=sink, mode="w|", bufsize=_CHUNK, format=tarfile.PAX_FORMAT) as layer:
        for item in entries:
            info = _info(item)
            if item.content is None:
                layer.addfile(info)
                continue
            with closing(item.content()) as stream:
                try:
                    layer.addfile(info, stream)
                except OSError as error:
                    if error.errno is not None:
                        raise  # the target: no space, no right
                    raise IntegrityError(
                        f"root file system: {item.path!r} is shorter than its size says"
                    ) from error


def config_json(
    *, settings: Settings, arch: Arch, labels: Mapping[str, str], diff_ids: Sequence[str]
) -> bytes:
    """Give the image configuration; its SHA-256 is the image ID. Layers are lowest first."""
    created = settings.created.strftime("%Y-%m-%dT%H:%M:%SZ")
    return _json(
        _ARCHITECTURE[arch]
        | {
            "os": "linux",
            "created": created,
            "config": {
                "Cmd": list(settings.cmd),
                "Env": [f"{name}={value}" for name, value in sorted(settings.env.items())],
                "Labels": dict(labels),
                "User": settings.user,
                "WorkingDir": settings.workdir,
            },
            "history": [{"created": created, "created_by": "sandbox images build"}] * len(diff_ids),
            "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
        }
    )


def _add_layer(target: BinaryIO, below: Layer) -> None:
    target.write(_header(_BELOW, below.size))
    copied = _Counted(target)
    with below.opened() as source:
        while copied.size < below.size and (
            data := source.read(min(_CHUNK, below.size - copied.size))
        ):
            copied.write(data)
    if copied.digest != below.diff_id:
        raise IntegrityError(f"{below.archive} holds {copied.digest}, not {below.diff_id}")
    target.write(b"\0" * (-copied.size % tarfile.BLOCKSIZE))


def _info(item: Entry) -> tarfile.TarInfo:
    info = tarfile.TarInfo(item.path)
    info.type = _TYPES[item.kind]
    info.mode, info.uid, info.gid = item.mode, item.uid, item.gid
    info.mtime, info.size, info.linkname = item.mtime, item.size, item.target
    info.pax_headers = {
        f"{XATTR}{name}": value.decode(errors="surrogateescape")
        for name, value in item.xattrs.items()
    }
    return info


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)  # base-256 sizes: one block whatever the layer's size


def _add(target: _Sink, name: str, data: bytes) -> None:
    target.write(_header(name, len(data)))
    target.write(data + b"\0" * (-len(data) % tarfile.BLOCKSIZE))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
