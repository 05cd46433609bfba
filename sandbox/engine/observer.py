"""Two ways to look at a running sandbox: the host's kernel files, or a probe run inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sandbox.engine.census import Census, Mention, census, mentions
from sandbox.engine.cgroup import ContainerCgroups, measured
from sandbox.engine.processes import ProcessInfo, from_host, from_probe
from sandbox.evidence.records import ResourceUse


class Observer(Protocol):
    """Sees all processes (init, keeper and zombies too) and the use of resources."""

    def processes(self) -> tuple[ProcessInfo, ...]:
        """List the processes, by pid."""

    def use(self) -> ResourceUse:
        """Give what was used so far."""

    def census(self) -> Census | None:
        """Take a census; None where only a command in the sandbox could."""

    def mentions(self, words: Sequence[str]) -> frozenset[Mention]:
        """Find processes that have one of the words; nothing where nobody can look for free."""


class HostObserver:
    """Looks from the host: costs well under a millisecond and runs nothing in the sandbox."""

    def __init__(self, cgroups: ContainerCgroups) -> None:
        self._cgroups = cgroups

    def processes(self) -> tuple[ProcessInfo, ...]:
        """List the processes, by pid."""
        return from_host(self._cgroups.members())

    def is_paused(self) -> bool:
        """Tell whether the sandbox's processes are stopped."""
        return self._cgroups.are_frozen()

    def use(self) -> ResourceUse:
        """Give what was used so far."""
        return self._cgroups.use()

    def census(self) -> Census:
        """Take a census."""
        return census(self._cgroups.members())

    def mentions(self, words: Sequence[str]) -> frozenset[Mention]:
        """Find processes that have one of the words."""
        return mentions(self._cgroups.members(), words)


class ProbeObserver:
    """Looks through a script run in the sandbox; needs only its sh and ``tr``."""

    def __init__(self, probe: Callable[[], str]) -> None:
        self._probe = probe

    def processes(self) -> tuple[ProcessInfo, ...]:
        """List the processes, by pid; the probe itself is not among them."""
        return from_probe(self._probe())

    def use(self) -> ResourceUse:
        """Give what was used so far."""
        return parse_use(self._probe())

    def census(self) -> None:
        """Take none: a figure is not worth a command in the sandbox."""

    def mentions(self, words: Sequence[str]) -> frozenset[Mention]:  # noqa: ARG002 - not looked for
        """Find none."""
        return frozenset()


def parse_use(text: str) -> ResourceUse:
    """Read the "M file name value" lines of probe.sh; a plain number has no name."""
    found: dict[tuple[str, str], int] = {}
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["M"] and len(words) in {3, 4} and words[-1].isdecimal():
            found[words[1], words[2] if len(words) == 4 else ""] = int(words[-1])
    spent, spent_v1 = found.get(("cpu.stat", "usage_usec")), found.get(("cpuacct.usage", ""))
    cpu = spent_v1 / 1e9 if spent_v1 is not None else None if spent is None else spent / 1e6
    return measured(
        source="cgroup-v2" if spent_v1 is None else "cgroup-v1",
        cpu_s=cpu,
        memory_peak_bytes=found.get(
            ("memory.max_usage_in_bytes", ""), found.get(("memory.peak", ""))
        ),
        oom_kills=found.get(
            ("memory.oom_control", "oom_kill"), found.get(("memory.events", "oom_kill"))
        ),
    )
