"""Artifacts as pinned: one downloaded file each, by the package client that brings it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandbox.runtimes.words import DebianVersion, Line, PackageName, Said, Word


class _Artifact(Said):
    """What every pin of a file says.

    Attributes:
        licence: SPDX expression, or ``LicenseRef-...``.
        redistributable: False when its licence allows each user to fetch it, and nobody to pass
            it on: neither it nor a bundle of it may leave the machine that fetched it.
    """

    licence: Line
    redistributable: bool = True


class NpmPin(_Artifact):
    """One npm tarball."""

    client: Literal["npm"]
    name: PackageName
    version: Word


class PipPin(_Artifact):
    """One wheel; ``tag`` is the platform tag to ask for (``musllinux_1_2_x86_64``, ``any``)."""

    client: Literal["pip"]
    name: PackageName
    version: Word
    tag: Word


class AptPin(_Artifact):
    """One Debian package; ``tag`` is Debian's word for its architecture."""

    client: Literal["apt"]
    name: PackageName
    version: DebianVersion
    tag: Literal["amd64", "arm64"]


ArtifactPin = Annotated[NpmPin | PipPin | AptPin, Field(discriminator="client")]


def tag_of(pin: ArtifactPin) -> str | None:
    """Return which of a version's files is meant; None where a version has one."""
    return None if isinstance(pin, NpmPin) else pin.tag
