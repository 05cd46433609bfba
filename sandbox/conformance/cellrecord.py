"""What a cell's folder says of an episode that ended: its row, its refusal, who and what ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sandbox.agents.contract import UnprocessableError
from sandbox.agents.stages import EpisodeResult
from sandbox.engine.client import EngineInfo
from sandbox.engine.facts import ImageFacts
from sandbox.engine.images import LoadedImage
from sandbox.errors import EngineFailure, SandboxError, Unsupported
from sandbox.evidence.assemble import assemble
from sandbox.evidence.cell import EngineRecord, HarnessPin, ImageRecord, Refusal, WitnessRecord
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.rows import Row
from sandbox.runtimes.library import Bundle


def row_of(
    result: EpisodeResult, *, task_id: str, rollout_id: str, exchanges: Iterable[Exchange]
) -> Row:
    """Return the row that the episode leaves, joined with what the model server saw."""
    joined = assemble(
        task_id=task_id,
        rollout_id=rollout_id,
        observations=result.observations,
        exchanges=exchanges,
    )
    response = None if result.response is None else result.response.model_dump(mode="json")
    failure = result.failure
    if failure is None:
        assert result.reward is not None
        return joined.success(reward=result.reward, response=response, rejection=result.rejection)
    return joined.failure(
        kind=failure.kind,
        failure_class=failure.failure_class,
        stage=failure.stage,
        message=failure.message,
        terminal=failure.terminal,
        partial_response=response,
    )


def refusal_of(result: EpisodeResult, *, interrupted: bool) -> Refusal | None:
    """Return why there is nothing to judge: it cannot work, or it broke under us."""
    failure = result.failure
    if failure is None:
        return None
    if interrupted and failure.kind == "cancelled":
        return Refusal(kind="error", reason="the run was interrupted", cure="run the cell again")
    error = failure.error
    if isinstance(error, Unsupported | UnprocessableError | EngineFailure):
        return refusal_by(error)
    return None


def refusal_by(error: SandboxError) -> Refusal:
    """Return an error as the reason why a cell was not run."""
    kind = "unsupported" if isinstance(error, Unsupported | UnprocessableError) else "error"
    return Refusal(kind=kind, reason=error.message, cure=error.cure)


def image_record(image: LoadedImage, facts: ImageFacts | None) -> ImageRecord:
    """Return the task image, with what was probed in it where that is known."""
    return ImageRecord(
        name=image.name,
        image_id=image.image_id,
        libc=f"{image.libc} {image.libc_version}",
        arch=image.arch,
        uid=None if facts is None else facts.uid,
    )


def engine_record(info: EngineInfo) -> EngineRecord:
    """Return the engine that ran the sandbox."""
    return EngineRecord(
        version=info.version,
        api_version=info.api_version,
        cgroup_version=str(info.cgroup_version),
        storage_driver=info.storage_driver,
        product=info.product,
        rootless=info.rootless,
    )


def pin_of(bundle: Bundle | None) -> HarnessPin | None:
    """Return the runtime that the cell had to install; None when there is no pin."""
    if bundle is None:
        return None
    return HarnessPin(
        harness=bundle.harness,
        version=bundle.version,
        platform=bundle.platform,
        bundle_sha256=bundle.sha256,
    )


def with_errors(seen: WitnessRecord, errors: Sequence[str]) -> WitnessRecord:
    """Return what the witness saw, with what went wrong while cleaning up."""
    return seen.model_copy(update={"errors": (*seen.errors, *errors)})


def rounded(phases: Mapping[str, float]) -> dict[str, float]:
    """Return durations in seconds to a tenth of a millisecond."""
    return {name: round(seconds, 4) for name, seconds in phases.items()}
