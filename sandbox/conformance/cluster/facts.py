"""What a worker is, and why it may not work on a run: other code, pins, Python or architecture."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import sandbox
from sandbox.cache import cache_root
from sandbox.conformance.configuration import pins_by_platform
from sandbox.engine.client import Engine
from sandbox.engine.owner import boot_id
from sandbox.errors import Unsupported
from sandbox.evidence.cell import RunConfiguration
from sandbox.evidence.records import Record
from sandbox.harnesses.registry import Registered
from sandbox.harnesses.source import source_sha256
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.pins import INSTALLERS

_PARTS = {".py", ".sh", ".js"}
_SHOWN = 3

Library = RuntimeLibrary | RuntimeCollection


class Facts(Record):
    """What decides a cell's result besides its job, of the client or of a worker.

    ``code`` is a digest of this package's source and installers, ``pins`` version and bundle by
    ``harness platform``, ``adapters`` a digest of each adapter's source. ``cache`` names the cache
    folder: workers of one host may share it.
    """

    package: str
    code: str
    python: str
    architecture: str
    pins: dict[str, str]
    adapters: dict[str, str]
    cache: str = ""


def facts_of(engine: Engine, library: Library, harnesses: Registered) -> Facts:
    """Return what this process is, with its engine, pins and adapters."""
    return Facts(
        package=version("sandbox"),
        code=code_digest(),
        python=f"{sys.version_info[0]}.{sys.version_info[1]}",
        architecture=engine.info.architecture,
        pins=pins_by_platform(library.entries()),
        adapters={
            name: source_sha256(one) or "unknown" for name, one in harnesses.harnesses.items()
        },
        cache=f"{boot_id()} {cache_root().resolve()}",
    )


def refuse(name: str, theirs: Facts, ours: Facts, needed: RunConfiguration) -> None:
    """Raise ``Unsupported`` if a worker's results could differ from ours.

    Args:
        name: the worker's, for the message.
        theirs: what it is.
        ours: what the client is.
        needed: the configuration of the run: only its pins and adapters have to be the same.
    """
    lines = list(_differences(theirs, ours, needed))
    if lines:
        raise Unsupported(
            f"worker {name}: {'; '.join(lines)}",
            cure="install the same version of this package, with the same pins, on every worker",
        )


def _differences(theirs: Facts, ours: Facts, needed: RunConfiguration) -> Iterator[str]:
    if theirs.python != ours.python:
        yield f"its Python is {theirs.python}, ours {ours.python}"
    if theirs.architecture != ours.architecture:
        yield f"its engine is for {theirs.architecture}, ours for {ours.architecture}"
    yield from _unlike("pin", needed.pins, theirs.pins, needed.pins)
    names = {cell.partition("/")[0].partition("+")[0] for cell in needed.plan}
    yield from _unlike("adapter", names & set(ours.adapters), theirs.adapters, ours.adapters)
    if theirs.code != ours.code:
        yield (
            f"its package is {theirs.package} ({theirs.code}), ours {ours.package} ({ours.code})"
        )


def _unlike(
    what: str, names: Iterable[str], theirs: Mapping[str, str], ours: Mapping[str, str]
) -> Iterator[str]:
    unlike = [name for name in sorted(names) if theirs.get(name) != ours[name]]
    for name in unlike[:_SHOWN]:
        yield f"its {what} of {name} is {theirs.get(name, 'missing')}, ours {ours[name]}"
    if len(unlike) > _SHOWN:
        yield f"{len(unlike) - _SHOWN} more {what}s differ"


@cache
def code_digest() -> str:
    """Return a digest of this package's source and of its installers; pins are compared apart."""
    root = Path(sandbox.__file__).parent
    digest = hashlib.sha256()
    files = [*root.rglob("*"), *INSTALLERS.glob("*.sh")]
    for path in sorted(path for path in files if path.suffix in _PARTS):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root.parent)}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:16]
