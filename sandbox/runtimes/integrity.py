"""Hashes as registries write them, and files measured against them.

Two notations: npm's SRI (``sha512-<base64>``, https://www.w3.org/TR/SRI/) and pip's
``sha256:<hex>``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from sandbox.errors import IntegrityError

_LENGTH = {"sha512": 64, "sha384": 48, "sha256": 32}  # strongest first; nothing weaker is accepted
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Integrity:
    """A hash that bytes must have; ``text`` is the notation it came in."""

    algorithm: str
    hexdigest: str
    text: str

    @classmethod
    def parse(cls, text: str) -> Integrity:
        """Read either notation; of several SRI hashes the strongest counts.

        Raises:
            ValueError: none of them is sha256, sha384 or sha512 of the right length.
        """
        found = [parsed for word in text.split() if (parsed := _parse_one(word))]
        for algorithm in _LENGTH:
            for one in found:
                if one.algorithm == algorithm:
                    return one
        raise ValueError(f"not a sha256, sha384 or sha512 hash: {text!r}")

    @classmethod
    def of_sha256(cls, hexdigest: str) -> Integrity:
        """Give the integrity of bytes by their sha256."""
        return cls.parse(f"sha256:{hexdigest}")


def _parse_one(text: str) -> Integrity | None:
    match = re.fullmatch(r"(sha\d+)(?:-([A-Za-z0-9+/]+={0,2})(?:\?\S*)?|:([0-9a-f]+))", text)
    if not match or match[1] not in _LENGTH:
        return None
    try:
        raw = base64.b64decode(match[2], validate=True) if match[2] else bytes.fromhex(match[3])
    except (binascii.Error, ValueError):
        return None
    if len(raw) != _LENGTH[match[1]]:
        return None
    return Integrity(match[1], raw.hex(), text)


def _checked(text: str) -> str:
    Integrity.parse(text)
    return text


IntegrityText = Annotated[str, AfterValidator(_checked)]


def hash_file(path: Path, algorithm: str, seen: Callable[[int], None] | None = None) -> str:
    """Return the hex digest of a file in blocks of 1 MiB; ``seen`` is told the bytes of each."""
    digest = hashlib.new(algorithm)
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            if seen:
                seen(len(block))
    return digest.hexdigest()


def verify_file(path: Path, integrity: Integrity, *, size: int | None, what: str) -> None:
    """Raise ``IntegrityError`` unless ``path`` has that size (bytes) and hash."""
    actual = path.stat().st_size
    if size is not None and actual != size:
        raise IntegrityError(
            f"{what}: {actual} bytes where {size} are pinned ({path})", cure=_SUSPECT
        )
    found = hash_file(path, integrity.algorithm)
    if found != integrity.hexdigest:
        raise IntegrityError(
            f"{what}: {integrity.algorithm} is {found}, pinned is {integrity.hexdigest} ({path})",
            cure=_SUSPECT,
        )


_SUSPECT = (
    "nothing of it was used; if the pin is meant to change run `sandbox pins lock`, "
    "otherwise suspect the mirror, the proxy or the disk"
)
