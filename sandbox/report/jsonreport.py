"""``results.json``: the whole judged run for programs, with a schema version."""

from __future__ import annotations

from typing import Literal

from sandbox.evidence.cell import CellRecord
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.foretold import Foretold
from sandbox.evidence.gates import Gate
from sandbox.evidence.records import Record
from sandbox.evidence.results import (
    CellResult,
    CellState,
    RunOutcome,
    StaleEntry,
    Summary,
    split_id,
)
from sandbox.evidence.verdict import Kind, Tier, Verdict


class CheckInfo(Record):
    """A check as results name it."""

    id: str
    tier: Tier
    kind: Kind
    group: str
    why: str


class CellReport(Record):
    """One cell: identity, versions, times and verdicts."""

    cell_id: str
    harness: str
    image: str
    scenario: str
    state: CellState
    proves: str | None
    version: str | None
    platform: str | None
    bundle_sha256: str | None
    image_id: str | None
    interface: str | None
    isolation: str | None
    started_at: float | None
    completed_at: float | None
    phases: dict[str, float]
    attempts: int
    verdicts: tuple[Verdict, ...]


class Results(Record):
    """The file; it has one line for each cell.

    Version 1.1 added ``gate`` and ``gates``, the state ``flaky``, each cell's ``attempts`` and each
    verdict's ``link`` and ``flaky``. Version 1.2 added ``foretold``.
    """

    schema_version: Literal["1.2"] = "1.2"
    run_id: str
    profile: str | None
    exit_code: int
    gate: Tier
    summary: Summary
    gates: tuple[Gate, ...]
    stale: tuple[StaleEntry, ...]
    foretold: Foretold | None
    checks: tuple[CheckInfo, ...]
    cells: tuple[CellReport, ...]


def cell_json(cell: CellResult) -> str:
    """Return one cell as the one line that the file has of it."""
    return _cell(cell).model_dump_json()


def results_frame(run: RunOutcome) -> tuple[str, str]:
    """Return what stands before and after the lines of the cells, which commas part."""
    empty = Results(
        run_id=run.run_id,
        profile=run.profile,
        exit_code=run.exit_code,
        gate=run.gate,
        summary=run.summary,
        gates=run.gates,
        stale=run.stale,
        foretold=run.foretold,
        checks=tuple(
            CheckInfo(id=c.id, tier=c.tier, kind=c.kind, group=c.group, why=c.why)
            for c in CHECKS.values()
        ),
        cells=(),
    )
    text = empty.model_dump_json(indent=2)
    head, _, _ = text.rpartition("[]")
    return f"{head}[\n", "\n]}\n"


def _cell(cell: CellResult) -> CellReport:
    harness, image, scenario = split_id(cell.cell_id)
    record: CellRecord | None = cell.record
    pin = record.pin if record is not None else None
    engine_image = record.image_record if record is not None else None
    return CellReport(
        cell_id=cell.cell_id,
        harness=harness,
        image=image,
        scenario=scenario,
        state=cell.state,
        proves=record.expectation.proves if record is not None else None,
        version=pin.version if pin is not None else None,
        platform=pin.platform if pin is not None else None,
        bundle_sha256=pin.bundle_sha256 if pin is not None else None,
        image_id=engine_image.image_id if engine_image is not None else None,
        interface=record.interface if record is not None else None,
        isolation=record.isolation if record is not None else None,
        started_at=record.started_at if record is not None else None,
        completed_at=record.completed_at if record is not None else None,
        phases=record.phases if record is not None else {},
        attempts=len(cell.attempts) or 1,
        verdicts=cell.verdicts,
    )
