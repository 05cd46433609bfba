"""The records that ``qwen --output-format stream-json`` prints: the run's own end."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import JsonValue

from sandbox.evidence.observations import Gap, InvocationStatus
from sandbox.evidence.records import Record
from sandbox.harnesses.native import find_files, json_lines

_API_ERROR = re.compile(r"\[API Error: (\d{3})\b")


class StdoutFacts(Record):
    """The session, and its end as the last ``result`` record tells it, if there is one."""

    session_id: str | None = None
    status: InvocationStatus = InvocationStatus.UNKNOWN
    error_type: str | None = None
    duration_ms: float | None = None


def read_stdout(native: Path) -> StdoutFacts:
    """Read the records; lines that are none (a warning, half a line) are left alone."""
    facts = StdoutFacts()
    for path in find_files(native, "stdout"):
        for _, record in json_lines(path):
            if isinstance(record, Gap) or not isinstance(record, dict):
                continue
            session = record.get("session_id")
            if record.get("type") == "system" and record.get("subtype") == "init":
                facts = StdoutFacts(session_id=session if isinstance(session, str) else None)
            elif record.get("type") == "result" and session == facts.session_id:
                facts = _ended(facts, record)
    return facts


def _ended(facts: StdoutFacts, record: dict[str, JsonValue]) -> StdoutFacts:
    """Take the end: a success must say so in both of its fields."""
    failed, duration = record.get("is_error"), record.get("duration_ms")
    known = isinstance(duration, int | float) and not isinstance(duration, bool)
    status, error_type = InvocationStatus.UNKNOWN, None
    if failed is True:
        status, error_type = InvocationStatus.FAILED, _error_type(record)
    elif failed is False and record.get("subtype") == "success":
        status = InvocationStatus.COMPLETED
    return StdoutFacts(
        session_id=facts.session_id,
        status=status,
        error_type=error_type,
        duration_ms=float(duration) if known and duration >= 0 else None,  # type: ignore[arg-type,operator]
    )


def _error_type(record: dict[str, JsonValue]) -> str:
    error = record.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    found = _API_ERROR.match(message) if isinstance(message, str) else None
    return f"http_{found[1]}" if found else "error"
