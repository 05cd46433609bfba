"""Finds and reads native evidence without trusting it: a tool may have written anything there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import JsonValue

from sandbox.evidence.observations import Gap

UNPARSEABLE = "agent_artifact_record_unparseable"
ARTIFACT_UNAVAILABLE = "agent_artifact_unavailable"
TRANSCRIPT_UNAVAILABLE = "agent_transcript_unavailable"
OUTCOME_UNAVAILABLE = "invocation_outcome_unavailable"
TOOL_OUTCOME_UNAVAILABLE = "tool_outcome_unavailable"
TOOL_TIMING_UNAVAILABLE = "tool_timing_unavailable"
TOOL_RESULT_UNOWNED = "tool_result_unowned"
DUPLICATE_TOOL_CALL = "duplicate_tool_call"

_DETAIL_LIMIT = 300
_LATEST_MS = 1e15


def find_files(native: Path, pattern: str) -> list[Path]:
    """Return the regular files of that name below a folder, sorted; links are never followed."""
    found = [
        Path(folder) / name
        for folder, _, names in os.walk(native)
        for name in names
        if fnmatchcase(name, pattern)
    ]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def json_lines(path: Path) -> Iterator[tuple[int, JsonValue | Gap]]:
    """Yield each line's number and value; a line that is no JSON yields a gap instead."""
    with path.open("rb") as lines:
        number = 0
        while line := lines.readline():
            number += 1
            if not line.isspace():
                holder = [line]
                del line  # one may be all that a command printed: not to be there twice
                yield number, _json_line(holder, f"{path.name}:{number}")


def _json_line(holder: list[bytes], where: str) -> JsonValue | Gap:
    """Read the line that is taken out of its holder."""
    if not holder[0].endswith(b"\n"):
        # A whole record ends its line; half of one may be valid JSON too (``12`` of ``123``).
        return unparseable(f"{where}: the line does not end")
    try:
        value = json_value(holder.pop().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return unparseable(f"{where}: {error}")
    return value


def json_value(text: str) -> JsonValue:
    """Return the value of a JSON text, with each lone surrogate replaced.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: it is nested too deeply.
    """
    value: JsonValue = json.loads(text, parse_constant=_no_constant)
    return json.loads(_clean(json.dumps(value, ensure_ascii=False))) if "\\u" in text else value


def seconds(milliseconds: JsonValue) -> float | None:
    """Return a time in seconds; None for what is no time in this or the next ten millennia."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return None
    return milliseconds / 1000 if 0 <= milliseconds <= _LATEST_MS else None


def unparseable(detail: str) -> Gap:
    """Return the gap for a record that could not be read."""
    return Gap(code=UNPARSEABLE, detail=short(detail))


def short(text: str) -> str:
    """Return a text that fits in a gap or an error type."""
    clean = _clean(text)
    return clean if len(clean) <= _DETAIL_LIMIT else clean[: _DETAIL_LIMIT - 3] + "..."


def _clean(text: str) -> str:
    """Replace lone surrogates, which JSON may escape and UTF-8 cannot hold."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _no_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is not JSON")
