"""After the supervisor's last word: copies of the native evidence, and what they say."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from sandbox.agents.outcome import Outcome, OutcomeKind
from sandbox.agents.ports import Place
from sandbox.errors import NotFound, SandboxError
from sandbox.evidence.observations import Gap, Observations, SandboxObservation, ToolCall
from sandbox.evidence.records import CleanupReceipt, ResourceUse

STREAMS = ("stdout", "stderr")
_LOG_BYTES = 8192
_PRESENT = """
for path do [ -e "$path" ] && printf '%s\\0' "$path"; done; true
"""

SandboxOutcome = Literal[
    "completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"
]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Copies on the host, and which of the planned and of the proving paths are not there."""

    folder: Path
    missing: tuple[str, ...]
    missing_proof: tuple[str, ...]
    log: str


def take_snapshot(
    place: Place,
    *,
    run_folder: str,
    base: str,
    native: Sequence[str],
    proof: Sequence[str],
    folder: Path,
) -> Snapshot:
    """Copy the harness's output and its native files to the host ``folder``.

    A path below ``base`` keeps its place below it. What is not there is named, not an error.

    Raises:
        EngineFailure: the sandbox could not be read.
    """
    shutil.rmtree(folder, ignore_errors=True)  # of a try that broke off
    folder.mkdir(parents=True)
    sources = {name: f"{run_folder}/{name}" for name in STREAMS}
    sources |= {_relative(path, base): path for path in native}
    missing = [path for name, path in sources.items() if not _copied(place, path, folder / name)]
    return Snapshot(
        folder=folder,
        missing=tuple(path for path in missing if path in set(native)),
        missing_proof=_absent(place, proof),
        log=_log(folder),
    )


def _relative(path: str, base: str) -> str:
    pure = PurePosixPath(path)
    inside = pure.is_relative_to(base) and pure != PurePosixPath(base)
    return str(pure.relative_to(base if inside else "/"))


def _copied(place: Place, path: str, target: Path) -> bool:
    if target.exists():
        return True  # came with a folder above it
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        place.get(path, target)
    except NotFound:
        return False
    return True


def _absent(place: Place, paths: Sequence[str]) -> tuple[str, ...]:
    if not paths:
        return ()
    ended = place.exec(["sh", "-c", _PRESENT, "sh", *paths], deadline_s=30, cwd="/")
    present = set(ended.stdout.text.split("\0"))
    return tuple(path for path in paths if path not in present)


def _log(folder: Path) -> str:
    """The end of what the harness wrote, errors last."""
    parts = []
    for name in STREAMS:
        path = folder / name
        if path.is_file():
            with path.open("rb") as stream:
                stream.seek(max(0, path.stat().st_size - _LOG_BYTES))
                parts.append(stream.read().decode(errors="replace").strip())
    return "\n".join(part for part in parts if part)


def complete(
    observations: Observations,
    *,
    place: Place,
    receipt: CleanupReceipt | None,
    outcome: Outcome | None,
    missing: Sequence[str] = (),
) -> Observations:
    """Add what the harness cannot know: the sandbox's identity, its cost, and what is missing."""
    records = tuple(
        record.model_copy(update={"sandbox_id": place.id})
        if isinstance(record, ToolCall) and record.sandbox_id is None
        else record
        for record in observations.records
    )
    gaps = [Gap(code="agent_artifact_unavailable", detail=path) for path in missing]
    if receipt is not None and receipt.timed_out:
        gaps.append(Gap(code="agent_run_timeout", detail="the task's own deadline expired"))
    use = _resources(place)
    if use is None:
        gaps.append(Gap(code="sandbox_observation_unavailable", detail="no resource figures"))
    sandbox = _sandbox(place.id, receipt, outcome, use)
    return observations.model_copy(
        update={"records": (*records, sandbox), "gaps": (*observations.gaps, *gaps)}
    )


def _resources(place: Place) -> ResourceUse | None:
    try:
        return place.resources()
    except SandboxError:
        return None


def _sandbox(
    sandbox_id: str,
    receipt: CleanupReceipt | None,
    outcome: Outcome | None,
    use: ResourceUse | None,
) -> SandboxObservation:
    return SandboxObservation(
        role="agent",
        provider="docker",
        sandbox_id=sandbox_id,
        outcome=_sandbox_outcome(receipt, outcome, use),
        exit_code=None if receipt is None else receipt.return_code,
        wall_time_s=None if receipt is None else receipt.duration_s,
        cpu_time_s=None if use is None else use.cpu_time_s,
        peak_memory_mib=None if use is None else use.peak_memory_mib,
        resource_usage_source=None if use is None else use.source,
        error_type=None if outcome is None or outcome.gradable else outcome.kind.value,
    )


def _sandbox_outcome(
    receipt: CleanupReceipt | None, outcome: Outcome | None, use: ResourceUse | None
) -> SandboxOutcome:
    if receipt is None or receipt.error is not None:
        return "sandbox_error" if receipt is not None or outcome is not None else "unknown"
    if receipt.timed_out:
        return "timeout"
    if receipt.stopped:
        return "cancelled"
    if use is not None and use.oom_kills and receipt.return_code == 137:
        return "oom"
    completed = outcome is not None and outcome.kind is OutcomeKind.COMPLETED
    return "completed" if completed else "failed"
