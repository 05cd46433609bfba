"""What a judged run is: cells with states, stale baseline entries, counts and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal

from sandbox.errors import ExitCode
from sandbox.evidence.cell import CellRecord
from sandbox.evidence.foretold import Foretold
from sandbox.evidence.gates import Counts, Gate, counted, gates_of, scores
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


class RunOutcome(Record):
    """What is said of a whole judged run, its cells apart.

    ``foretold`` is None where the run made no preflight.
    """

    schema_version: Literal["1.0"] = "1.0"
    run_id: str
    profile: str | None
    stale: tuple[StaleEntry, ...]
    summary: Summary
    exit_code: int
    gate: Tier = Tier.P2
    gates: tuple[Gate, ...] = ()
    foretold: Foretold | None = None


class RunVerdicts(RunOutcome):
    """A judged run with all its cells in memory; reports do without (``sandbox.report``)."""

    cells: tuple[CellResult, ...]


class Tally:
    """Counts over the cells of a run as they come; its size does not depend on their number."""

    def __init__(self) -> None:
        self._states: Counter[CellState] = Counter()
        self._all: Counts = Counter()
        self._rows: dict[tuple[str, str], Counts] = {}

    def add(self, cell_id: str, state: CellState, counts: Counts) -> None:
        """Count one cell."""
        harness, image, _ = split_id(cell_id)
        self._states[state] += 1
        self._all += counts
        self._rows.setdefault((harness, image), Counter()).update(counts)

    def summary(self, stale: Sequence[StaleEntry]) -> Summary:
        """Return states, statuses and, for each tier, how many applicable verdicts pass."""
        statuses: Counter[Status] = Counter()
        for kind, number in self._all.items():
            statuses[kind.status] += number
        return Summary(
            cells={state.value: self._states[state] for state in CellState},
            verdicts={status.value: statuses[status] for status in Status},
            known=sum(number for kind, number in self._all.items() if kind.known),
            stale=len(stale),
            tiers=scores(self._all),
        )

    def exit_code(
        self,
        stale: Sequence[StaleEntry],
        *,
        gate: Tier = Tier.P2,
        foretold: Foretold | None = None,
    ) -> ExitCode:
        """Return the run's exit code: what could not be found out stands above what failed.

        ``gate`` is the lightest tier whose failures count; errors, stale entries and cells that
        ended otherwise than foretold always do.
        """
        opened = [kind for kind in self._all if kind.is_open]
        if any(kind.status is Status.ERROR for kind in opened):
            return ExitCode.ERROR
        counts = any(kind.tier <= gate for kind in opened)
        wrong = foretold is not None and foretold.disagreeing
        return ExitCode.FAILED if counts or stale or wrong else ExitCode.OK

    def gates(self) -> tuple[Gate, ...]:
        """Return the gate of each harness and image, in the order of the cells."""
        return gates_of(self._rows)


def tally(cells: Iterable[CellResult]) -> Tally:
    """Count the cells."""
    counts = Tally()
    for cell in cells:
        counts.add(cell.cell_id, cell.state, counted(cell.verdicts))
    return counts
