"""Makes an image of a running sandbox: what was installed in it stays, its keeper does not."""

from __future__ import annotations

from typing import Any

from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.engine.sandbox import Sandbox


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
