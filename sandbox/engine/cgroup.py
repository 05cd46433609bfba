"""The kernel's control groups of one container, read and used from the host.

File names and formats: Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of the kernel.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from sandbox.errors import EngineFailure
from sandbox.evidence.records import ResourceUse

Hierarchy = Literal["unified", "freezer"]
UNIFIED = ""
KILL_PASSES = 50
KILL_DEADLINE_S = 10.0


def measured(
    *, cpu_s: float | None, memory_peak_bytes: int | None, oom_kills: int | None, source: str
) -> ResourceUse:
    """Put the kernel's figures in the record's units; None where this kernel does not count.

    The peak counts page cache and /tmp too, as the kernel's limit does.
    """
    peak = None if memory_peak_bytes is None else memory_peak_bytes / 2**20
    return ResourceUse(cpu_time_s=cpu_s, peak_memory_mib=peak, oom_kills=oom_kills, source=source)


def parse_membership(text: str) -> dict[str, str]:
    """Read ``/proc/PID/cgroup``: controller to path; the v2 hierarchy is under ``""``."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def parse_mounts(text: str) -> dict[str, tuple[str, str]]:
    """Read ``/proc/self/mountinfo``: controller to (root, mount point); v2 is under ``""``."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in {"cgroup", "cgroup2"}:
            continue
        names = [UNIFIED] if kind[0] == "cgroup2" else kind[2].split(",")
        for name in names:
            found.setdefault(name, (_unescape(fields[3]), _unescape(fields[4])))
    return found


def parse_counts(text: str) -> dict[str, int]:
    """Read a file of "name number" lines, as memory.events and memory.oom_control are."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _unescape(word: str) -> str:
    """Undo the octal escapes of mountinfo."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(escape, character)
    return word


class ContainerCgroups:
    """Where one container's groups are; every path is checked to be the container's own."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self.paths = dict(paths)

    @classmethod
    def of(cls, pid: int, container_id: str, *, proc: Path = Path("/proc")) -> ContainerCgroups:
        """Find the groups of the container whose init has host pid ``pid``.

        Raises:
            EngineFailure: the process is gone, or is not in a group of that container.
        """
        try:
            membership = parse_membership((proc / str(pid) / "cgroup").read_text())
            mounts = parse_mounts((proc / "self" / "mountinfo").read_text())
        except OSError as error:
            raise EngineFailure(f"cannot find the cgroup of process {pid}: {error}") from error
        paths = {}
        for controller, (root, mount_point) in mounts.items():
            path = membership.get(controller, "")
            if container_id not in path:
                continue
            below = path.removeprefix(root.rstrip("/")).lstrip("/")
            place = Path(mount_point) / below
            if (place / "cgroup.procs").exists():
                paths[controller] = place
        if not paths:
            raise EngineFailure(f"process {pid} is not in a cgroup of container {container_id}")
        return cls(paths)

    def tracking_root(self, hierarchy: Hierarchy | None = None) -> tuple[Hierarchy, Path] | None:
        """Choose the hierarchy in which commands can be grouped and killed.

        The unified one where it can kill at once (Linux 5.14), else the v1 freezer.
        """
        unified, freezer = self.paths.get(UNIFIED), self.paths.get("freezer")
        if hierarchy != "freezer" and unified and (unified / "cgroup.kill").exists():
            return "unified", unified
        if hierarchy != "unified" and freezer:
            return "freezer", freezer
        return None

    def members(self) -> frozenset[int]:
        """List the host pids of all processes in the container.

        Its own group is read first: a process is moved from there to one below, never back.
        """
        root = next(iter(self.paths.values()))
        own = pids_in(root)
        return frozenset([*own, *(pid for place in _below(root) for pid in pids_in(place))])

    def are_frozen(self) -> bool:
        """Tell whether the container's processes are stopped, as those of a paused one are."""
        state = _read(self.paths.get("freezer"), "freezer.state") or "THAWED"
        return (
            state.strip() != "THAWED"
            or _count(self.paths.get(UNIFIED), "cgroup.events", "frozen") == 1
        )

    def use(self) -> ResourceUse:
        """Read what the container has used so far."""
        memory, unified = self.paths.get("memory"), self.paths.get(UNIFIED)
        if memory:
            cpu = _number(self.paths.get("cpuacct"), "cpuacct.usage")
            return measured(
                source="cgroup-v1",
                cpu_s=None if cpu is None else cpu / 1e9,
                memory_peak_bytes=_number(memory, "memory.max_usage_in_bytes"),
                oom_kills=_count(memory, "memory.oom_control", "oom_kill"),
            )
        spent = _count(unified, "cpu.stat", "usage_usec")
        return measured(
            source="cgroup-v2",
            cpu_s=None if spent is None else spent / 1e6,
            memory_peak_bytes=_number(unified, "memory.peak"),
            oom_kills=_count(unified, "memory.events", "oom_kill"),
        )


def pids_in(place: Path) -> list[int]:
    """List the host pids in exactly this group; none when it is gone."""
    try:
        with open(f"{place}/cgroup.procs", "rb", buffering=0) as file:  # noqa: PTH123 - asked often
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def kill_group(hierarchy: Hierarchy, place: Path) -> bool:
    """Kill all processes in a group and wait until it is empty; False when that fails.

    Frozen processes of the v1 freezer do not die, so they are frozen only when killing alone
    loses against forking, and are thawed whatever happens.
    """
    if hierarchy == "unified":
        with contextlib.suppress(OSError):
            (place / "cgroup.kill").write_text("1")
    else:
        for _ in range(KILL_PASSES):
            if not _signal_all(place):
                return True
            time.sleep(0.002)
        _kill_frozen(place)
    return _becomes_empty(place)


def _kill_frozen(place: Path) -> None:
    state = place / "freezer.state"
    try:
        state.write_text("FROZEN")
        deadline = time.monotonic() + 1.0
        while state.read_text().strip() != "FROZEN" and time.monotonic() < deadline:
            time.sleep(0.001)
        _signal_all(place)
    except FileNotFoundError:
        return
    finally:
        with contextlib.suppress(FileNotFoundError):
            state.write_text("THAWED")


def _becomes_empty(place: Path) -> bool:
    deadline = time.monotonic() + KILL_DEADLINE_S
    while pids_in(place):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def _signal_all(place: Path) -> int:
    """Send SIGKILL to the members; tell how many there were."""
    members = pids_in(place)
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)  # the pid cannot come to mean another process after this
            try:
                if pid in pids_in(place):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)
    return len(members)


def move(pid: int, place: Path) -> bool:
    """Move a process with its future children into a group; False when it is gone."""
    try:
        (place / "cgroup.procs").write_text(str(pid))
    except ProcessLookupError:
        return False
    return True


def remove_group(place: Path) -> bool:
    """Remove a group if it is empty; True when it is gone afterwards."""
    try:
        place.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _below(place: Path) -> list[Path]:
    return [Path(root) / name for root, names, _ in os.walk(place) for name in names]


def _number(place: Path | None, name: str) -> int | None:
    text = _read(place, name)
    return int(text) if text is not None and text.strip().isdecimal() else None


def _count(place: Path | None, name: str, key: str) -> int | None:
    text = _read(place, name)
    return None if text is None else parse_counts(text).get(key)


def _read(place: Path | None, name: str) -> str | None:
    if place is None:
        return None
    try:
        return (place / name).read_text()
    except OSError:
        return None
