"""What the page shows of one cell when it is opened, bounded to a size in bytes."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sandbox.evidence.folder import CellFiles
from sandbox.evidence.results import CellResult
from sandbox.evidence.story import Event, story
from sandbox.evidence.verdict import Status, Verdict
from sandbox.report.cellwords import changes, facts, processes
from sandbox.report.cut import cut

TEXT = 24_000
"""Characters of one transcript that are kept at the most; parts of events get a quarter."""
_EVENTS = 200
_REASON = 2_000
_LEAST = 60

Native = Mapping[str, str]


def details(
    result: CellResult, files: CellFiles | None, native: Native, *, most: int, events: int = _EVENTS
) -> str:
    """Return the details of a cell as base64 of deflated JSON, in at most about ``most`` bytes.

    Texts are cut visibly, and cut shorter until all fits. ``native`` are the
    native files' texts by name. ``files`` is None when the cell's folder could not be read.
    """
    happened = () if files is None else story(files)
    length = min(TEXT, most)
    while True:
        packed = _pack(_data(result, files, happened, native, length=length, events=events))
        if len(packed) <= most or length < _LEAST:
            return packed
        length = min(length // 2, length * most * 9 // (len(packed) * 10))
        if length < TEXT // 64:
            events = max(8, events // 2)


def unpack(packed: str) -> dict[str, Any]:
    """Return the details that ``details`` packed; for tests and other readers of the page."""
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return data


def _pack(data: dict[str, Any]) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 6)).decode()


def _data(
    result: CellResult,
    files: CellFiles | None,
    happened: Sequence[Event],
    native: Native,
    *,
    length: int,
    events: int,
) -> dict[str, Any]:
    return {
        "facts": [] if files is None else [list(fact) for fact in facts(files)],
        "verdicts": [_verdict(verdict, length) for verdict in _notable(result)],
        "attempts": [attempt.state.value for attempt in result.attempts],
        "phases": {} if files is None else files.cell.phases,
        "events": _events(happened, length, events),
        "processes": [] if files is None else [cut(line, length) for line in processes(files)],
        "files": [] if files is None else _listed(changes(files), length),
        "texts": [[name, cut(text, length)] for name, text in native.items()],
    }


def _notable(result: CellResult) -> Iterator[Verdict]:
    """Yield the verdicts that say more than their status."""
    return (v for v in result.verdicts if v.status is not Status.PASS or v.reason)


def _verdict(verdict: Verdict, length: int) -> dict[str, str]:
    known = {"known": verdict.known, "link": verdict.link, "flaky": verdict.flaky}
    return {
        "check": verdict.check,
        "reason": cut(verdict.reason, min(length, _REASON)),
        **{name: cut(text, _REASON) for name, text in known.items() if text},
    }


def _events(found: Sequence[Event], length: int, most: int) -> list[dict[str, Any]]:
    """Return the events; of too many the first and the last, which is the end."""
    if len(found) <= most:
        return [_event(event, length) for event in found]
    shown = [_event(event, length) for event in found[: most - 1]]
    note = Event(at=None, kind="end", title=f"[... {len(found) - most} events cut ...]")
    return [*shown, _event(note, length), _event(found[-1], length)]


def _event(event: Event, length: int) -> dict[str, Any]:
    most = max(_LEAST, length // 4)
    return {
        "at": None if event.at is None else round(event.at, 3),
        "s": None if event.seconds is None else round(event.seconds, 4),
        "kind": event.kind,
        "title": cut(event.title, _REASON),
        "parts": [[cut(part.label, 200), cut(part.text, most)] for part in event.parts],
    }


def _listed(lines: Iterator[str], length: int) -> list[str]:
    most = max(10, length // 60)
    found = list(lines)
    if len(found) <= most:
        return found
    return [*found[:most], f"[... {len(found) - most} files cut ...]"]
