"""Which harnesses and images a change touches, so that CI runs only their cells.

The mapping errs to the safe side: a file that it does not know touches everything.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sandbox.evidence.records import Record

HARNESSES = "sandbox/harnesses/"
IMAGES = "images/"
INSTALLERS = "installers/"
PINS = (f"{INSTALLERS}pins.toml", f"{INSTALLERS}pins.lock")
"""Files whose tables by harness say whom a change of them touches."""

_NOTHING = (
    "*.md",
    "LICENSE",
    ".gitignore",
    "docs/*",
    "tests/*",
    "sandbox/report/*",
    "sandbox/evidence/compare.py",
    "sandbox/evidence/merge.py",
    "sandbox/evidence/story.py",
    *(f"sandbox/commands/{name}.py" for name in ("bench", "comparing", "diff", "doctor", "export")),
    *(
        f"sandbox/commands/{name}.py"
        for name in ("judge", "list", "matrix", "merge", "show", "sweep")
    ),
    *(f"sandbox/conformance/{name}bench.py" for name in ("", "cell", "engine", "install")),
    *(f"sandbox/conformance/{name}.py" for name in ("contenders", "processbench", "timing")),
    "sandbox/engine/peers/*",
    "sandbox/evidence/benches.py",
    f"{INSTALLERS}venv.sh",
)

_SHARED = {"artifact", "artifacts", "tree", "trees", "pins_sha256"}
"""Tables of artifacts: a change that reaches a bundle shows in the bundle's own digest."""


class Affected(Record):
    """What a change touches; ``everything`` names the files that nobody can map."""

    harnesses: frozenset[str]
    images: frozenset[str]
    everything: tuple[str, ...] = ()

    def touches(self, harness: str, image: str) -> bool:
        """Whether cells of this harness in this image are touched."""
        return bool(self.everything) or harness in self.harnesses or image in self.images


def affected(
    paths: Iterable[str],
    *,
    images: Mapping[str, Collection[str]],
    users: Mapping[str, Collection[str]],
    pinned: Collection[str] = (),
) -> Affected:
    """Map changed files, relative to the repository, to what they touch.

    Args:
        paths: the changed files.
        images: for each image those that it is derived from.
        users: for each module file of the harnesses' room, the harnesses that use it.
        pinned: the harnesses whose pins changed (``changed_pins``), for the pins' own files.
    """
    harnesses, touched, unknown = set[str](), set[str](), []
    for path in sorted(set(paths)):
        parts = path.split("/")
        if path in PINS:
            harnesses |= set(pinned)
        elif any(fnmatchcase(path, glob) for glob in _NOTHING):
            continue
        elif path.startswith(HARNESSES) and path in users:
            harnesses |= set(users[path])
        elif path.startswith(IMAGES) and len(parts) > 2 and parts[1] in images:
            touched |= {name for name, bases in images.items() if parts[1] in (name, *bases)}
        elif path.startswith(INSTALLERS) and len(parts) > 2 and parts[1] in _all(users):
            harnesses.add(parts[1])
        else:
            unknown.append(path)
    return Affected(
        harnesses=frozenset(harnesses), images=frozenset(touched), everything=tuple(unknown)
    )


def changed_pins(before: str, after: str) -> frozenset[str] | None:
    """Return the harnesses whose tables differ between two texts of the pins (TOML) or lock (JSON).

    None when something else differs too, or a text cannot be read: then anything may be touched.
    """
    old, new = _read(before), _read(after)
    if old is None or new is None:
        return None
    changed = set[str]()
    for table in ("harness", "bundles", "harness_sha256"):
        then, now = old.pop(table, {}), new.pop(table, {})
        changed |= {name for name in {*then, *now} if then.get(name) != now.get(name)}
    rest = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    return frozenset(changed) if rest <= _SHARED else None


def _read(text: str) -> dict[str, Any] | None:
    for read in (json.loads, tomllib.loads):
        try:
            found = read(text)
        except ValueError:  # both decoders' errors are
            continue
        return found if isinstance(found, dict) else None
    return None


def module_users(
    root: Path, modules: Mapping[str, str], room: str = "sandbox.harnesses"
) -> dict[str, frozenset[str]]:
    """Return for each module file of the room the harnesses that import it, directly or not.

    ``root`` is the repository, ``modules`` the adapter's module by harness. Files of the room that
    no adapter imports are left out.
    """
    users: dict[str, set[str]] = {}
    for harness, module in modules.items():
        for found in _closure(root, module, room):
            users.setdefault(_file(found), set()).add(harness)
    return {path: frozenset(names) for path, names in users.items()}


def _all(users: Mapping[str, Collection[str]]) -> set[str]:
    return {name for names in users.values() for name in names}


def _closure(root: Path, module: str, room: str) -> set[str]:
    found, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        path = root / _file(name)
        if name not in found and path.is_file():
            found.add(name)
            waiting += [one for one in _imports(path) if one.startswith(f"{room}.")]
    return found


def _file(module: str) -> str:
    return module.replace(".", "/") + ".py"


def _imports(path: Path) -> Iterable[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
