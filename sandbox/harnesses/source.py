"""Which source an adapter is: one hash over its module and everything of its package it imports."""

from __future__ import annotations

import ast
import hashlib
import sys
from functools import cache
from pathlib import Path


def source_sha256(adapter: object) -> str | None:
    """Hash the adapter's own module, the modules of its package that it reaches, and their data.

    Data are files beside a module that begin with its name (``kilocode_plugin.js``). None when the
    source cannot be read: an adapter may come from anywhere.
    """
    module = sys.modules.get(type(adapter).__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return None
    digest = hashlib.sha256()
    try:
        for path in _files(Path(file), package=module.__package__ or ""):
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    except (OSError, SyntaxError):
        return None
    return digest.hexdigest()


def _files(start: Path, *, package: str) -> list[Path]:
    """Return the reached files of the folder, in order of their names."""
    reached: set[Path] = set()
    waiting = [start]
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached.add(path)
        waiting += _imported(path, package, path.stat().st_mtime_ns)
    data = {
        beside
        for module in reached
        for beside in module.parent.glob(f"{module.stem}*")
        if beside.is_file() and beside.suffix not in {".py", ".pyc"}
    }
    return sorted(reached | data)


@cache
def _imported(path: Path, package: str, changed_ns: int) -> tuple[Path, ...]:  # noqa: ARG001
    """Return where modules of the same package that a file imports are kept.

    ``changed_ns`` is when the file was last changed: a run asks for the same files for each cell.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
    inside = {name.removeprefix(f"{package}.") for name in names if name.startswith(f"{package}.")}
    found = (path.parent / f"{name}.py" for name in sorted(inside) if "." not in name)
    return tuple(one for one in found if one.is_file())
