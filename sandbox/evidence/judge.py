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
from sandbox.evidence.repeats import settle
from sandbox.evidence.results import (
    CellResult,
    CellState,
    CellVerdicts,
    RunVerdicts,
    exit_code,
    gates,
    passed_state,
    summarise,
)
from sandbox.evidence.stale import stale_entries
from sandbox.evidence.verdict import CELL_RUN, Status, Tier, Verdict
from sandbox.evidence.view import CellEvidence

Told = Callable[[Path, CellResult, CellFiles], None]


def untold(folder: Path, result: CellResult, files: CellFiles) -> None:
    """Tell nobody."""


def judge(
    run: Path,
    *,
    baseline: Baseline,
    today: dt.date,
    checks: Iterable[Check] = tuple(CHECKS.values()),
    gate: Tier = Tier.P2,
    told: Told = untold,
    only: Sequence[str] = (),
) -> RunVerdicts:
    """Judge every cell of a run folder (or one cell folder); nothing is written.

    A cell that was repeated gets one result (``sandbox.evidence.repeats``). ``gate`` is the
    lightest tier whose failures decide the exit code. ``told`` hears of each judged cell folder
    with its result and facts, so that nobody needs to read them again. ``only``: globs of cell
    ids; other cells of the run are left out, as if nobody had planned them.

    Raises:
        NothingSelected: there is no such cell in the folder, and none was planned.
        UsageError: two baseline entries contradict each other.
    """
    record = read_run(run)
    one = _Judge(baseline=baseline, today=today, checks=tuple(checks), told=told, only=tuple(only))
    planned = tuple(filter(one.wants, record.cells if record is not None else ()))
    attempts: dict[str, list[CellResult]] = {}
    for folder in attempt_folders(run):
        for result in one.attempt(folder, planned):
            attempts.setdefault(result.cell_id, []).append(result)
    if not attempts:
        raise NothingSelected(
            f"there is no {'such ' if only else ''}cell in {run}",
            cure="see the cells: sandbox judge DIR" if only else "give the folder of --output",
        )
    order = {name: number for number, name in enumerate(planned)}
    names = sorted(attempts, key=lambda name: (order.get(name, len(order)), name))
    cells = tuple(settle(attempts[name]) for name in names)
    return _verdicts(record, cells, baseline, today, gate)


def write_verdicts(run: Path, verdicts: RunVerdicts) -> None:
    """Write ``verdicts.json`` into the folder of each cell that has one."""
    single = (run / "cell.json").is_file()
    folders = attempt_folders(run)
    for result in verdicts.cells:
        for attempt, one in zip(folders, result.attempts or (result,), strict=False):
            folder = attempt if single else cell_folder(attempt, one.cell_id)
            if (folder / "cell.json").is_file():
                found = CellVerdicts(cell_id=one.cell_id, state=one.state, verdicts=one.verdicts)
                write_text(folder / "verdicts.json", found.model_dump_json(indent=2) + "\n")


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


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """What judging one cell takes beside its folder."""

    baseline: Baseline
    today: dt.date
    checks: Sequence[Check]
    told: Told
    only: Sequence[str]

    def wants(self, cell_id: str) -> bool:
        """Whether the cell is one of those to judge."""
        return not self.only or any(fnmatchcase(cell_id, glob) for glob in self.only)

    def attempt(self, run: Path, planned: Sequence[str]) -> list[CellResult]:
        """Judge one execution of each cell; what was planned and is not there is an error."""
        folders = (path for path in find_cells(run) if self.wants(_name_of(run, path)))
        found = [self._folder(run, path) for path in folders]
        recorded = {result.cell_id for result in found}
        return [*found, *(_lost(name) for name in planned if name not in recorded)]

    def _folder(self, run: Path, path: Path) -> CellResult:
        name = _name_of(run, path)
        try:
            evidence = CellEvidence(read_cell(path))
        except CouldNotFindOut as error:
            return _unknown(name, error.message)
        if path != run and evidence.cell.cell_id != name:
            return _unknown(name, f"its cell.json is of {evidence.cell.cell_id}")
        result = judge_cell(evidence, baseline=self.baseline, today=self.today, checks=self.checks)
        self.told(path, result, evidence.files)
        return result


def _name_of(run: Path, path: Path) -> str:
    return cell_id_of(run, path) if path != run else path.name


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


def _verdicts(
    record: RunRecord | None,
    cells: tuple[CellResult, ...],
    baseline: Baseline,
    today: dt.date,
    gate: Tier,
) -> RunVerdicts:
    stale = stale_entries(baseline, cells, today)
    return RunVerdicts(
        run_id=record.run_id if record is not None else _run_id(cells),
        profile=record.profile if record is not None else None,
        cells=cells,
        stale=stale,
        summary=summarise(cells, stale),
        exit_code=int(exit_code(cells, stale, gate=gate)),
        gate=gate,
        gates=gates(cells),
    )


def _run_id(cells: Iterable[CellResult]) -> str:
    return next((cell.record.run_id for cell in cells if cell.record is not None), "unknown")
