"""A reader of rows that knows NeMo Gym's documented contract and nothing of this project's code.

It takes ``rollouts.jsonl`` and ``failures.jsonl`` as plain JSON and says why it refuses a row; no
reason means that it accepts. What the fields mean, their units and what absence says is in
docs/nemo-gym.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.rowfields import (
    BUNDLE,
    CAPTURE,
    CAPTURED_CALL,
    FAILURE,
    FAILURE_PREFIX,
    GAP,
    GRADED,
    KINDS,
    REFERENCE,
    TOKENS,
    TRAJECTORY,
    TRAJECTORY_CALL,
    TRAJECTORY_TOOL,
    TURN,
    Fields,
    wrong_fields,
)
from tests.conformance.rowrules import RULES, Row

ROLLOUTS, FAILURES = "rollouts.jsonl", "failures.jsonl"


def read_rows(cell: Path) -> list[tuple[str, Row]]:
    """Return the rows of a cell folder, each with the name of its file."""
    files = [(name, cell / name) for name in (ROLLOUTS, FAILURES)]
    return [
        (name, row)
        for name, path in files
        if path.is_file()
        for row in parse(name, path.read_text(encoding="utf-8"))
    ]


def parse(name: str, text: str) -> list[Row]:
    """Return the rows of a file's text, one a line.

    Raises:
        ValueError: a line is no JSON object.
    """
    rows: list[Row] = []
    for number, line in enumerate(text.splitlines(), start=1):
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError(f"{name}:{number} is no object")  # noqa: TRY004 - of the text
        rows.append(row)
    return rows


def refusals(name: str, row: Row) -> list[str]:
    """Return why a row of the file ``name`` is refused: ``rule: reason`` lines, none if accepted.

    Rules over the contents need a row whose fields are as documented, so wrong fields come first.
    """
    wrong = [f"fields: {reason}" for reason in fields(name, row)]
    if wrong:
        return wrong
    return [f"{rule}: {reason}" for rule, check in RULES.items() for reason in check(row)]


def fields(name: str, row: Row) -> Iterator[str]:
    """Names, types and values of all fields; a graded row has a reward, a failure row has none."""
    yield from wrong_fields("row", row, GRADED if name == ROLLOUTS else FAILURE, closed=False)
    other = "reward" if name == FAILURES else FAILURE_PREFIX
    yield from (f"row has {key}, in {name}" for key in row if key.startswith(other))
    for key, check in (
        ("ng_agent_observations", _observations),
        ("ng_trajectory", _trajectory),
        ("ng_model_call_capture", _capture),
    ):
        if isinstance(row.get(key), dict):
            yield from check(key, row[key])


def _observations(at: str, bundle: Row) -> Iterator[str]:
    yield from wrong_fields(at, bundle, BUNDLE)
    for number, record in _objects(bundle, "records"):
        where = f"{at}.records[{number}]"
        known = KINDS.get(str(record.get("kind")))
        if known is None:
            yield f"{where}.kind is {record.get('kind')!r}"
        else:
            yield from wrong_fields(where, record, known)
            yield from _references(where, record)
    yield from _each(at, bundle, "gaps", GAP)


def _trajectory(at: str, found: Row) -> Iterator[str]:
    yield from wrong_fields(at, found, TRAJECTORY)
    yield from _each(at, found, "invocations", KINDS["agent_invocation"])
    yield from _each(at, found, "turns", TURN)
    for key in ("invocations", "turns"):
        for number, one in _objects(found, key):
            yield from _references(f"{at}.{key}[{number}]", one)
    yield from _each(at, found, "model_calls", TRAJECTORY_CALL)
    yield from _each(at, found, "tool_calls", TRAJECTORY_TOOL)
    yield from _each(at, found, "gaps", GAP)


def _capture(at: str, found: Row) -> Iterator[str]:
    yield from wrong_fields(at, found, CAPTURE, closed=False)
    yield from _each(at, found, "calls", CAPTURED_CALL)
    for number, call in _objects(found, "calls"):
        if isinstance(call.get("tokens"), dict):
            yield from wrong_fields(f"{at}.calls[{number}].tokens", call["tokens"], TOKENS)


def _references(at: str, owner: Row) -> Iterator[str]:
    for number, ref in _objects(owner, "model_calls"):
        where = f"{at}.model_calls[{number}]"
        yield from wrong_fields(where, ref, REFERENCE)
        if not ref.get("model_call_id") and not (ref.get("model_ref") and ref.get("response_id")):
            yield f"{where} names neither a call nor a server and a response"


def _each(at: str, found: Row, key: str, known: Fields) -> Iterator[str]:
    for number, one in _objects(found, key):
        yield from wrong_fields(f"{at}.{key}[{number}]", one, known)


def _objects(found: Row, key: str) -> Iterator[tuple[int, Row]]:
    """Yield the objects of a list; what else is in it is a wrong field, told there."""
    several = found.get(key)
    for number, one in enumerate(several if isinstance(several, list) else ()):
        if isinstance(one, dict):
            yield number, one
