"""Records as a command prints them: JSON for programs, or the lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from sandbox.evidence.records import Record


def print_records(records: Iterable[Record], lines: Sequence[str], *, as_json: bool) -> None:
    """Print one JSON array, or the lines."""
    if as_json:
        print(json.dumps([record.model_dump(mode="json") for record in records], indent=2))
    elif lines:
        print("\n".join(lines))


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines whose columns stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
