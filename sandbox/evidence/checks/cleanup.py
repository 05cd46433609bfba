"""Checks of what is left when the agent session and the sandbox are closed."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.evidence.checks.check import check
from sandbox.evidence.records import Survivor
from sandbox.evidence.verdict import MissingEvidence, Outcome, Tier, failed, judged_by, passed
from sandbox.evidence.view import CellEvidence


@check(
    tier=Tier.P0,
    kind="sandbox",
    group="cleanup",
    why="without a confirmed receipt nobody knows whether the agent still works while it is graded",
)
def receipt_confirmed(cell: CellEvidence) -> Outcome:
    """The supervisor launched the harness, saw it end and confirmed that all of it is gone."""
    receipt = cell.receipt
    faults = []
    if not receipt.launched:
        faults.append("the harness was never launched")
    if not receipt.cleanup_confirmed:
        faults.append("cleanup_confirmed is false")
    if receipt.error is not None:
        faults.append(f"the supervisor reports: {receipt.error}")
    if receipt.survivors:
        faults.append(f"the supervisor lists survivors: {_names(receipt.survivors)}")
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
    """The witness saw no process of the agent after the close."""
    survivors = cell.seen(cell.witness.survivors, "the processes after the close")
    if survivors:
        return failed(f"expected no process after the close, saw {_names(survivors)}")
    return passed()


@check(
    tier=Tier.P1,
    kind="sandbox",
    group="cleanup",
    why="a session directory that stays leaks one agent's transcript and key to the next",
)
def session_dir_gone(cell: CellEvidence) -> Outcome:
    """The private session directory does not exist any more."""
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
    """CPU time and peak memory of the sandbox were read, and nothing was killed for memory."""
    used = cell.seen(cell.witness.resources, "the sandbox's resource use")
    if used.cpu_time_s is None or used.peak_memory_mib is None:
        raise MissingEvidence(f"CPU time or peak memory from {used.source}")
    if used.oom_kills:
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
    session_dir_gone,
    sandbox_released,
    resources_recorded,
    witness_sound,
)
