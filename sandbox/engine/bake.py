"""Makes images of running sandboxes: what was installed stays, the keeper does not; finds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import docker.errors
from pydantic import BaseModel, ConfigDict

from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.engine.sandbox import Sandbox

_CONFLICT = 409


class MadeImage(BaseModel):
    """An image that ``commit`` made: ``name`` is its reference, or its id once it lost that.

    ``size`` is in bytes, layers of the image that it was made of included; ``used``: a container
    of it is there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    size: int
    labels: dict[str, str]
    used: bool


def commit(engine: Engine, sandbox: Sandbox, *, reference: str, labels: dict[str, str]) -> str:
    """Keep a running sandbox's files as the image ``reference``, and return its id.

    The image starts as the one that the sandbox was made of: user, entrypoint, command and
    environment are that image's. What lies in memory (/tmp) is not kept. Labels of ownership are
    emptied, so that nobody takes a container of the image for the baking one.

    Raises:
        EngineFailure: the engine could not make it.
    """
    api = engine.sdk.api
    with engine_errors(f"make image {reference} of {sandbox.name}"):
        base: dict[str, Any] = api.inspect_image(sandbox.image).get("Config") or {}
        now: dict[str, Any] = api.inspect_container(sandbox.id)["Config"]
        owned = dict.fromkeys(now.get("Labels") or {}, "")
        conf = {
            "User": base.get("User") or "",
            "Entrypoint": base.get("Entrypoint") or [],
            "Cmd": base.get("Cmd") or [],
            "Env": base.get("Env") or [],
            "WorkingDir": base.get("WorkingDir") or "",
            "Labels": {**owned, **(base.get("Labels") or {}), **labels},
        }
        repository, _, tag = reference.partition(":")
        made = api.commit(sandbox.id, repository=repository, tag=tag, conf=conf)
    return str(made["Id"])


def find(engine: Engine, reference: str, *, labels: dict[str, str]) -> str | None:
    """Return the id of an image that carries all of ``labels``; None when there is none such."""
    with engine_errors(f"look for image {reference}"):
        for found in engine.sdk.api.images(name=reference):
            carried = found.get("Labels") or {}
            if all(carried.get(name) == value for name, value in labels.items()):
                return str(found["Id"])
    return None


def made_images(engine: Engine, *, label: str) -> Iterator[MadeImage]:
    """Yield the images that carry a label, whatever its value, in the order of their names.

    Raises:
        EngineFailure: the engine failed.
    """
    api = engine.sdk.api
    with engine_errors(f"list images with label {label}"):
        found = api.images(filters={"label": [label]})
        used = {one["ImageID"] for one in api.containers(all=True)}
    made = [
        MadeImage(
            name=next(iter(one.get("RepoTags") or ()), one["Id"]).replace(
                "<none>:<none>", one["Id"]
            ),
            size=one["Size"],
            labels=one.get("Labels") or {},
            used=one["Id"] in used,
        )
        for one in found
    ]
    yield from sorted(made, key=lambda one: one.name)


def remove_image(engine: Engine, name: str) -> bool:
    """Remove an image unless a container of it is there; tell whether it is gone.

    Raises:
        EngineFailure: the engine failed.
    """
    with engine_errors(f"remove image {name}"):
        try:
            engine.sdk.api.remove_image(name)
        except docker.errors.ImageNotFound:
            return True
        except docker.errors.APIError as error:
            if error.status_code == _CONFLICT:
                return False
            raise
    return True
