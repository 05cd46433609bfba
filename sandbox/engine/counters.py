"""The kernel's count of what found no route in a network namespace (proc(5))."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack

_FILES = ("snmp", "snmp6")


def without_route(counts: str) -> int | None:
    """Read /proc/net/snmp with /proc/net/snmp6; None: this kernel does not tell."""
    rows = [line.split() for line in counts.splitlines() if line]
    without = [int(row[1]) for row in rows if row[0] == "Ip6OutNoRoutes"]
    for names, numbers in itertools.pairwise(rows):
        if names[0] == numbers[0] == "Ip:" and "OutNoRoutes" in names:
            without.append(int(numbers[names.index("OutNoRoutes")]))
    return sum(without) if without else None


class RouteCounter:
    """The count of the network namespace of the thread that makes this; ``close`` it.

    It is told as long as this is open, also when nobody is left in the namespace.
    """

    def __init__(self) -> None:
        with ExitStack() as stack:
            self._files = []
            for name in _FILES:
                try:
                    opened = os.open(f"/proc/thread-self/net/{name}", os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue  # no IPv6 in this kernel
                stack.callback(os.close, opened)
                self._files.append(opened)
            self.close = stack.pop_all().close

    def read(self) -> int:
        """Return packets and connections without a route so far; 0 where it is not told."""
        return without_route("".join(map(_whole, self._files))) or 0


def _whole(opened: int) -> str:
    parts = []
    offset = 0
    while part := os.pread(opened, 1 << 16, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts).decode("ascii", errors="replace")
