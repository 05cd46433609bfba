"""Keeps the memory of a long run flat: big blocks go back to the system when they are freed."""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
_BLOCK = 128 * 1024
_ARENAS = 2


def give_big_blocks_back() -> None:
    """Tell glibc's malloc to map big blocks apart, and to keep few arenas.

    By itself it raises that threshold to the largest block that was freed, up to 32 MiB, and gives
    every thread an arena of its own: a process that once held a long line of output in each of
    eight threads keeps that much for ever. Does nothing with another C library.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _BLOCK)
        mallopt(_TRIM_THRESHOLD, _BLOCK)
        mallopt(_ARENA_MAX, _ARENAS)
