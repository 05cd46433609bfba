"""Ownership: labels that say which process a container, network or volume belongs to.

Everything the project makes on an engine carries these labels from its first moment on, so that
whatever a killed run left behind can be told from what a living run uses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

PROJECT = "sandbox"
PREFIX = "sandbox."
PROJECT_LABEL = f"{PREFIX}project"
PROJECT_FILTER = f"{PROJECT_LABEL}={PROJECT}"
PF_EXITING = 0x4  # include/linux/sched.h; the flags are the ninth field of proc(5)'s stat


class Ownership(BaseModel):
    """Who made a thing: run, cell and the process that looks after it.

    A pid alone does not name a process: it is reused, it means another process in another pid
    namespace, on another boot and on another machine. All of these are recorded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str = PROJECT
    run_id: str
    cell_id: str
    pid: int
    pid_started: int
    pid_namespace: str
    boot_id: str
    machine: str

    @classmethod
    def current(cls, *, run_id: str, cell_id: str = "") -> Self:
        """Describe this process as the owner of what it makes for ``run_id``, ``cell_id``."""
        pid = os.getpid()
        return cls(
            run_id=run_id,
            cell_id=cell_id,
            pid=pid,
            pid_started=start_ticks(pid) or 0,
            pid_namespace=pid_namespace(),
            boot_id=boot_id(),
            machine=machine(),
        )

    def labels(self) -> dict[str, str]:
        """Give the labels to put on a container, network or volume."""
        return {f"{PREFIX}{name}": str(value) for name, value in self.model_dump().items()}

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Self | None:
        """Read ``labels`` back; None when they are not a complete set of ours."""
        fields = {name: labels.get(f"{PREFIX}{name}") for name in cls.model_fields}
        try:
            return cls.model_validate(fields)
        except ValidationError:
            return None


def owner_is_alive(labels: Mapping[str, str], *, proc: Path = Path("/proc")) -> bool:
    """Tell whether the owner named by ``labels`` may still live.

    False only with proof: same machine, and another boot; or same boot and pid namespace, and no
    process of that pid and start time. Where it cannot be told (incomplete labels, another
    machine, another pid namespace) the answer is True, since a living run's things must stay.
    """
    owner = Ownership.from_labels(labels)
    if owner is None or owner.machine != machine():
        return True
    if owner.boot_id != boot_id():
        return False
    if owner.pid_namespace != pid_namespace():
        return True
    return start_ticks(owner.pid, proc=proc) == owner.pid_started


def start_ticks(pid: int, *, proc: Path = Path("/proc")) -> int | None:
    """Give the start time of process ``pid`` in kernel ticks since boot; None when it is gone.

    A zombie counts as gone: it holds nothing and does nothing.
    """
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - asked often
            text = file.read()
    except OSError:
        return None
    fields = text.rpartition(b")")[2].split()  # proc(5): the name may hold blanks and brackets
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_ending(pid: int, *, proc: Path = Path("/proc")) -> bool:
    """Tell whether process ``pid`` has ended or is about to: the kernel began to end it.

    Of a container's init that is so before the kernel kills the container's other processes.
    """
    try:
        text = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return True
    fields = text.rpartition(b")")[2].split()
    return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & PF_EXITING)


def boot_id() -> str:
    """Name this boot of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """Name the pid namespace in which our pids mean something."""
    return str(Path("/proc/self/ns/pid").readlink())


def machine() -> str:
    """Name this machine: its machine id, or its host name where it has none."""
    try:
        name = Path("/etc/machine-id").read_text().strip()
    except OSError:
        name = ""
    return name or os.uname().nodename
