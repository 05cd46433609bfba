"""What an image is to the commands that run in it: libc, architecture, user, shell, tools."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict

from sandbox.errors import EngineFailure

Libc = Literal["glibc", "musl", "none"]
ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
LIBC_WORDS = {"glibc": "gnu", "musl": "musl"}
SHELLS = {"dash": "dash", "busybox": "ash", "bash": "bash"}
# The levels of the x86-64 psABI (3.1.1, table 3.1), each with what it adds, as Linux calls it in
# /proc/cpuinfo: pni is SSE3, abm is LZCNT; xsave stands for OSXSAVE.
CPU_LEVELS = {
    "x86-64": "cmov cx8 fpu fxsr mmx syscall sse sse2",
    "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
VERSION = re.compile(r"\b(\d+\.\d+(?:\.\d+)?)\b")


class Place(BaseModel):
    """A folder the sandbox's user can write to; ``executable`` unless mounted noexec."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    executable: bool


class ImageFacts(BaseModel):
    """Facts of an image as its user meets them in a sandbox.

    Attributes:
        libc: the C library the image's own sh runs on; for a static sh the one whose loader is
            there; "none" when there is no loader.
        libc_version: as "2.36" or "1.2.5"; None when the library does not say.
        loaders: all dynamic loaders found, whatever ``libc`` is.
        libraries: shared libraries in the folders that loaders search: the name that programs ask
            for to the name of the file behind it ("libstdc++.so.6" to "libstdc++.so.6.0.30").
        architecture: "x64", "arm64", or the kernel's word for another one.
        cpu: the level of the machine's x64 CPU ("x86-64-v3"); None where it is not known.
        platform: "linux-x64-gnu" and the like; None where ours has no word for it.
        user: the user's name; None when the user has none (a bare uid).
        home: HOME as the engine sets it for a command.
        passwd_home: the home folder in /etc/passwd; None without an entry.
        env: the environment that the image sets.
        sh: "dash", "ash", "bash", or the file name of another sh; "unknown" when hidden.
        tools: those known tools that are on PATH, with their paths.
        ca_file: the first usual file of CA certificates; None without one.
        distribution: as "debian 12"; None without an os-release file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    libc: Libc
    libc_version: str | None
    loaders: tuple[str, ...]
    libraries: Mapping[str, str]
    architecture: str
    cpu: str | None
    platform: str | None
    uid: int
    gid: int
    user: str | None
    home: str
    passwd_home: str | None
    workdir: str
    path: str
    env: Mapping[str, str]
    sh: str
    tools: Mapping[str, str]
    writable: tuple[Place, ...]
    ca_file: str | None
    distribution: str | None


def parse_facts(text: str, *, image_env: Mapping[str, str]) -> ImageFacts:
    """Read what facts.sh printed.

    Raises:
        EngineFailure: the text is not complete, or not what the script prints.
    """
    said: defaultdict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        if line[:1].isdecimal():
            said["mount"].append(_mount(line))
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise EngineFailure(f"the image's facts cannot be read: odd line {line!r:.200}")
        said[name].append(value)
    if said["end"] != ["1"] or not said["uid"] or not said["gid"]:
        raise EngineFailure(f"the image's facts are incomplete: {text[-200:]!r}")
    loaders = tuple(dict.fromkeys(said["loader"]))
    libc = _libc(said["mapped"], loaders)
    machine = _first(said["machine"]) or ""
    architecture = ARCHITECTURES.get(machine, machine or "unknown")
    return ImageFacts(
        libc=libc,
        libc_version=_libc_version(libc, said),
        loaders=loaders,
        libraries=_libraries(said["library"]),
        architecture=architecture,
        cpu=_cpu(said["cpu_flags"]) if architecture == "x64" else None,
        platform=_platform(architecture, libc),
        uid=int(said["uid"][0]),
        gid=int(said["gid"][0]),
        user=_first(said["user"]),
        home=_first(said["home"]) or "/",
        passwd_home=_first(said["passwd_home"]),
        workdir=_first(said["workdir"]) or "/",
        path=_first(said["path"]) or "",
        env=dict(image_env),
        sh=_shell(said),
        tools=dict(pair.split(" ", 1) for pair in said["tool"]),
        writable=_places(said["writable"], said["mount"]),
        ca_file=_first(said["ca_file"]),
        distribution=_distribution(said),
    )


def _mount(line: str) -> str:
    """Take options and place from a line of mountinfo (proc(5))."""
    words = line.split()
    return f"{words[5]} {words[4]}" if len(words) > 5 else ""


def _first(values: list[str]) -> str | None:
    return next((value for value in values if value), None)


def _libc(mapped: list[str], loaders: tuple[str, ...]) -> Libc:
    """Tell the family: by what sh has mapped, since both loaders may be installed."""
    for names in (mapped, loaders):
        glibc = any("ld-musl-" not in name for name in names)
        if glibc or names:
            return "glibc" if glibc else "musl"
    return "none"


def _libc_version(libc: Libc, said: Mapping[str, list[str]]) -> str | None:
    if libc == "musl":
        texts = said.get("musl_says", [])
    else:  # the last number: "ld.so (Debian GLIBC 2.36-9) stable release version 2.36."
        texts = [*said.get("getconf", []), *said.get("glibc_says", [])]
        texts = [text.rpartition("version")[2] for text in texts]
    found = (VERSION.search(text) for text in texts)
    return next((match[1] for match in found if match), None)


def _libraries(paths: list[str]) -> dict[str, str]:
    """Name each library once, by the first folder that has it, with its longest name there.

    Distributions keep "libx.so.1" as a link to "libx.so.1.2.3" beside it.
    """
    folders: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders[folder].add(name)
    found: dict[str, str] = {}
    for names in folders.values():
        for name in sorted(names):
            behind = max((n for n in names if n.startswith(f"{name}.")), key=len, default=name)
            found.setdefault(name, behind)
    return found


def _platform(architecture: str, libc: Libc) -> str | None:
    word = LIBC_WORDS.get(libc)
    if word is None or architecture not in ARCHITECTURES.values():
        return None
    return f"linux-{architecture}-{word}"


def _cpu(flags: list[str]) -> str | None:
    here = set((_first(flags) or "").split())
    found = None
    for level, added in CPU_LEVELS.items():
        if not here.issuperset(added.split()):
            break
        found = level
    return found


def _shell(said: Mapping[str, list[str]]) -> str:
    if said.get("sh_bash"):
        return "bash"
    name = PurePosixPath(_first(said.get("sh_exe", [])) or "").name
    return SHELLS.get(name, name) or "unknown"


def _places(writable: list[str], mounts: list[str]) -> tuple[Place, ...]:
    """Give the places that can be written; busybox's test -w does not see a read-only mount."""
    options = {}
    for mount in mounts:
        words, _, point = mount.partition(" ")
        options[point] = frozenset(words.split(","))
    found = {place: _under(place, options) for place in writable}
    return tuple(
        Place(path=place, executable="noexec" not in here)
        for place, here in found.items()
        if "ro" not in here
    )


def _under(place: str, options: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Give the options of the mount that ``place`` is on."""
    path = PurePosixPath(place)
    return next(
        (options[str(up)] for up in (path, *path.parents) if str(up) in options), frozenset()
    )


def _distribution(said: Mapping[str, list[str]]) -> str | None:
    words = [_first(said.get(name, [])) for name in ("os_ID", "os_VERSION_ID")]
    return " ".join(word.strip("\"'") for word in words if word) or None
