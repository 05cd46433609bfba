"""The processes in a sandbox, from the host's /proc or from a probe run inside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

INIT = 1
KEPT_SHELL = ("/bin/sh", "-s", "sandbox-channel")


@dataclass(frozen=True, kw_only=True)
class ProcessInfo:
    """One process as it was seen; pids are the sandbox's own.

    Attributes:
        pid: its number in the sandbox.
        parent: its parent's number in the sandbox; 0 for a command started by the engine.
        uid: its effective user (the host's number where the engine remaps users).
        argv: its command line; its name in brackets where that is empty.
        state: the kernel's letter (R running, S sleeping, D waiting, T stopped).
        started_ticks: when it started, in kernel ticks since boot.
    """

    pid: int
    parent: int
    uid: int
    argv: tuple[str, ...]
    state: str
    started_ticks: int

    @property
    def identity(self) -> str:
        """Name the process: a pid alone is reused."""
        return f"{self.pid}:{self.started_ticks}"


def parse_process(*, pid: int, uid: int, stat: str, cmdline: Iterable[str]) -> ProcessInfo:
    """Build a record from the texts of /proc/PID/stat (proc(5)) and its command line."""
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    words = tuple(cmdline)
    return ProcessInfo(
        pid=pid,
        parent=int(fields[1]),
        uid=uid,
        argv=words or (f"[{name}]",),
        state=fields[0],
        started_ticks=int(fields[19]),
    )


def of_the_task(processes: Iterable[ProcessInfo]) -> tuple[ProcessInfo, ...]:
    """Leave out the container's init, its keeper, our kept shells and what is dead already.

    The keeper is the oldest process but init: it is there before any command can start, and
    the container ends with it. A kept shell (see ``channel``) is started by the engine, which
    shows in its parent: no process of the task can pass for one.
    """
    others = sorted(
        (process for process in processes if process.pid != INIT),
        key=lambda process: (process.started_ticks, process.pid),
    )
    return tuple(
        process
        for process in others[1:]
        if process.state not in {"Z", "X"} and (process.parent != 0 or process.argv != KEPT_SHELL)
    )


def from_host(pids: Iterable[int], *, proc: Path = Path("/proc")) -> tuple[ProcessInfo, ...]:
    """Describe the processes with these host pids in their sandbox's terms."""
    numbers = {pid: _status(proc / str(pid)) for pid in pids}
    inside = {pid: int(status["NSpid"][-1]) for pid, status in numbers.items() if status}
    found = []
    for pid, number in inside.items():
        try:
            stat = (proc / str(pid) / "stat").read_text(errors="replace")
            cmdline = (proc / str(pid) / "cmdline").read_bytes()
        except OSError:
            continue
        seen = parse_process(
            pid=number, uid=int(numbers[pid]["Uid"][1]), stat=stat, cmdline=_words(cmdline)
        )
        found.append(_with_parent(seen, inside.get(seen.parent, 0)))
    return tuple(sorted(found, key=lambda process: process.pid))


def from_probe(text: str) -> tuple[ProcessInfo, ...]:
    """Read the P, U, S, C lines of probe.sh."""
    found: list[ProcessInfo] = []
    facts: dict[str, str] = {}
    for line in text.splitlines():
        kind, _, value = line.partition(" ")
        facts[kind] = value
        if kind == "C" and facts.get("S", "").strip():
            found.append(
                parse_process(
                    pid=int(facts["P"]),
                    uid=int(facts["U"]),
                    stat=facts["S"],
                    cmdline=_words(value.encode().replace(b"\x1f", b"\0")),
                )
            )
    return tuple(found)


def _with_parent(process: ProcessInfo, parent: int) -> ProcessInfo:
    return ProcessInfo(**{**vars(process), "parent": parent})


def _status(folder: Path) -> dict[str, list[str]]:
    """Read /proc/PID/status; empty when the process is gone."""
    try:
        text = (folder / "status").read_text(errors="replace")
    except OSError:
        return {}
    rows = (line.partition(":") for line in text.splitlines())
    return {name: value.split() for name, _, value in rows}


def _words(cmdline: bytes) -> list[str]:
    words = cmdline.removesuffix(b"\0").split(b"\0") if cmdline else []
    return [word.decode(errors="replace") for word in words]
