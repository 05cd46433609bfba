"""Runs what asynchronous packages do, each contender on an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Loop:
    """An event loop that lives from the first call to ``close``, in the calling thread."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end and return the result."""
        return self._runner.run(work)

    def close(self) -> None:
        """Close the loop; twice is fine."""
        self._runner.close()
