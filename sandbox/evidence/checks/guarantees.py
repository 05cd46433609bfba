"""Checks of what a fleet is promised of every sandbox: files, secrets, the dead, time, packets.

Cells of early versions have no such facts; their ``cell.json`` does not tell the deadline either.
"""

from __future__ import annotations

from sandbox.evidence.cell import SecretSeen
from sandbox.evidence.checks.check import check
from sandbox.evidence.footprint import sorted_changes
from sandbox.evidence.verdict import (
    MissingEvidence,
    Outcome,
    Tier,
    judged_by,
    not_applicable,
    passed,
)
from sandbox.evidence.view import CellEvidence

STOPPED_WITHIN_S = 60.0
"""The grace and the kill take at most ten seconds; the rest is for a machine with much to do."""
_EARLY = "the cell is of an early version, which did not look"
_SHOWN = 5


@check(
    tier=Tier.P1,
    kind="sandbox",
    group="footprint",
    why="what a harness leaves in PATH, HOME or the package database changes the task it works on",
)
def footprint_expected(cell: CellEvidence) -> Outcome:
    """Only the task's files, the private folder and temporary folders changed."""
    if cell.files.footprint is None:
        raise MissingEvidence("footprint.json is missing")
    wrong = [one for one in sorted_changes(cell.files) if one.owner == "unexpected"]
    shown = [f"{one.path} was {one.change} ({one.touches})" for one in wrong[:_SHOWN]]
    more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
    return judged_by([*shown, *more])


@check(
    tier=Tier.P1,
    kind="sandbox",
    group="secrets",
    why="a key in a transcript, a process list or a report is read by everybody who reads those",
)
def secrets_kept(cell: CellEvidence) -> Outcome:
    """The model key is in documented places at most, the host's canary nowhere."""
    found = cell.witness.secrets
    if found is None:
        return _unseen(cell, "where secrets are")
    return judged_by(
        [f"the {one.secret} is in {one.where} ({one.place})" for one in found if not _may_be(one)]
    )


@check(
    tier=Tier.P2,
    kind="sandbox",
    group="cleanup",
    why="dead processes that nobody buries use up the process limit of a long task",
)
def no_zombies(cell: CellEvidence) -> Outcome:
    """When the session is closed every dead process is buried."""
    found = cell.witness.zombies
    if found is None:
        if cell.witness.network is not None:
            return not_applicable("this engine's processes cannot be seen from here")
        return _unseen(cell, "dead processes")
    return judged_by([f"{one.command} (pid {one.pid}) is dead and not buried" for one in found])


@check(
    tier=Tier.P1,
    kind="sandbox",
    group="cleanup",
    why="a deadline that is kept late costs the fleet as much as one that is not kept",
)
def stopped_in_time(cell: CellEvidence) -> Outcome:
    """From the deadline, or the request to stop, until the last process is gone."""
    receipt = cell.files.receipt
    if receipt is None or not cell.was_stopped:
        return not_applicable("nothing stopped the run, or an agent server keeps its receipt")
    if receipt.ending_s is None:
        return _unseen(cell, "how long the end took")
    if receipt.ending_s > STOPPED_WITHIN_S:
        return judged_by(
            [f"expected an end within {STOPPED_WITHIN_S:.0f} s, saw {receipt.ending_s:.1f} s"]
        )
    return passed()


@check(
    tier=Tier.P0,
    kind="sandbox",
    group="isolation",
    why="a packet that left the sandbox is an effect that no other run repeats",
)
def nothing_sent_out(cell: CellEvidence) -> Outcome:
    """The kernel counted packets on the loopback interface only."""
    if cell.cell.isolation == "bridge":
        return not_applicable("the bridge link carries the model's packets too")
    counters = cell.witness.network
    if counters is None:
        return _unseen(cell, "the network's counters")
    return judged_by(
        [
            f"{n} packets were sent on {name}"
            for name, n in counters.sent.items()
            if n and name != "lo"
        ]
    )


def _may_be(one: SecretSeen) -> bool:
    """Whether this place is documented (docs/guarantees.md).

    A harness gets the key in its environment. ``env`` and ``setsid`` have it in their arguments for
    the instant in which they become the harness.
    """
    starting = one.place == "process arguments" and one.where in {"env", "setsid"}
    may_be = starting or one.place == "process environment"
    return may_be and one.secret != "host environment"  # noqa: S105 - the kind of secret


def _unseen(cell: CellEvidence, what: str) -> Outcome:
    if cell.cell.deadline_s is None:
        return not_applicable(_EARLY)
    raise MissingEvidence(f"the witness did not observe {what}")


CHECKS = (footprint_expected, secrets_kept, no_zombies, stopped_in_time, nothing_sent_out)
