"""What the doctor looks at on an engine that answers."""

from __future__ import annotations

import shutil
import time
from datetime import datetime
from pathlib import Path

from sandbox.engine.cgroup import UNIFIED, parse_mounts
from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.engine.finding import Finding
from sandbox.engine.guarantees import guarantees
from sandbox.engine.link import NOTICES, choose_isolation
from sandbox.errors import ExitCode

GIB = 1 << 30
DISK_GIB = 3.0
MAX_SKEW_S = 2.0
_ROOT_CURE = "run as root on the engine's own host"


def engine_answers(engine: Engine) -> Finding:
    """Say which engine answers."""
    info = engine.info
    return Finding(
        name="engine",
        ok=True,
        detail=f"{info.product} {info.version} at {info.host}: API {info.api_version}, "
        f"cgroup v{info.cgroup_version} ({info.cgroup_driver}), {info.storage_driver}",
    )


def model_link(engine: Engine) -> Finding:
    """Say which isolation sandboxes will have."""
    name = "model link"
    isolation = choose_isolation(engine)
    if isolation == "namespace":
        return Finding(name=name, ok=True, detail="namespace: sandboxes have no network at all")
    cure = f"{_ROOT_CURE}, which gives the isolation 'namespace'"
    return Finding(name=name, ok=None, detail=NOTICES[isolation], cure=cure)


def promises(engine: Engine) -> list[Finding]:
    """Say of each promise about sandboxes whether it holds on this engine."""
    words = {True: "holds", False: "does not hold", None: "not known"}
    return [
        Finding(
            name=f"guarantee {one.name!r}",
            ok=one.holds or None,
            detail=f"{words[one.holds]}: {one.reason}",
            cure=one.cure,
        )
        for one in guarantees(engine.info, choose_isolation(engine))
    ]


def init_program(engine: Engine) -> Finding:
    """Say whether the engine has the init program that every sandbox starts with."""
    name = "init"
    with engine_errors("ask the engine about its init program"):
        said = engine.sdk.api.info()
    program = str(said.get("InitBinary") or "")
    version = str((said.get("InitCommit") or {}).get("ID") or "")
    if version == "N/A":  # what the engine says when it could not run it
        return Finding(
            name=name,
            ok=False,
            detail=f"the engine cannot run its init program {program}",
            cure="install it where the engine runs: docker-init of package docker.io, or tini",
            exit_code=ExitCode.PREREQUISITE,
        )
    return Finding(
        name=name, ok=True, detail=" ".join(filter(None, [program or "built in", version]))
    )


def disk(engine: Engine) -> Finding:
    """Say whether the engine's own disk has room for images and sandboxes."""
    name = "engine disk"
    root = Path(engine.info.root_dir)
    if not engine.info.is_local or not root.is_dir():
        detail = f"{root} is not on a disk that can be seen from here"
        return Finding(
            name=name, ok=None, detail=detail, cure=f"see there that {DISK_GIB:.0f} GiB are free"
        )
    free = shutil.disk_usage(root).free / GIB
    if free < DISK_GIB:
        return Finding(
            name=name,
            ok=False,
            detail=f"the engine's {root} has {free:.1f} GiB free and wants {DISK_GIB:.1f} GiB",
            cure="free space there: docker system df says what takes it",
            exit_code=ExitCode.PREREQUISITE,
        )
    return Finding(name=name, ok=True, detail=f"{root} has {free:.1f} GiB free")


def control_groups(engine: Engine, *, mountinfo: Path = Path("/proc/self/mountinfo")) -> Finding:
    """Say whether the kernel's counts (out of memory, processor time) can be read for sandboxes."""
    name = "control groups"
    if not engine.info.can_enter_namespaces:
        detail = "read inside of sandboxes only: a task can end before its counts are read"
        return Finding(name=name, ok=None, detail=detail, cure=_ROOT_CURE)
    mounts = parse_mounts(mountinfo.read_text(encoding="utf-8"))
    version = engine.info.cgroup_version
    wanted = ["memory", "freezer"] if version == 1 else [UNIFIED]
    missing = [controller or "cgroup2" for controller in wanted if controller not in mounts]
    if missing:
        return Finding(
            name=name,
            ok=False,
            detail=f"of the engine's cgroup v{version}, {', '.join(missing)} is not mounted here",
            cure="run where /sys/fs/cgroup is the host's own, or mount it",
            exit_code=ExitCode.ERROR,
        )
    return Finding(name=name, ok=True, detail=f"cgroup v{version}, readable from the host")


def clock(engine: Engine) -> Finding:
    """Say whether the engine's clock is this machine's, since times of both meet in a report."""
    name = "clock"
    with engine_errors("ask the engine for its time"):
        asked = time.time()
        said = str(engine.sdk.api.info().get("SystemTime") or "")
        answered = time.time()
    if not said:
        return Finding(
            name=name, ok=None, detail="the engine does not tell its time", cure=_ROOT_CURE
        )
    there = datetime.fromisoformat(said).timestamp()
    skew = max(asked - there, there - answered, 0.0)
    if skew > MAX_SKEW_S:
        return Finding(
            name=name,
            ok=False,
            detail=f"the engine's clock is {skew:.1f} s away from this machine's",
            cure="set both clocks, for example with NTP",
            exit_code=ExitCode.ERROR,
        )
    return Finding(name=name, ok=True, detail=f"within {MAX_SKEW_S:.0f} s of the engine's")
