"""Values of a pins file changed in its text, so that comments and layout stay as they are.

A value is found by the header of its table and its key, both at the start of a line. What came out
is parsed again and must say exactly what was asked for and nothing else, so a file laid out in
another way (inline tables) is refused instead of damaged.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from typing import Any

from sandbox.errors import UsageError
from sandbox.evidence.records import Record


class Edit(Record):
    """One string to change: ``table`` as dotted in its header.

    ``at`` is None for a plain table, otherwise which table of the array, from 0.
    """

    table: str
    key: str
    old: str
    new: str
    at: int | None = None


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a TOML text with the edits made.

    Raises:
        UsageError: a value is not where it is looked for.
    """
    wanted = tomllib.loads(text)
    lines = text.splitlines(keepends=True)
    for edit in edits:
        number = _line_of(lines, edit)
        if number is None or not _changed(wanted, edit):
            raise _refused(edit)
        lines[number] = _with_value(lines[number], edit)
    made = "".join(lines)
    try:
        said = tomllib.loads(made)
    except tomllib.TOMLDecodeError:
        said = {}
    if said != wanted:
        raise UsageError(
            "the pins file cannot be edited: the changed text would say something else",
            cure="write each table below a header line of its own, or edit the versions by hand",
        )
    return made


def _line_of(lines: list[str], edit: Edit) -> int | None:
    header = f"[{edit.table}]" if edit.at is None else f"[[{edit.table}]]"
    left = edit.at or 0
    inside = False
    for number, line in enumerate(lines):
        if line.startswith("["):
            inside = False
            if line.partition("#")[0].strip() == header:
                inside, left = left == 0, left - 1
        elif inside and re.match(rf"{re.escape(edit.key)}\s*=", line):
            return number
    return None


def _with_value(line: str, edit: Edit) -> str:
    # JSON's strings are basic strings of TOML
    return line.replace(json.dumps(edit.old), json.dumps(edit.new), 1)


def _changed(data: dict[str, Any], edit: Edit) -> bool:
    """Make the edit in the parsed file; whether the old value was there."""
    place: Any = data
    for part in edit.table.split("."):
        place = place.get(part, {})
    if edit.at is not None:
        place = place[edit.at] if edit.at < len(place) else {}
    if place.get(edit.key) != edit.old:
        return False
    place[edit.key] = edit.new
    return True


def _refused(edit: Edit) -> UsageError:
    return UsageError(
        f'the pins file cannot be edited: no line `{edit.key} = "{edit.old}"` below the header'
        f" of {edit.table}",
        cure="write that table below a header line of its own, or edit the version by hand",
    )
