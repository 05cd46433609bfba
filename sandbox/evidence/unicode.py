"""Text that can be stored: a body may carry half a surrogate pair, which UTF-8 cannot."""

from __future__ import annotations

from typing import Any


def storable(text: str) -> str:
    """Return the text with each lone surrogate replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def storable_value(value: Any) -> Any:
    """Return a JSON value with all of its texts storable."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(key): storable_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable_value(item) for item in value]
    return value
