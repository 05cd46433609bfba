"""Long texts bounded with a cut that nobody can overlook."""

from __future__ import annotations


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
