"""Proofs that an installed program ran in an image and said its pinned version.

One file a proof, named after all that it depends on: the bundle's bytes, the image, the installer
and what it compares with. When one of these changes there is another name, so no proof to find.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from sandbox.cache import locked, published
from sandbox.evidence.records import VersionCheck
from sandbox.runtimes.pins import INSTALLERS
from sandbox.runtimes.reports import Bundle


def install_script() -> bytes:
    """Return the installer."""
    return (INSTALLERS / "install.sh").read_bytes()


def installer_sha256(bundle: Bundle) -> str:
    """Return the hash over the installer and all that it is told about the version of a bundle."""
    told = [
        list(bundle.version_argv),
        sorted(bundle.version_env.items()),
        bundle.version_output,
        bundle.version_first_line,
    ]
    return hashlib.sha256(install_script() + json.dumps(told).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """The proofs of one image.

    Attributes:
        folder: where they are kept.
        image_id: the engine's id of the image, which is the hash of all that is in it.
    """

    folder: Path
    image_id: str

    def find(self, bundle: Bundle, installer: str) -> VersionCheck | None:
        """Return the proof for a bundle by this installer; None without one that can be read."""
        try:
            known = VersionCheck.model_validate_json(self._path(bundle, installer).read_bytes())
        except (OSError, ValidationError):
            return None
        wanted = {
            "bundle_sha256": bundle.sha256,
            "image_id": self.image_id,
            "installer_sha256": installer,
            "version_output": bundle.version_output,
        }
        return known if known.model_dump(include=set(wanted)) == wanted else None

    def keep(self, bundle: Bundle, installer: str, *, sandbox: str) -> VersionCheck:
        """Keep the proof that was just had in a sandbox of the image, and return it."""
        proof = VersionCheck(
            bundle_sha256=bundle.sha256,
            image_id=self.image_id,
            installer_sha256=installer,
            version_output=bundle.version_output,
            checked_at=round(time.time(), 3),
            sandbox=sandbox,
        )
        path = self._path(bundle, installer)
        with published(path) as fresh:
            fresh.write_text(proof.model_dump_json(indent=1) + "\n", "utf-8")
        return proof

    def one_at_a_time(self, sha256: str) -> AbstractContextManager[None]:
        """Hold the lock of a bundle's proofs in this image."""
        image = hashlib.sha256(self.image_id.encode()).hexdigest()[:16]
        return locked(self.folder / f"{sha256[:32]}-{image}")

    def _path(self, bundle: Bundle, installer: str) -> Path:
        said = f"{bundle.sha256}\n{self.image_id}\n{installer}"
        return self.folder / f"{hashlib.sha256(said.encode()).hexdigest()}.json"
