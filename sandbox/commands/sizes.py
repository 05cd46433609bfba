"""Sizes as people read them."""

from __future__ import annotations


def megabytes(size: int) -> str:
    """Write a number of bytes in megabytes (10**6)."""
    return f"{size / 1e6:.0f} MB"
