"""Foreign texts made fit to show: bounded with a visible cut, without control characters."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def cut(text: str, most: int) -> str:
    """Return the text in about ``most`` characters: its head and tail, the middle counted.

    A text that is not longer comes back as it is.
    """
    if len(text) <= most:
        return text
    head = most * 2 // 3
    tail = most - head
    left_out = len(text) - most
    return f"{text[:head]}\n[... {left_out} characters cut ...]\n{text[len(text) - tail :]}"


def harmless(text: str) -> str:
    """Show control characters other than tab and newline by their codes."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
