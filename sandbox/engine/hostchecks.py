"""What the doctor looks at on this machine."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox.cache import writable
from sandbox.engine.apt import Apt
from sandbox.engine.client import Engine
from sandbox.engine.finding import Finding
from sandbox.engine.host import INSTALL_CURE
from sandbox.engine.hostcommands import HostCommands
from sandbox.engine.imagebuild.definition import BootstrapRecipe
from sandbox.engine.images import image_definitions, list_images
from sandbox.errors import CacheUnusable, ExitCode

GIB = 1 << 30
WANTED_GIB = 6.0
LEAST_GIB = 1.0
CACHE_CURE = "free space there, or point XDG_CACHE_HOME at a folder with space that you own"


def engine_step(engine: Engine | None, commands: HostCommands) -> Finding:
    """Say whether an engine could be installed and started here, if none answers."""
    name = "engine step"
    if engine is not None:
        return Finding(name=name, ok=True, detail="not needed: an engine answers")
    installed = commands.which("dockerd") is not None
    if commands.is_root() and (installed or Apt(commands).usable()):
        how = "started" if installed else "installed with apt and started"
        return Finding(
            name=name,
            ok=True,
            detail=f"an engine can be {how} here: sandbox prepare --ensure-engine",
        )
    return Finding(
        name=name,
        ok=False,
        detail="no engine can be started here: that takes root, and dockerd or apt-get",
        cure=INSTALL_CURE,
        exit_code=ExitCode.PREREQUISITE,
    )


def free_space(folder: Path) -> int:
    """Return the free octets on the disk of ``folder``."""
    return shutil.disk_usage(folder).free


def cache_space(cache: Path, *, space: Callable[[Path], int] = free_space) -> Finding:
    """Say whether the cache can be written and holds, or has room for, all that a run needs."""
    with writable(cache):
        cache.mkdir(parents=True, exist_ok=True)
        probe = cache / f".doctor-{uuid.uuid4().hex}"
        try:
            probe.write_bytes(b"x" * 4096)
        finally:
            probe.unlink(missing_ok=True)
    free = space(cache) / GIB
    wanted = max(LEAST_GIB, WANTED_GIB - _size(cache) / GIB)
    if free < wanted:
        raise CacheUnusable(
            f"the cache below {cache} has {free:.1f} GiB free and wants {wanted:.1f} GiB",
            cure=CACHE_CURE,
        )
    return Finding(name="cache", ok=True, detail=f"{cache} has {free:.1f} GiB free")


def _size(folder: Path) -> int:
    """Return the octets on disk below ``folder``; what vanishes meanwhile does not count."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(root) / name).lstat().st_blocks * 512
    return total


def images_to_build(engine: Engine | None) -> tuple[str, ...]:
    """Name the default images that mmdebstrap makes and that are neither loaded nor cached."""
    absent = {item.name for item in list_images(engine) if item.state == "absent"}
    return tuple(
        name
        for name, definition in image_definitions().items()
        if name in absent and definition.default and isinstance(definition.recipe, BootstrapRecipe)
    )


def image_tools(
    engine: Engine | None,
    commands: HostCommands,
    to_build: Callable[[Engine | None], Sequence[str]],
) -> Finding:
    """Say whether mmdebstrap is there, can be installed, or is not needed."""
    name = "image tools"
    found = commands.which("mmdebstrap")
    if found is not None:
        return Finding(name=name, ok=True, detail=f"mmdebstrap is {found}")
    if Apt(commands).usable():
        return Finding(name=name, ok=True, detail="mmdebstrap can be installed with apt")
    waiting = to_build(engine)
    if not waiting:
        return Finding(name=name, ok=True, detail="not needed: every Debian image is there")
    return Finding(
        name=name,
        ok=False,
        detail=f"mmdebstrap is missing, and {', '.join(waiting)} must be made with it",
        cure="as root: apt-get install mmdebstrap",
        exit_code=ExitCode.PREREQUISITE,
    )
