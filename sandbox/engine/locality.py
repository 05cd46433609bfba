"""Whether an engine's containers are processes of this machine, told by evidence.

An address says nothing: a Unix socket may lead to a virtual machine or through a tunnel to
another machine, and a TCP port of loopback may be this machine's own engine or a tunnel. What
counts is what this process can see of the engine: a process of a container it names, or a folder
that it just made.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker.errors

from sandbox.engine.owner import PROJECT, Ownership, pid_namespace
from sandbox.errors import PrerequisiteMissing

INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in include/linux/proc_ns.h
_ENGINES = frozenset({"dockerd", "podman", "systemd", "init"})  # the last two: socket activation
_LOOKS = 3


def peer_of(place: str, timeout_s: float, *, cure: str) -> int:
    """Give the pid of who listens at a Unix socket; 0 when it is none of ours to see.

    Raises:
        PrerequisiteMissing: nobody listens there, or this process may not talk to it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(timeout_s)
        try:
            peer.connect("/" + place.removeprefix("unix://").lstrip("/"))
        except OSError as error:
            denied = isinstance(error, PermissionError)
            raise PrerequisiteMissing(
                f"no Docker engine answers at {place}: {error}",
                cure="run as root or join the docker group" if denied else cure,
            ) from error
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def is_here(api: Any, *, kernel: str, peer: int | None, proc: Path = Path("/proc")) -> bool:
    """Tell whether the engine behind ``api`` runs its containers on this machine, for us to see.

    Args:
        api: the SDK's low-level client.
        kernel: the release of the kernel that the engine says it runs on.
        peer: who listens at its Unix socket, 0 when that process cannot be seen from here (this
            process is in a container); None: it is reached in another way.
        proc: this machine's processes.

    Raises what the SDK raises.
    """
    if kernel != os.uname().release or peer == 0:
        return False
    if peer is not None:
        name = _name(proc / str(peer))
        if name is None or name in _ENGINES:
            return name is not None
    return _shows_a_process(api, proc) or _shows_a_folder(api)


def _name(process: Path) -> str | None:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return None


def _shows_a_process(api: Any, proc: Path) -> bool:
    """Whether the first process of a running container is one of ours: its cgroup names it."""
    for row in api.containers()[:_LOOKS]:
        with suppress(docker.errors.NotFound, OSError):
            pid = api.inspect_container(row["Id"])["State"]["Pid"]
            if pid and row["Id"] in (proc / str(pid) / "cgroup").read_text():
                return True
    return False


def _shows_a_folder(api: Any) -> bool:
    """Whether a volume made just now, with a name that nobody can guess, is a folder here.

    Its engine then has this machine's files, and its kernel is ours; its processes can be seen
    where all of the kernel's can.
    """
    if pid_namespace() != INITIAL_PID_NAMESPACE or os.geteuid() != 0:
        return False
    name = f"{PROJECT}-here-{secrets.token_hex(16)}"
    owner = Ownership.current(run_id="locality")
    made = api.create_volume(name, labels=owner.labels())
    try:
        point = str(made.get("Mountpoint") or "")
        return name in point and Path(point).is_dir()
    finally:
        api.remove_volume(name, force=True)
