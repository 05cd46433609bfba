"""Server-sent events: framing, and reading frames back (WHATWG HTML, server-sent events)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from pydantic import JsonValue


def frame(data: str, *, event: str | None = None) -> bytes:
    """One event. ``data`` may hold line breaks; each line becomes a ``data:`` field."""
    head = "" if event is None else f"event: {event}\n"
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    body = "".join(f"data: {line}\n" for line in lines)
    return f"{head}{body}\n".encode()


def json_frame(value: JsonValue, *, event: str | None = None) -> bytes:
    """One event whose data is a JSON value on one line."""
    return frame(json.dumps(value, ensure_ascii=False, separators=(",", ":")), event=event)


def events(frames: Iterable[bytes]) -> Iterator[str]:
    """The data of each complete event in a byte stream, however it was cut into pieces."""
    text = b"".join(frames).decode("utf-8", errors="replace")
    data: list[str] = []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []


def json_events(frames: Iterable[bytes]) -> Iterator[dict[str, JsonValue]]:
    """The JSON objects of a stream; end marks and malformed events are passed over."""
    for data in events(frames):
        try:
            value = json.loads(data)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
