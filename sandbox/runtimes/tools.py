"""Pinned programs that this side runs, unpacked once into the store and found there by any job."""

from __future__ import annotations

import platform
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path

from sandbox.cache import locked, published
from sandbox.errors import PrerequisiteMissing
from sandbox.progress import Progress
from sandbox.runtimes.archive import members
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import LockedArtifact
from sandbox.runtimes.pins import Pins, ToolPin
from sandbox.runtimes.store import Store


def host_platform() -> str:
    """Return this machine's platform word, whether or not anything is pinned for it."""
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(platform.machine().lower())
    libc = "musl" if "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or "") else "gnu"
    return f"{platform.system().lower()}-{machine or platform.machine()}-{libc}"


def tool_for(pins: Pins, name: str, host: str) -> ToolPin:
    """Return the pin of tool ``name`` for this machine, or raise ``PrerequisiteMissing``."""
    for tool in pins.tool.get(name, ()):
        if tool.platform == host:
            return tool
    raise PrerequisiteMissing(
        f"this machine has no {name}, and none is pinned for {host}",
        cure=f"install {name} and put it on PATH",
    )


def tool_at_hand(tool: ToolPin, artifact: LockedArtifact, store: Store) -> bool:
    """Whether the tool is unpacked in the store already."""
    return (_folder(tool, artifact, store) / tool.program).is_file()


def ensure_tool(
    tool: ToolPin,
    artifact: LockedArtifact,
    *,
    store: Store,
    fetch: Callable[[LockedArtifact], Path],
    progress: Progress,
) -> tuple[str, ...]:
    """Return the argv that starts a tool, fetching and unpacking its artifact if need be.

    Args:
        tool: its pin.
        artifact: the lock entry of its artifact.
        store: where it is unpacked.
        fetch: gives the artifact's verified file.
        progress: told about it.
    """
    folder = _folder(tool, artifact, store)
    with locked(folder):
        if not folder.is_dir():
            what = f"{artifact.name} {artifact.version}"
            wheel = fetch(artifact)
            with progress.step(f"unpacking {what}"), published(folder) as fresh:
                _unpack(wheel, fresh, what, tool.within)
                (fresh / tool.program).chmod(0o755)
    program = str(folder / tool.program)
    return (program, str(folder / tool.script)) if tool.script else (program,)


def _folder(tool: ToolPin, artifact: LockedArtifact, store: Store) -> Path:
    return store.tool(Integrity.parse(artifact.integrity), tool.within)


def _unpack(archive: Path, folder: Path, what: str, within: str | None) -> None:
    with members(archive, what=what, within=within) as found:
        for member in found:
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.data is None:
                path.symlink_to(member.target or "")
                continue
            with path.open("wb") as out:
                shutil.copyfileobj(member.data, out, 1 << 20)
            path.chmod(0o755 if member.executable else 0o644)
