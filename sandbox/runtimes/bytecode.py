"""Bytecode for a bundle's Python files, so that a harness does not compile itself at each start.

A pinned Python of this machine's platform makes it, for bundles of any platform: the bytecode of
one CPython version is the same for every libc and CPU. It is marked as never to be held against
its source (PEP 552, unchecked hash), because an installer's tar gives files new times.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox.errors import IntegrityError
from sandbox.runtimes.client import run_client

_SCRIPT = Path(__file__).with_name("bytecode_script.py")
_DEADLINE_S = 900.0
# No hash that a start chooses; neither the user's packages nor this folder's modules; no warnings.
_ENV = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
_OPTIONS = ("-B", "-P", "-s", "-S", "-W", "ignore")


def bytecode_place(source: str, python: str) -> str:
    """Return where the bytecode of a source lies, for CPython ``python`` (as "3.13")."""
    folder, file = posixpath.split(source)
    tag = f"cpython-{python.replace('.', '')}"
    return posixpath.join(folder, "__pycache__", f"{file.removesuffix('.py')}.{tag}.pyc")


def compile_sources(
    python: Sequence[str], version: str, sources: Iterable[tuple[str, Path]], folder: Path
) -> dict[str, Path]:
    """Compile sources and return the files made, by the name of the source.

    Args:
        python: how the pinned Python is started.
        version: which one it has to be, as "3.13".
        sources: name in the bundle, and file.
        folder: an empty folder for what is made.

    Raises:
        IntegrityError: it is another Python, or it failed.
        FetchError: it did not end in time.
    """
    wanted = {
        name: (path, folder / str(count)) for count, (name, path) in enumerate(sorted(sources))
    }
    listed = folder / "sources.json"
    listed.write_text(
        json.dumps([[name, str(path), str(out)] for name, (path, out) in wanted.items()]), "utf-8"
    )
    argv = [*python, *_OPTIONS, str(_SCRIPT), str(listed)]
    code, said, errors = run_client(argv, env=_ENV, deadline_s=_DEADLINE_S)
    tag = f"cpython-{version.replace('.', '')}"
    if code != 0 or said.strip() != tag:
        raise IntegrityError(
            f"{python[0]} made no bytecode for {tag}: it ended with {code}, said {said.strip()!r}"
            f" and {errors[-500:]!r}",
            cure="pin as tool python the version that the tree names",
        )
    return {name: out for name, (_, out) in wanted.items() if out.is_file()}
