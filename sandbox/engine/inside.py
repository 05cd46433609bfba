"""How one running container is looked into and tracked: chosen once, by what is possible here."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.engine.cgroup import ContainerCgroups
from sandbox.engine.client import EngineInfo
from sandbox.engine.observer import HostObserver, Observer, ProbeObserver
from sandbox.engine.place import HostLocator, Locator, ProbeLocator
from sandbox.engine.scan import RunScript, ScanTracker
from sandbox.engine.tracker import CgroupTracker, SandboxTracker, Tracker
from sandbox.errors import EngineFailure, Unsupported

KEEPER_TIMEOUT_S = 10.0
Tracking = Literal["auto", "cgroup", "freezer", "scan", "sandbox"]


@dataclass(frozen=True, kw_only=True)
class Inside:
    """The means to look into one container and to end commands in it.

    ``tracker`` is for the task's commands, ``helper_tracker`` for the room's own: they end in
    time, or the sandbox cannot be used any more.
    """

    observer: Observer
    locator: Locator
    tracker: Tracker
    helper_tracker: Tracker


def choose(
    info: EngineInfo,
    container_id: str,
    *,
    pid: Callable[[], int],
    run_script: RunScript,
    tracking: Tracking = "auto",
) -> Inside:
    """Choose the surest means that work for this engine and container.

    Args:
        info: what the engine is.
        container_id: the container.
        pid: asks the engine for the host pid of the container's init.
        run_script: runs one of our scripts in the container.
        tracking: "auto"; "cgroup" or "freezer" for a control group of the unified or the v1
            freezer hierarchy; "scan" to use nothing of the host's kernel, as for a remote
            engine; "sandbox" to end the sandbox with a command.

    Raises:
        Unsupported: ``tracking`` was asked for and is not possible here.
    """
    found = _cgroups(info, container_id, pid) if tracking != "scan" else None
    if found is None:
        if tracking in {"cgroup", "freezer"}:
            raise Unsupported(
                f"the control groups of this engine ({info.host}) cannot be used from here",
                cure="run as root on the engine's own host, or let tracking be auto",
            )
        return _through_probes(run_script, tracking)
    init, cgroups = found
    tracker = SandboxTracker() if tracking == "sandbox" else _tracker(cgroups, tracking)
    if tracker is None:
        return _through_probes(run_script, tracking)
    return Inside(
        observer=HostObserver(cgroups),
        locator=HostLocator(init),
        tracker=tracker,
        helper_tracker=tracker,
    )


def await_keeper(count: Callable[[], int], timeout_s: float = KEEPER_TIMEOUT_S) -> None:
    """Wait until the container's init has started the keeper.

    The engine says "started" when init runs. Until the keeper does too, it could pass for a
    process of the first command, and end with it.

    Args:
        count: tells how many processes there are; none when the container has ended.
        timeout_s: how long to wait.

    Raises:
        EngineFailure: there is still no keeper.
    """
    until = time.monotonic() + timeout_s
    while count() == 1:
        if time.monotonic() > until:
            raise EngineFailure(f"the sandbox's init starts nothing within {timeout_s} s")
        time.sleep(0.002)


def _through_probes(run_script: RunScript, tracking: Tracking) -> Inside:
    def locate(path: str) -> str:
        return run_script("locate", path, user="0")

    def probe() -> str:
        return run_script("probe", user="0")

    observer = ProbeObserver(probe)
    alone = SandboxTracker()
    tracker: Tracker = alone if tracking == "sandbox" else ScanTracker(observer, run_script)
    return Inside(
        observer=observer,
        locator=ProbeLocator(locate),
        tracker=tracker,
        helper_tracker=alone,
    )


def _cgroups(
    info: EngineInfo, container_id: str, pid: Callable[[], int]
) -> tuple[int, ContainerCgroups] | None:
    """Give the host pid of the container's init, and its control groups."""
    if not info.can_enter_namespaces:
        return None
    init = pid()
    try:
        cgroups = ContainerCgroups.of(init, container_id)
    except EngineFailure:
        return None
    await_keeper(lambda: len(cgroups.members()))
    return init, cgroups


def _tracker(cgroups: ContainerCgroups, tracking: Tracking) -> CgroupTracker | None:
    """Give a tracker of the hierarchy that was asked for, if groups can be made there."""
    wanted = {"cgroup": "unified", "freezer": "freezer"}.get(tracking)
    root = cgroups.tracking_root(wanted)  # type: ignore[arg-type]  # the two words it knows
    if root is None:
        if wanted is not None:
            raise Unsupported(f"this kernel has no {wanted} hierarchy for the container")
        return None
    try:
        Path(tempfile.mkdtemp(prefix="exec-", dir=root[1])).rmdir()  # others may try here too
    except OSError:
        return None
    return CgroupTracker(*root)
