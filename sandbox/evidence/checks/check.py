"""What a check is: a pure function over a cell's evidence with an id and a reason to exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from sandbox.evidence.verdict import Kind, MissingEvidence, Outcome, Status, Tier, Verdict, failed
from sandbox.evidence.view import CellEvidence

CheckFunction = Callable[[CellEvidence], Outcome]


@dataclass(frozen=True, kw_only=True)
class Check:
    """A registered check.

    Args:
        id: stable id, the name of the function.
        tier: P0, P1 or P2.
        kind: what sort of question it asks.
        group: the evidence group: ``TE-1`` to ``TE-9`` with NeMo Gym's meaning, or one word.
        why: one line: what goes wrong for users when it fails.
        function: the pure function.
    """

    id: str
    tier: Tier
    kind: Kind
    group: str
    why: str
    function: CheckFunction

    def judge(self, cell: CellEvidence) -> Verdict:
        """Return the verdict: missing evidence fails, a fault of the check itself is an error."""
        try:
            outcome = self.function(cell)
        except MissingEvidence as missing:
            outcome = failed(f"missing evidence: {missing}")
        except Exception as error:  # noqa: BLE001 - a broken check must not stop the judge
            reason = f"the check itself failed: {type(error).__name__}: {error}"
            outcome = Outcome(status=Status.ERROR, reason=reason)
        return _verdict(
            check=self.id,
            tier=self.tier,
            kind=self.kind,
            group=self.group,
            status=outcome.status,
            reason=outcome.reason,
        )


@lru_cache(maxsize=4096)
def _verdict(
    *, check: str, tier: Tier, kind: Kind, group: str, status: Status, reason: str
) -> Verdict:
    """Return the verdict; most of a run's cells have the same ones, which never change."""
    return Verdict(check=check, tier=tier, kind=kind, group=group, status=status, reason=reason)


def check(*, tier: Tier, kind: Kind, group: str, why: str) -> Callable[[CheckFunction], Check]:
    """Make a check of a function; its id is the function's name."""

    def register(function: CheckFunction) -> Check:
        return Check(
            id=function.__name__, tier=tier, kind=kind, group=group, why=why, function=function
        )

    return register
