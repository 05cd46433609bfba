"""Checks of agent sessions beside and after each other."""

from __future__ import annotations

from sandbox.evidence.checks.check import check
from sandbox.evidence.verdict import Outcome, Tier, failed, judged_by, not_applicable, passed
from sandbox.evidence.view import CellEvidence

_REFUSED = "ConflictError"


@check(
    tier=Tier.P0,
    kind="sandbox",
    group="isolation",
    why="two agents in one sandbox that mix their sessions up leave two wrong rollouts",
)
def sessions_apart(cell: CellEvidence) -> Outcome:
    """Another session at the same time ended well too, with its own calls and folder."""
    other = cell.witness.companion
    if not cell.expected.companion:
        if other is not None:
            return failed(f"another session {other.rollout_id} worked in the sandbox unasked")
        return not_applicable("there was one session only")
    other = cell.seen(other, "the other session")
    faults = [] if other.error is None else [f"the other session failed: {other.error}"]
    if other.outcome != "completed" or other.reward != 1.0:
        faults.append(f"the other session ended {other.outcome} with reward {other.reward}")
    if not other.calls:
        faults.append("the other session made no model call")
    if other.foreign_calls:
        faults.append(f"{other.foreign_calls} model calls went to the wrong session's model")
    if not other.overlapped:
        faults.append("the two sessions did not run at the same time")
    if other.session_dir_gone is False:
        faults.append("the other session's folder is still there")
    return judged_by(faults)


@check(
    tier=Tier.P0,
    kind="health",
    group="cleanup",
    why="a closed session that works on changes what was graded already",
)
def close_is_final(cell: CellEvidence) -> Outcome:
    """Activating the closed session again was refused."""
    if not cell.expected.reactivated:
        return not_applicable("nobody activated the closed session again")
    answer = cell.seen(cell.witness.reactivation, "the answer to another activation")
    if answer != _REFUSED:
        return failed(f"expected a conflict when the closed session is activated, saw {answer}")
    return passed()


CHECKS = (sessions_apart, close_is_final)
