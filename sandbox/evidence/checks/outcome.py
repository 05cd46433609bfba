"""Checks of how the episode ended: outcome, reward, and the difference between zero and nothing."""

from __future__ import annotations

from sandbox.evidence.capture import is_rejection
from sandbox.evidence.checks.check import check
from sandbox.evidence.observations import InvocationStatus
from sandbox.evidence.rows import REJECTED, FailureRow, SuccessRow
from sandbox.evidence.verdict import Outcome, Tier, failed, judged_by, not_applicable
from sandbox.evidence.view import CellEvidence


@check(
    tier=Tier.P0,
    kind="semantic",
    group="TE-4",
    why="a run called completed after an error, or failed after an answer, is graded wrongly",
)
def outcome_class(cell: CellEvidence) -> Outcome:
    """Row kind, stage, root status and time-out are the scenario's; exit codes do not count."""
    faults = []
    expected, row = cell.expected, cell.row
    if isinstance(row, SuccessRow):
        if expected.row != "rollout":
            faults.append(f"expected a failure row, saw a rollout row with reward {row.reward}")
    elif expected.row != "failure":
        why = f"{row.failure_stage}: {row.failure_message}"
        faults.append(f"expected a rollout row, saw a failure row ({why})")
    elif row.failure_stage != expected.failure_stage:
        faults.append(f"expected a failure of {expected.failure_stage}, saw {row.failure_stage}")
    if expected.unwanted:
        best = cell.cell.expectation
        how = "ran out of time" if expected.timed_out else "gave up"
        faults.append(f"expected a {best.row} row, the harness {how}, and says so")
    if expected.failure_stage != "seed":
        faults += _status_faults(cell)
        if cell.timed_out != expected.timed_out:
            faults.append(f"expected timed_out {expected.timed_out}, saw {cell.timed_out}")
        judged = not cell.is_remote or cell.files.receipt is not None
        if judged and cell.receipt.stopped != expected.stopped:
            faults.append(f"expected stopped {expected.stopped}, saw {cell.receipt.stopped}")
    return judged_by(faults)


def _status_faults(cell: CellEvidence) -> list[str]:
    status = cell.root.status
    if status not in cell.expected.outcomes:
        wanted = " or ".join(cell.expected.outcomes)
        cause = f" ({cell.root.error_type})" if cell.root.error_type else ""
        return [f"expected the root invocation {wanted}, saw {status}{cause}"]
    gaps = {gap.code for gap in cell.observations.gaps}
    if status is InvocationStatus.UNKNOWN and "invocation_outcome_unavailable" not in gaps:
        return ["the root invocation is unknown without the gap invocation_outcome_unavailable"]
    return []


@check(
    tier=Tier.P0,
    kind="semantic",
    group="TE-6",
    why="an episode in which the model never answered must not count as a wrong answer",
)
def no_silent_zero(cell: CellEvidence) -> Outcome:
    """No completed model call: a failure row. A zero only with a verifier's zero."""
    if isinstance(cell.row, FailureRow):
        if cell.expected.row == "failure":
            return judged_by([])
        return not_applicable("the row is a failure and carries no reward")
    faults = []
    refused = cell.row.failure_kind == REJECTED and is_rejection(cell.calls)
    if not cell.completed_calls and not refused:
        faults.append(f"no model call completed, yet the row has reward {cell.row.reward}")
    elif cell.completed_calls and not cell.said_anything:
        faults.append(f"no answer of the model said anything, yet the reward is {cell.row.reward}")
    if not cell.row.evaluation_completed:
        faults.append(f"reward {cell.row.reward} without a completed evaluation")
    if cell.witness.verifier is None:
        faults.append(f"reward {cell.row.reward} although no verifier was called")
    return judged_by(faults)


@check(
    tier=Tier.P0,
    kind="semantic",
    group="TE-6",
    why="a refusal graded where nobody allowed it, or after an answer, is a wrong zero",
)
def rejected_task(cell: CellEvidence) -> Outcome:
    """A row of a rejected task is masked, allowed by the scenario, and has refusals (400) alone."""
    row = cell.row
    if not isinstance(row, SuccessRow) or row.failure_kind != REJECTED:
        if cell.expected.rejected:
            return failed("expected the row of a rejected task, saw another")
        return not_applicable("no task was graded as rejected")
    faults = []
    if not cell.cell.expectation.grades_rejection:
        faults.append("the task was graded as rejected, which the scenario does not allow")
    if not is_rejection(cell.calls):
        statuses = ", ".join(str(call.status_code) for call in cell.calls) or "none"
        faults.append(f"expected nothing but refusals (400), saw {statuses}")
    if cell.was_stopped:
        faults.append("the run was stopped: nobody knows what the model would have said")
    if not row.mask_sample:
        faults.append("the row is not masked, and has nothing to train on")
    return judged_by(faults)


@check(
    tier=Tier.P0,
    kind="behavioral",
    group="TE-6",
    why="a reward that the verifier did not give trains on noise",
)
def verifier_outcome(cell: CellEvidence) -> Outcome:
    """The row's reward is the verifier's, and the verifier's is the scenario's."""
    verifier = cell.witness.verifier
    if isinstance(cell.row, FailureRow):
        if verifier is not None and cell.row.failure_stage != "verification":
            stage = cell.row.failure_stage
            return judged_by([f"a verifier graded {verifier.reward} after a failure of {stage}"])
        if cell.expected.row == "rollout":
            return judged_by([f"expected reward {cell.expected.reward}, saw a failure row"])
        return not_applicable("a failure row has no reward, and no verifier was called")
    verifier = cell.seen(verifier, "a verifier's result")
    faults = []
    if cell.row.reward != verifier.reward:
        faults.append(f"expected the verifier's {verifier.reward}, saw {cell.row.reward}")
    if verifier.reward != cell.expected.reward:
        why = f" ({verifier.detail})" if verifier.detail else ""
        wanted = cell.expected.reward
        faults.append(f"expected the verifier to give {wanted}, it gave {verifier.reward}{why}")
    return judged_by(faults)


@check(
    tier=Tier.P0,
    kind="behavioral",
    group="TE-3",
    why="an agent that leaves the script, or that the script had to stop, did not do the task",
)
def script_followed(cell: CellEvidence) -> Outcome:
    """The scripted model never refused to go on, and a completed run reached its last step."""
    script = cell.seen(cell.witness.script, "the script's report")
    faults = []
    if script.refusal is not None:
        faults.append(f"the model server refused to go on: {script.refusal}")
    completed = cell.expected.outcomes == (InvocationStatus.COMPLETED,)
    if completed and script.steps_done < script.steps:
        faults.append(f"expected {script.steps} steps of the script, saw {script.steps_done}")
    return judged_by(faults)


CHECKS = (outcome_class, no_silent_zero, rejected_task, verifier_outcome, script_followed)
