"""Whether this kernel runs programs of another architecture, by an interpreter registered for them.

Source: Documentation/admin-guide/binfmt-misc.rst of the kernel. An entry's magic of an ELF program
ends with the machine's number; with the flag F its interpreter is opened when it is registered, so
that it works in containers, which have no such file.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.engine.client import EngineInfo
from sandbox.errors import PrerequisiteMissing

REGISTERED = Path("/proc/sys/fs/binfmt_misc")
_MACHINES = {"arm64": "b700", "x64": "3e00"}  # e_machine, little-endian, as elf(5) numbers them
_MAGIC_DIGITS = 40
_CURE = (
    "as root on the engine's host: apt-get install qemu-user-static, then register it: "
    "systemctl restart systemd-binfmt, or mount -t binfmt_misc binfmt_misc {folder} and "
    "cat /usr/lib/binfmt.d/qemu-{name}.conf >{folder}/register"
)
_QEMU = {"arm64": "aarch64", "x64": "x86_64"}


def interpreter_of(arch: str, *, folder: Path = REGISTERED) -> str:
    """Return the interpreter by which programs for ``arch`` run in containers of this machine.

    Raises:
        PrerequisiteMissing: there is none; the message says why, the cure how to get one.
    """
    cure = _CURE.format(folder=folder, name=_QEMU.get(arch, arch))
    if not (folder / "register").exists():
        raise _missing(arch, f"binfmt_misc is not mounted at {folder}", cure)
    reason = f"no interpreter is registered in {folder}"
    for entry in sorted(folder.iterdir()):
        if entry.name in {"register", "status"}:
            continue
        words = dict(
            line.replace(":", "").partition(" ")[::2] for line in entry.read_text().splitlines()
        )
        magic = words.get("magic", "")
        if not (magic.startswith("7f454c46") and magic[:_MAGIC_DIGITS].endswith(_MACHINES[arch])):
            continue
        if "enabled" not in words:
            reason = f"{entry.name} is registered and disabled"
        elif "F" not in words.get("flags", ""):
            reason = f"{entry.name} is registered without the flag F: images lack its interpreter"
        else:
            return words.get("interpreter", entry.name)
    raise _missing(arch, reason, cure)


def require_emulation(info: EngineInfo, arch: str, *, folder: Path = REGISTERED) -> None:
    """See that the engine's kernel runs programs for ``arch``.

    Raises:
        PrerequisiteMissing: it does not, or it is another machine's, where nobody here can tell.
    """
    if not info.is_local:
        reason = f"the engine at {info.host} is elsewhere, and what it emulates cannot be seen"
        raise _missing(arch, reason, f"use an engine on {arch}, or run on the engine's own host")
    interpreter_of(arch, folder=folder)


def _missing(arch: str, reason: str, cure: str) -> PrerequisiteMissing:
    return PrerequisiteMissing(
        f"emulation of {arch} is not available here: {reason}",
        cure=cure,
    )
