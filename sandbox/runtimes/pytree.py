"""Wheels of a whole Python tree: the tags that a platform takes, and what a wheel says of itself.

pip does not widen tags: one that is not spelled out is not taken. Tags follow PEP 600 (manylinux)
and PEP 656 (musllinux), each naming the oldest libc that the wheel runs on.
"""

from __future__ import annotations

import email
import zipfile
from collections.abc import Sequence
from email.message import Message
from pathlib import Path

from sandbox.errors import IntegrityError
from sandbox.runtimes.integrity import Integrity, hash_file
from sandbox.runtimes.lock import LockedPackage
from sandbox.runtimes.words import Platform

_TAGS = {
    "gnu": [f"manylinux{word}" for word in
            ("_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "2014", "_2_12", "2010", "_2_5", "1")],
    "musl": [f"musllinux{word}" for word in ("_1_2", "_1_1", "_1_0")],
}  # fmt: skip
_MACHINE = {"x64": "x86_64", "arm64": "aarch64"}
_SPDX = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}


def platform_tags(platform: Platform) -> tuple[str, ...]:
    """Return pip's tags for a platform, the newest first."""
    _, cpu, libc = platform.split("-")
    return tuple(f"{family}_{_MACHINE[cpu]}" for family in _TAGS[libc])


def described_wheel(path: Path, platforms: Sequence[Platform]) -> LockedPackage:
    """Return the lock entry of a wheel, hashed and read.

    Raises:
        IntegrityError: it is no wheel.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
            said = email.message_from_bytes(wheel.read(name))
    except (zipfile.BadZipFile, StopIteration, KeyError) as error:
        raise IntegrityError(f"{path.name} is no wheel", cure="suspect the index") from error
    integrity = Integrity.of_sha256(hash_file(path, "sha256"))
    return LockedPackage(
        client="pip",
        name=str(said["Name"]),
        version=str(said["Version"]),
        tag=path.stem.rpartition("-")[2],
        file=path.name,
        size=path.stat().st_size,
        integrity=integrity.text,
        licence=_licence(said),
        platforms=tuple(sorted(platforms)),
    )


def _licence(said: Message) -> str:
    if expression := said.get("License-Expression"):
        return str(expression)
    classifiers = [str(value) for value in said.get_all("Classifier", [])]
    words = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License :: ")]
    if words:
        return " AND ".join(sorted({_SPDX.get(word, word) for word in words}))
    text = str(said.get("License", "")).strip()
    return text if text and len(text) < 40 and "\n" not in text else "LicenseRef-unknown"
