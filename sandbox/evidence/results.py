"""What a judged run is: cells with states, stale baseline entries, counts and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal

from sandbox.errors import ExitCode
from sandbox.evidence.cell import CellRecord
from sandbox.evidence.gates import Gate, gates_of, scores
from sandbox.evidence.records import Record
from sandbox.evidence.verdict import Status, Tier, Verdict


def split_id(cell_id: str) -> tuple[str, str, str]:
    """Split a cell id into harness, image and scenario; a lone name counts as the scenario."""
    parts = cell_id.split("/")
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else ("-", "-", cell_id)


class CellState(StrEnum):
    """A cell in one word.

    ``known`` has only failures of the baseline, ``flaky`` only such as repeated runs disagree
    about, or none, and the engine failed before; ``refused`` was not run since it cannot work.
    """

    PASS = "pass"  # noqa: S105 - a state, not a password
    KNOWN = "known"
    FLAKY = "flaky"
    FAIL = "fail"
    ERROR = "error"
    REFUSED = "refused"


class CellVerdicts(Record):
    """``verdicts.json`` of one cell."""

    schema_version: Literal["1.0"] = "1.0"
    cell_id: str
    state: CellState
    verdicts: tuple[Verdict, ...]


class CellResult(Record):
    """One judged cell; ``record`` is None when its ``cell.json`` is missing or unreadable.

    ``attempts`` are the results of each run of a repeated cell, the first one included.
    """

    cell_id: str
    record: CellRecord | None
    verdicts: tuple[Verdict, ...]
    state: CellState
    attempts: tuple[CellResult, ...] = ()

    @property
    def non_passes(self) -> tuple[Verdict, ...]:
        """Verdicts that are neither a pass nor not applicable."""
        return tuple(v for v in self.verdicts if v.status in (Status.FAIL, Status.ERROR))

    @property
    def retried(self) -> tuple[Verdict, ...]:
        """Passes that took more than one attempt, since the engine failed."""
        return tuple(v for v in self.verdicts if v.status is Status.PASS and v.flaky is not None)

    @property
    def unknown_failures(self) -> tuple[Verdict, ...]:
        """Failures and errors that no baseline entry covers."""
        return tuple(v for v in self.non_passes if v.known is None)


def passed_state(verdicts: Iterable[Verdict]) -> CellState:
    """Return the state of a cell without failures: the engine may have failed before it ran."""
    flaky = any(verdict.flaky is not None for verdict in verdicts)
    return CellState.FLAKY if flaky else CellState.PASS


class StaleEntry(Record):
    """A baseline entry whose failure is gone; ``near`` names what fails close to it."""

    cell: str
    check: str
    reason: str
    near: str | None = None
    link: str | None = None


class Summary(Record):
    """Counts over a run: cells by state, verdicts by status, known failures, pass by tier."""

    cells: dict[str, int]
    verdicts: dict[str, int]
    known: int
    stale: int
    tiers: dict[str, str]


class RunVerdicts(Record):
    """A judged run, the input of every report."""

    schema_version: Literal["1.0"] = "1.0"
    run_id: str
    profile: str | None
    cells: tuple[CellResult, ...]
    stale: tuple[StaleEntry, ...]
    summary: Summary
    exit_code: int
    gate: Tier = Tier.P2
    gates: tuple[Gate, ...] = ()


def summarise(cells: Sequence[CellResult], stale: Sequence[StaleEntry]) -> Summary:
    """Count states, statuses and, for each tier, how many applicable verdicts pass."""
    verdicts = [verdict for cell in cells for verdict in cell.verdicts]
    states = Counter(cell.state.value for cell in cells)
    statuses = Counter(verdict.status.value for verdict in verdicts)
    return Summary(
        cells={state.value: states[state.value] for state in CellState},
        verdicts={status.value: statuses[status.value] for status in Status},
        known=sum(verdict.known is not None for verdict in verdicts),
        stale=len(stale),
        tiers=scores(verdicts),
    )


def exit_code(
    cells: Iterable[CellResult], stale: Sequence[StaleEntry], *, gate: Tier = Tier.P2
) -> ExitCode:
    """Return the run's exit code: what could not be found out stands above what failed.

    ``gate`` is the lightest tier whose failures count; errors and stale entries always do.
    """
    open_verdicts = [verdict for cell in cells for verdict in cell.unknown_failures]
    if any(verdict.status is Status.ERROR for verdict in open_verdicts):
        return ExitCode.ERROR
    counted = any(verdict.tier <= gate for verdict in open_verdicts)
    return ExitCode.FAILED if counted or stale else ExitCode.OK


def gates(cells: Iterable[CellResult]) -> tuple[Gate, ...]:
    """Return the gate of each harness and image, in the order of the cells."""
    verdicts: dict[tuple[str, str], list[Verdict]] = {}
    for cell in cells:
        harness, image, _ = split_id(cell.cell_id)
        verdicts.setdefault((harness, image), []).extend(cell.verdicts)
    return gates_of(verdicts)
