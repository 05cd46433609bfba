"""The way to an image through a registry: a Dockerfile that starts from bytes pinned by digest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import docker.errors

from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.engine.imagebuild.dockerfile import BaseImage, base_images
from sandbox.engine.imagebuild.job import Job
from sandbox.engine.imagebuild.pull import pull
from sandbox.engine.imagebuild.store import EngineStore
from sandbox.errors import EngineFailure, PrerequisiteMissing, UsageError

_TAIL = 15
_STEP = re.compile(r"^ ---> ([0-9a-f]{12,})$")  # what the classic builder prints after a step


def build_from_registry(engine: Engine, job: Job) -> None:
    """Build the definition's Dockerfile and tag the result with the job's reference.

    Uses the classic builder, which needs no plug-in; intermediate containers are always removed.

    Raises:
        UsageError: the Dockerfile starts from something that is not pinned by digest.
        FetchError: a registry does not answer (``retryable``), or refuses (not ``retryable``).
        IntegrityError: a registry gives other bytes than the pinned ones.
        PrerequisiteMissing: it starts from a local image that the engine does not have.
        EngineFailure: the build failed; the message has the end of its log.
    """
    bases = [_ensured_base(engine, job, image) for image in pinned_bases(job)]
    with job.step("build its Dockerfile"), engine_errors(f"build {job.title}"):
        events = engine.sdk.api.build(
            path=str(job.definition.folder),
            tag=job.reference("registry"),
            buildargs=_build_args(job),
            labels=job.labels("registry"),
            rm=True,
            forcerm=True,
            decode=True,
        )
        log: list[str] = []
        try:
            _follow(job, events, log)
        except BaseException:
            _remove_steps(engine, log, keep=bases)
            raise


def pinned_bases(job: Job) -> tuple[BaseImage, ...]:
    """List the outside images of the Dockerfile; refuse one that is not pinned by digest."""
    path = job.definition.dockerfile
    registry = job.definition.registry
    assert registry is not None
    try:
        found = base_images(path.read_text(encoding="utf-8"), _build_args(job))
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", cure=error.cure) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    for image in found:
        if not image.is_pinned:
            raise UsageError(
                f"{path}:{image.line}: {image.instruction} {image.reference} is not pinned",
                cure=f"name it by digest: {image.reference.partition('@')[0]}@sha256:<64 digits>",
            )
    if registry.reference not in {image.reference for image in found}:
        raise UsageError(
            f"{path}: nothing starts from {registry.reference}, which image.toml pins",
            cure="write ARG BASE and FROM ${BASE}, or the same digest in both files",
        )
    return found


def _build_args(job: Job) -> Mapping[str, str]:
    registry = job.definition.registry
    assert registry is not None
    return {"BASE": registry.reference}


def _ensured_base(engine: Engine, job: Job, image: BaseImage) -> str:
    """Give the ID of a base image that is on the engine; pull it when it is not."""
    store = EngineStore(engine)
    found = store.find(image.reference)
    if found is None:
        _pull(engine, job, image)
        found = store.find(image.reference)
    if found is None:
        raise EngineFailure(f"{job.title}: the engine pulled {image.reference} and has it not")
    return found.image_id


def _pull(engine: Engine, job: Job, image: BaseImage) -> None:
    if image.is_local_id:
        raise PrerequisiteMissing(
            f"{job.title} starts from the image {image.reference}, which the engine does not have",
            cure="build or load that image first",
        )
    with job.step(f"pull {image.reference}"):
        pull(engine, image.reference, what=job.title)


def _follow(job: Job, events: Iterable[Mapping[str, Any]], log: list[str]) -> None:
    """Read the build's messages into ``log`` to its end, or to its error."""
    for event in events:
        log += str(event.get("stream", "")).splitlines()
        if "error" in event:
            said = "\n".join([*log[-_TAIL:], str(event["error"])])
            raise EngineFailure(f"{job.title}: its Dockerfile cannot be built:\n{said}")


def _remove_steps(engine: Engine, log: Iterable[str], *, keep: Iterable[str]) -> None:
    """Remove the unnamed images that the steps of a failed build left, the last one first."""
    store = EngineStore(engine)
    kept = set(keep)
    steps = [match[1] for line in log if (match := _STEP.match(line))]
    for step in reversed(steps):
        found = store.find(step)
        if found is None or found.tags or found.image_id in kept:
            continue
        with suppress(docker.errors.APIError):  # another image builds on it
            engine.sdk.api.remove_image(found.image_id, noprune=True)
