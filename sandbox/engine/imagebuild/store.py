"""The images an engine has: find one, load an archive into it, tag it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import docker.errors
from pydantic import BaseModel, ConfigDict

from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.errors import EngineFailure
from sandbox.progress import Step


class FoundImage(BaseModel):
    """What an engine says of an image; ``size`` is bytes, ``layers`` are diff IDs, lowest first.

    ``healthcheck`` begins with NONE, CMD or CMD-SHELL (Docker image spec v1.2).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_id: str
    tags: tuple[str, ...]
    size: int
    created: str
    layers: tuple[str, ...]
    labels: dict[str, str]
    env: tuple[str, ...]
    cmd: tuple[str, ...]
    user: str
    workdir: str
    entrypoint: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    healthcheck: tuple[str, ...] = ()


class ImageStore(Protocol):
    """What making and finding images needs of an engine; tests give their own."""

    def find(self, reference: str) -> FoundImage | None:
        """Look an image up by ID or name; None when the engine has none."""

    def load(self, archive: Path, step: Step) -> None:
        """Load a docker-archive, streaming."""

    def tag(self, image_id: str, reference: str) -> None:
        """Give an image a name and tag, taken from another image if need be."""


class EngineStore:
    """The ``ImageStore`` of a Docker engine."""

    def __init__(self, engine: Engine) -> None:
        self._api: Any = engine.sdk.api

    def find(self, reference: str) -> FoundImage | None:
        """Look an image up by ID or name; None when the engine has none."""
        with engine_errors(f"look for image {reference}"):
            try:
                said = self._api.inspect_image(reference)
            except docker.errors.ImageNotFound:
                return None
        config = said.get("Config") or {}
        return FoundImage(
            image_id=said["Id"],
            # Podman puts its name for "no registry" in front
            tags=tuple(tag.removeprefix("localhost/") for tag in said.get("RepoTags") or ()),
            size=said.get("Size") or 0,
            created=said.get("Created") or "",
            layers=tuple((said.get("RootFS") or {}).get("Layers") or ()),
            labels=config.get("Labels") or {},
            env=tuple(config.get("Env") or ()),
            cmd=tuple(config.get("Cmd") or ()),
            user=config.get("User") or "",
            workdir=config.get("WorkingDir") or "",
            entrypoint=tuple(config.get("Entrypoint") or ()),
            volumes=tuple(sorted(config.get("Volumes") or ())),
            healthcheck=tuple((config.get("Healthcheck") or {}).get("Test") or ()),
        )

    def load(self, archive: Path, step: Step) -> None:
        """Load a docker-archive, streaming."""
        size = archive.stat().st_size
        step.total(size)
        with engine_errors(f"load {archive}"), archive.open("rb") as stream:
            for event in self._api.load_image(_Upload(stream, size, step)):
                if "error" in event:
                    raise EngineFailure(
                        f"the engine cannot load {archive}: {event['error']}",
                        cure="is there space where the engine keeps its images (docker info)?",
                    )

    def tag(self, image_id: str, reference: str) -> None:
        """Give an image a name and tag, taken from another image if need be."""
        name, _, tag = reference.rpartition(":")
        with engine_errors(f"tag {image_id} as {reference}"):
            self._api.tag(image_id, name, tag)


class _Upload:
    """A file on its way to the engine; ``len`` lets the client send its length beforehand."""

    def __init__(self, stream: BinaryIO, size: int, step: Step) -> None:
        self._stream = stream
        self._step = step
        self.len = size

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._step.advance(len(data))
        return data

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read(1 << 20):
            yield data
