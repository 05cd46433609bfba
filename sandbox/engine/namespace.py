"""Make sockets inside a container's network namespace from the host's process.

A socket stays for life in the network namespace its creator was in when it was made
(network_namespaces(7)), and setns(2) moves one thread only. So a short-lived thread enters the
namespace, makes the sockets and ends; the process serves them like any others. Nothing is needed
in the image, no bridge and no forwarder.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from sandbox.errors import ContainerGone, Unsupported

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_BACKLOG = 128

T = TypeVar("T")


def open_network(pid: int, container_id: str) -> int:
    """Open the network namespace of container ``container_id``, whose first process is ``pid``.

    The engine's word for ``pid`` may be out of date: the container may have ended and the kernel
    may have given its number to another process. A pidfd pins the process while its namespace and
    its control group are read, and the control group's path carries the container's id.

    Returns:
        A file descriptor that the caller closes.

    Raises:
        ContainerGone: the container has ended.
        Unsupported: ``pid`` is no process of the container here (the engine runs in a virtual
            machine, or this process in a container of its own), or it may not be looked at.
    """
    with ExitStack() as stack:
        try:
            process = os.pidfd_open(pid)
            stack.callback(os.close, process)
            network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            cleanup = stack.enter_context(ExitStack())
            cleanup.callback(os.close, network)
            groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
        except (ProcessLookupError, FileNotFoundError) as error:
            raise _gone(container_id) from error
        except PermissionError as error:
            raise _not_ours(container_id, f"process {pid} may not be inspected") from error
        if _has_ended(process):
            raise _gone(container_id)
        if container_id not in groups:
            raise _not_ours(container_id, f"process {pid} of this host is not the container's")
        cleanup.pop_all()
    return network


def inside(network: int, make: Callable[[], T]) -> T:
    """Call ``make`` in a fresh thread that has entered the namespace ``network``; the thread ends.

    Raises:
        Unsupported: this process may not enter network namespaces.
    """

    def enter_and_make() -> T:
        try:
            _setns(network)
        except PermissionError as error:
            raise Unsupported(
                "this process may not enter network namespaces",
                cure="run as root, or choose the isolation 'bridge' or 'relay'",
            ) from error
        return make()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="netns") as thread:
        return thread.submit(enter_and_make).result()


def bound(address: tuple[str, int], kind: socket.SocketKind) -> socket.socket:
    """Return an IPv4 socket of ``kind`` bound to ``address``; a stream socket listens already."""
    made = socket.socket(socket.AF_INET, kind)
    try:
        made.bind(address)
        if kind == socket.SOCK_STREAM:
            made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _setns(network: int) -> None:
    if sys.version_info >= (3, 12):
        os.setns(network, _CLONE_NEWNET)
    else:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(network, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _has_ended(pidfd: int) -> bool:
    """Tell whether the process has ended: its pidfd is readable from then on (pidfd_open(2))."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _gone(container_id: str) -> ContainerGone:
    return ContainerGone(f"container {container_id[:12]} has ended: it has no network any more")


def _not_ours(container_id: str, reason: str) -> Unsupported:
    return Unsupported(
        f"cannot enter the network namespace of container {container_id[:12]}: {reason}",
        cure="run as root on the engine's own host, or choose the isolation 'bridge' or 'relay'",
    )
