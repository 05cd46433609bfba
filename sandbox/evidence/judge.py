"""The judge: cell folders and a baseline in, verdicts and one exit code out.

Judging is a function of the recorded evidence, the checks, the baseline and the day; it runs
nothing, so an old run can be judged again at any time, with the same result.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sandbox.errors import CouldNotFindOut, NothingSelected
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.cell import CellRecord, RunRecord
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.checks.check import Check
from sandbox.evidence.folder import (
    CellFiles,
    attempt_folders,
    cell_folder,
    cell_id_of,
    find_cells,
    read_cell,
    read_run,
    write_text,
)
from sandbox.evidence.foretold import Comparison, Foretold, ended, read_preflight
from sandbox.evidence.preflight import PreflightReport
from sandbox.evidence.repeats import settle
from sandbox.evidence.results import (
    CellResult,
    CellState,
    CellVerdicts,
    RunOutcome,
    RunVerdicts,
    StaleEntry,
    Tally,
    passed_state,
    tally,
)
from sandbox.evidence.stale import stale_entries
from sandbox.evidence.verdict import CELL_RUN, Status, Tier, Verdict
from sandbox.evidence.view import CellEvidence

Told = Callable[[Path, CellResult, CellFiles], None]


def untold(folder: Path, result: CellResult, files: CellFiles) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Place:
    """Where cells are: the run's folder and those of its repetitions, or one cell's own folder."""

    attempts: tuple[Path, ...]
    single: bool

    def folders(self, name: str) -> list[Path]:
        """Return where the executions of a cell are, or would be."""
        return [one if self.single else cell_folder(one, name) for one in self.attempts]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What there is to judge in a run folder, or in one cell folder.

    ``names`` are the cell ids in the order of the plan; the last ones, which were not planned,
    begin at ``planned``. ``preflight`` is None where nothing was foretold.
    """

    place: Place
    record: RunRecord | None
    preflight: PreflightReport | None
    names: tuple[str, ...]
    planned: int


def sources(run: Path, *, only: Sequence[str] = ()) -> Sources:
    """Look for what there is to judge.

    ``only``: globs of cell ids; other cells of the run are left out, as if nobody had planned them.

    Raises:
        NothingSelected: there is no such cell in the folder, and none was planned.
        CouldNotFindOut: what was foretold cannot be read.
    """

    def wanted(cell_id: str) -> bool:
        return not only or any(fnmatchcase(cell_id, glob) for glob in only)

    record = read_run(run)
    attempts, single = attempt_folders(run), (run / "cell.json").is_file()
    names = dict.fromkeys(filter(wanted, record.cells if record is not None else ()))
    planned = len(names)
    found = {run.name} if single else set[str]()
    if not single:
        for attempt in attempts:
            found.update(cell_id_of(attempt, cell) for cell in find_cells(attempt))
    names.update(dict.fromkeys(sorted(filter(wanted, found - names.keys()))))
    if not names:
        raise NothingSelected(
            f"there is no {'such ' if only else ''}cell in {run}",
            cure="see the cells: sandbox judge DIR" if only else "give the folder of --output",
        )
    place = Place((run,) if single else attempts, single)
    return Sources(
        place=place,
        record=record,
        preflight=read_preflight(run),
        names=tuple(names),
        planned=planned,
    )


@dataclass(frozen=True, kw_only=True)
class Judge:
    """What judging takes beside the evidence; it can be sent to another process."""

    baseline: Baseline
    today: dt.date
    checks: Sequence[Check] | None = None

    def cell(
        self, name: str, folders: Iterable[Path], *, planned: bool, told: Told = untold
    ) -> CellResult:
        """Judge the executions of one cell, of which one was planned or is there.

        A cell that was repeated gets one result (``sandbox.evidence.repeats``); what was planned
        and is not there is an error. ``told`` hears of each folder with its result and facts, so
        that nobody needs to read them again.

        Raises:
            UsageError: two baseline entries contradict each other.
        """
        attempts = []
        for folder in folders:
            if (folder / "cell.json").is_file():
                attempts.append(self._folder(name, folder, told))
            elif planned:
                attempts.append(_lost(name))
        return settle(attempts)

    def _folder(self, name: str, folder: Path, told: Told) -> CellResult:
        try:
            evidence = CellEvidence(read_cell(folder))
        except CouldNotFindOut as error:
            return _unknown(name, error.message)
        if "/" in name and evidence.cell.cell_id != name:
            return _unknown(name, f"its cell.json is of {evidence.cell.cell_id}")
        checks = CHECKS.values() if self.checks is None else self.checks
        result = judge_cell(evidence, baseline=self.baseline, today=self.today, checks=checks)
        told(folder, result, evidence.files)
        return result


def judge(
    run: Path,
    *,
    baseline: Baseline,
    today: dt.date,
    checks: Iterable[Check] | None = None,
    gate: Tier = Tier.P2,
    only: Sequence[str] = (),
) -> RunVerdicts:
    """Judge every cell of a run folder (or one cell folder); nothing is written.

    All results are in memory then; reports are made cell by cell instead. ``gate`` is the lightest
    tier whose failures decide the exit code. ``only``: see ``sources``.

    Raises:
        NothingSelected: there is no such cell in the folder, and none was planned.
        UsageError: two baseline entries contradict each other.
    """
    found = sources(run, only=only)
    one = Judge(baseline=baseline, today=today, checks=None if checks is None else tuple(checks))
    comparison = Comparison(found.preflight) if found.preflight is not None else None

    def told(_folder: Path, _result: CellResult, files: CellFiles) -> None:
        if comparison is not None:
            comparison.add(ended(files))

    cells = tuple(
        one.cell(name, found.place.folders(name), planned=number < found.planned, told=told)
        for number, name in enumerate(found.names)
    )
    stale = stale_entries(baseline, cells, today)
    run_id = next((cell.record.run_id for cell in cells if cell.record is not None), None)
    foretold = comparison.end() if comparison is not None else None
    said = outcome(found.record, run_id, tally(cells), stale, gate, foretold=foretold)
    return RunVerdicts(**dict(said), cells=cells)


def outcome(
    record: RunRecord | None,
    run_id: str | None,
    counts: Tally,
    stale: tuple[StaleEntry, ...],
    gate: Tier,
    *,
    foretold: Foretold | None = None,
) -> RunOutcome:
    """Return what is said of a run; ``run_id`` is that of its cells, where it has no record."""
    return RunOutcome(
        run_id=record.run_id if record is not None else run_id or "unknown",
        profile=record.profile if record is not None else None,
        stale=stale,
        summary=counts.summary(stale),
        exit_code=int(counts.exit_code(stale, gate=gate, foretold=foretold)),
        gate=gate,
        gates=counts.gates(),
        foretold=foretold,
    )


def write_verdicts(folders: Sequence[Path], result: CellResult) -> None:
    """Write ``verdicts.json`` into each of the cell's folders that is there (``Place``)."""
    attempts = result.attempts or (result,)
    there = [folder for folder in folders if (folder / "cell.json").is_file()]
    # what was planned and lost has a result too; what was not planned has one where it is
    of = folders if len(attempts) == len(folders) else there
    for folder, one in zip(of, attempts, strict=True):
        if folder in there:
            found = CellVerdicts(cell_id=one.cell_id, state=one.state, verdicts=one.verdicts)
            _write_new(folder / "verdicts.json", found.model_dump_json(indent=2) + "\n")


def _write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet or says something else: a rename takes long."""
    try:
        if path.read_bytes() == text.encode():
            return
    except FileNotFoundError:
        pass
    write_text(path, text)


def judge_cell(
    evidence: CellEvidence, *, baseline: Baseline, today: dt.date, checks: Iterable[Check]
) -> CellResult:
    """Judge one cell; a refused cell has the one verdict ``cell_run``, a retried one has it too."""
    cell = evidence.cell
    if cell.refusal is not None:
        verdicts = [_refused(cell)]
    else:
        verdicts = [*_retried(cell), *(check.judge(evidence) for check in checks)]
    marked = tuple(_marked(cell, verdict, baseline, today) for verdict in verdicts)
    return CellResult(
        cell_id=cell.cell_id, record=cell, verdicts=marked, state=_state(cell, marked)
    )


def _lost(cell_id: str) -> CellResult:
    return _unknown(cell_id, "it was planned and not recorded: the run was stopped before its end")


def _unknown(cell_id: str, reason: str) -> CellResult:
    verdict = _cell_run(Status.ERROR, reason)
    return CellResult(cell_id=cell_id, record=None, verdicts=(verdict,), state=CellState.ERROR)


def _refused(cell: CellRecord) -> Verdict:
    assert cell.refusal is not None
    cure = f" (what to do: {cell.refusal.cure})" if cell.refusal.cure else ""
    before = _earlier(cell)
    again = f"; before that {before}" if before else ""
    return _cell_run(Status.ERROR, f"{cell.refusal.kind}: {cell.refusal.reason}{cure}{again}")


def _retried(cell: CellRecord) -> Iterator[Verdict]:
    """Yield that a cell ran at last, where the engine failed in earlier attempts."""
    before = _earlier(cell)
    if before:
        tries = len(cell.earlier_attempts)
        told = {"flaky": f"the engine failed in {tries} of {tries + 1} attempts"}
        yield _cell_run(Status.PASS, before).model_copy(update=told)


def _earlier(cell: CellRecord) -> str:
    return "; ".join(refusal.reason for refusal in cell.earlier_attempts)


def _cell_run(status: Status, reason: str) -> Verdict:
    return Verdict(
        check=CELL_RUN, tier=Tier.P0, kind="health", group="run", status=status, reason=reason
    )


def _marked(cell: CellRecord, verdict: Verdict, baseline: Baseline, today: dt.date) -> Verdict:
    """Note the baseline's reason on a verdict that its entry may cover."""
    entry = baseline.entry_for(cell.cell_id, verdict.check)
    coverable = verdict.status is Status.FAIL or _is_unsupported(cell, verdict)
    if entry is None or not coverable:
        return verdict
    if entry.is_expired(today):
        reason = f"{verdict.reason} (its baseline entry expired on {entry.expires})"
        return verdict.model_copy(update={"reason": reason})
    return verdict.model_copy(update={"known": entry.reason, "link": entry.link})


def _is_unsupported(cell: CellRecord, verdict: Verdict) -> bool:
    refusal = cell.refusal
    return verdict.check == CELL_RUN and refusal is not None and refusal.kind == "unsupported"


def _state(cell: CellRecord, verdicts: Sequence[Verdict]) -> CellState:
    if cell.refusal is not None and cell.refusal.kind == "unsupported":
        return CellState.REFUSED
    if any(v.status is Status.ERROR for v in verdicts):
        return CellState.ERROR
    failures = [v for v in verdicts if v.status is Status.FAIL]
    if any(v.known is None for v in failures):
        return CellState.FAIL
    return CellState.KNOWN if failures else passed_state(verdicts)
