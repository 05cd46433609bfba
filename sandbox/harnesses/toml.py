"""Writes TOML v1.0: tables, strings, booleans, numbers and lists of those (https://toml.io)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
_NEEDS_ESCAPE = re.compile(r'["\\\x00-\x1f\x7f]')


def dumps(document: Mapping[str, object]) -> str:
    """Return a TOML document in which every table keeps the order of its keys.

    Raises:
        TypeError: a value that TOML does not have, such as None.
    """
    return "\n".join(_table(document, ())) + "\n"


def _table(table: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if not isinstance(value, Mapping):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = (*path, key)
            yield f"\n[{'.'.join(map(_key, inner))}]"
            yield from _table(value, inner)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: object) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"cannot be written as TOML: {type(value).__name__}")


def _float(value: float) -> str:
    return repr(value) if math.isfinite(value) else str(value)


def _string(text: str) -> str:
    return '"' + _NEEDS_ESCAPE.sub(_escaped, text) + '"'


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return _ESCAPES.get(char, f"\\u{ord(char):04x}")
