"""Verdicts: what a check says about a cell, and the values that checks return."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from sandbox.evidence.records import Record

CELL_RUN = "cell_run"
"""Check id of what is said of a cell's running: why there is nothing to check, or how late."""


class Status(StrEnum):
    """Outcome of a check; ``error`` means that we could not find out."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    NOT_APPLICABLE = "not_applicable"
    ERROR = "error"


class Tier(StrEnum):
    """How much a check weighs: P0 makes a row unusable, P1 misleading, P2 poorer."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"


Kind = Literal["schema", "semantic", "behavioral", "sandbox", "health"]


class Outcome(Record):
    """What a check function returns."""

    status: Status
    reason: str = ""


class Verdict(Record):
    """One check's outcome for one cell.

    ``known`` is the reason of its baseline entry, ``link`` that entry's. ``flaky`` says how often
    repeated runs of the cell disagreed (``failed in 1 of 3 attempts``), or that the engine failed
    before the cell ran: then the verdict is a pass of ``cell_run``.
    """

    check: str
    tier: Tier
    kind: Kind
    group: str
    status: Status
    reason: str = ""
    known: str | None = None
    link: str | None = None
    flaky: str | None = None


class MissingEvidence(Exception):
    """A check needs a fact that the cell folder does not hold: the check fails."""


_PASSED = Outcome(status=Status.PASS)


def passed(reason: str = "") -> Outcome:
    """The evidence shows what it must."""
    return Outcome(status=Status.PASS, reason=reason) if reason else _PASSED


def failed(reason: str) -> Outcome:
    """The evidence shows something else; ``reason`` says what was expected and what was seen."""
    return Outcome(status=Status.FAIL, reason=reason)


def not_applicable(reason: str) -> Outcome:
    """The question does not arise in this cell, and nothing in it says otherwise."""
    return Outcome(status=Status.NOT_APPLICABLE, reason=reason)


def judged_by(faults: list[str]) -> Outcome:
    """Pass without faults, else fail with the first three."""
    if not faults:
        return passed()
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return failed("; ".join(faults[:3]) + more)
