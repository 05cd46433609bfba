"""A request body as it is saved: what JSON files can hold again, and nothing else."""

from __future__ import annotations

import json
import math

from pydantic import JsonValue


def parse_body(raw: bytes) -> JsonValue:
    """The JSON value of a body, None when it is empty, else its text.

    Bytes that are not UTF-8 and lone surrogates become U+FFFD; a body with numbers that have no
    JSON form (NaN, infinite), or too deep to be read, stays a text.
    """
    if not raw:
        return None
    text = raw.decode("utf-8", errors="replace")
    try:
        return _scrub(json.loads(text, parse_constant=_refuse, parse_float=_finite))
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits} is out of range")
    return value


def _scrub(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return value.encode("utf-8", errors="surrogatepass").decode("utf-8", errors="replace")
        case list():
            return [_scrub(item) for item in value]
        case dict():
            return {str(_scrub(key)): _scrub(item) for key, item in value.items()}
        case _:
            return value
