"""The content-addressed folder of artifacts and bundles below the cache root.

``artifacts/<algorithm>-<hex>`` and ``bundles/<sha256>.tar``; beside them ``trees/<sha256>``, which
are bundles unpacked (``unpacked.py``). A file is used only after its hash was found right. The
proof is kept beside it (``.ok``: device, inode, size, mtime and ctime in ns): the kernel sets ctime
at every write, rename and change of times, and no call sets it back, so a file with the same
figures still has the bytes that were hashed. Decay of the disk below the kernel is seen by
``verify``, which always hashes, and by the installer, which hashes a bundle that it unpacks again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from sandbox.cache import cache_root, writable
from sandbox.errors import IntegrityError
from sandbox.runtimes.integrity import Integrity, verify_file


@dataclass(frozen=True)
class Store:
    """A store folder; it is made when first written to."""

    root: Path

    @classmethod
    def default(cls) -> Store:
        """Return the store below the cache root."""
        return cls(cache_root() / "runtimes")

    def artifact(self, integrity: Integrity) -> Path:
        """Return where the artifact with that hash lies, whether it is there or not."""
        return self.root / "artifacts" / f"{integrity.algorithm}-{integrity.hexdigest}"

    def bundle(self, sha256: str) -> Path:
        """Return where the bundle with that hash lies, whether it is there or not."""
        return self.root / "bundles" / f"{sha256}.tar"

    def tree(self, sha256: str) -> Path:
        """Return where the bundle with that hash is unpacked, whether it is or not."""
        return self.root / "trees" / sha256

    def proofs(self) -> Path:
        """Return the folder of proofs that a program said its version (``proofs.py``)."""
        return self.root / "proofs"

    def tool(self, integrity: Integrity, within: str | None = None) -> Path:
        """Return the folder into which a tool's artifact, or an archive in it, is unpacked."""
        part = f"-{hashlib.sha256(within.encode()).hexdigest()[:8]}" if within else ""
        return self.root / "tools" / f"{integrity.algorithm}-{integrity.hexdigest[:32]}{part}"

    def holds(
        self, path: Path, integrity: Integrity, *, size: int | None, rehash: bool = False
    ) -> bool:
        """Whether the file is there with exactly the pinned bytes.

        Args:
            path: the file.
            integrity: the hash it must have.
            size: its size in bytes; None when only the hash is known.
            rehash: hash it even if the kept proof is still good.

        Raises:
            IntegrityError: it is there, with other bytes.
        """
        proof = proof_path(path)
        if not path.is_file():
            return False
        if not rehash and _kept(proof) == _figures(path, integrity):
            return True
        before = _figures(path, integrity)
        with writable(path):
            proof.unlink(missing_ok=True)
            verify_file(path, integrity, size=size, what="a cached file")
            proof.write_text(json.dumps(before), "utf-8")
        return True

    def holds_or_drops(self, path: Path, integrity: Integrity, *, size: int | None) -> str | None:
        """Like ``holds``, but a corrupt file is removed; return what was wrong, if anything.

        The caller looks at ``path.exists()`` afterwards; it must hold the entry's lock.
        """
        try:
            self.holds(path, integrity, size=size)
        except IntegrityError as error:
            with writable(path):
                path.unlink(missing_ok=True)
            return error.message
        return None


def proof_path(path: Path) -> Path:
    """Return where the proof for a stored file is kept."""
    return path.with_name(path.name + ".ok")


def _figures(path: Path, integrity: Integrity) -> list[int | str]:
    stat = path.stat()
    return [
        integrity.algorithm,
        integrity.hexdigest,
        stat.st_dev,
        stat.st_ino,
        stat.st_size,
        stat.st_mtime_ns,
        stat.st_ctime_ns,
    ]


def _kept(proof: Path) -> object:
    try:
        return json.loads(proof.read_text("utf-8"))
    except (OSError, ValueError):
        return None
