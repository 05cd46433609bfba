"""Checks of what is left when the agent session and the sandbox are closed."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.evidence.checks.check import check
from sandbox.evidence.records import Survivor
from sandbox.evidence.verdict import (
    MissingEvidence,
    Outcome,
    Tier,
    failed,
    judged_by,
    not_applicable,
    passed,
)
from sandbox.evidence.view import CellEvidence


@check(
    tier=Tier.P0,
    kind="sandbox",
    group="cleanup",
    why="without a confirmed receipt nobody knows whether the agent still works while it is graded",
)
def receipt_confirmed(cell: CellEvidence) -> Outcome:
    """The supervisor launched the harness, saw it end and confirmed that all of it is gone."""
    if cell.is_remote and cell.files.receipt is None:
        return not_applicable("an agent server keeps its supervisor's receipt itself")
    receipt = cell.receipt
    faults = []
    if not receipt.launched:
        faults.append("the harness was never launched")
    if not receipt.cleanup_confirmed:
        faults.append("cleanup_confirmed is false")
    if receipt.error is not None:
        faults.append(f"the supervisor reports: {receipt.error}")
    if left := _unexpected(cell, receipt.survivors):
        faults.append(f"the supervisor lists survivors: {_names(left)}")
    if receipt.return_code is None and not (receipt.timed_out or receipt.stopped):
        faults.append("no return code, although nothing stopped the run")
    return judged_by(faults)


@check(
    tier=Tier.P0,
    kind="sandbox",
    group="cleanup",
    why="a process that outlives the agent can change the files that the verifier grades",
)
def nothing_left_running(cell: CellEvidence) -> Outcome:
    """After the close nothing lives, but what tools left on purpose when nothing was forced."""
    survivors = _unexpected(
        cell, cell.seen(cell.witness.survivors, "the processes after the close")
    )
    if survivors:
        return failed(f"expected no process after the close, saw {_names(survivors)}")
    return passed()


def _unexpected(cell: CellEvidence, survivors: Sequence[Survivor]) -> list[Survivor]:
    """Return what must not live: all of it after a forced stop, which ends the whole tree."""
    allowed = () if cell.was_stopped else cell.expected.background
    return [s for s in survivors if not any(part in s.command for part in allowed)]


@check(
    tier=Tier.P1,
    kind="sandbox",
    group="cleanup",
    why="a process that nobody told its owner of runs on through whatever comes next",
)
def survivors_told(cell: CellEvidence) -> Outcome:
    """The receipt names every process that a tool left on purpose and that still lives."""
    if not cell.expected.background:
        return not_applicable("the scenario leaves nothing running on purpose")
    if cell.is_remote and cell.files.receipt is None:
        return not_applicable("an agent server keeps its supervisor's receipt itself")
    survivors = cell.seen(cell.witness.survivors, "the processes after the close")
    unexpected = _unexpected(cell, survivors)
    told = {survivor.pid for survivor in cell.receipt.survivors}
    silent = [s for s in survivors if s not in unexpected and s.pid not in told]
    if silent:
        return failed(f"the receipt does not name {_names(silent)}")
    return passed()


@check(
    tier=Tier.P1,
    kind="sandbox",
    group="cleanup",
    why="a session directory that stays leaks one agent's transcript and key to the next",
)
def session_dir_gone(cell: CellEvidence) -> Outcome:
    """The private session directory does not exist any more."""
    if cell.cell.interface == "legacy" and cell.witness.session_dir_gone is None:
        return not_applicable("the agent's sandbox is removed with it")
    if cell.is_remote and cell.cell.session_dir is None:
        return not_applicable("an agent server does not say where its session directory was")
    gone = cell.seen(cell.witness.session_dir_gone, "the session directory after the close")
    if not gone:
        return failed(f"expected {cell.cell.session_dir or 'the session directory'} to be gone")
    return passed()


@check(
    tier=Tier.P0,
    kind="sandbox",
    group="cleanup",
    why="containers, networks and volumes that stay fill the host of a fleet",
)
def sandbox_released(cell: CellEvidence) -> Outcome:
    """The engine has nothing left of the cell's sandbox, and the release met no error."""
    teardown = cell.seen(cell.witness.teardown, "the teardown")
    left = {
        "container": teardown.container_gone,
        "network": teardown.networks_gone,
        "volume": teardown.volumes_gone,
    }
    faults = [f"a {name} of the cell is still there" for name, gone in left.items() if not gone]
    return judged_by([*faults, *(f"the release failed: {error}" for error in teardown.errors)])


@check(
    tier=Tier.P2,
    kind="health",
    group="resources",
    why="without figures nobody can size a fleet or see an out-of-memory kill",
)
def resources_recorded(cell: CellEvidence) -> Outcome:
    """CPU time and peak memory were read, and only what had to be was killed for memory."""
    used = cell.seen(cell.witness.resources, "the sandbox's resource use")
    if used.cpu_time_s is None or used.peak_memory_mib is None:
        raise MissingEvidence(f"CPU time or peak memory from {used.source}")
    if cell.expected.oom and not used.oom_kills:
        return failed(f"expected an out-of-memory kill, saw {used.oom_kills}")
    if used.oom_kills and not cell.expected.oom:
        return failed(f"expected no out-of-memory kill, saw {used.oom_kills}")
    return passed()


@check(
    tier=Tier.P1,
    kind="health",
    group="cleanup",
    why="a witness that met errors may have missed what the other checks ask it for",
)
def witness_sound(cell: CellEvidence) -> Outcome:
    """The witness met no error of its own."""
    return judged_by([f"the witness met an error: {error}" for error in cell.witness.errors])


def _names(survivors: Sequence[Survivor]) -> str:
    shown = ", ".join(f"{s.command} (pid {s.pid})" for s in survivors[:3])
    return shown + (f" and {len(survivors) - 3} more" if len(survivors) > 3 else "")


CHECKS = (
    receipt_confirmed,
    nothing_left_running,
    survivors_told,
    session_dir_gone,
    sandbox_released,
    resources_recorded,
    witness_sound,
)
