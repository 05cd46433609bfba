"""Each check catches its planted defects, and cells without a defect pass every check."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.conformance.scenarios import SCENARIOS
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.cell import AgentRecord
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.judge import judge
from sandbox.evidence.observations import Gap
from sandbox.evidence.results import CellResult, CellState
from sandbox.evidence.verdict import Status
from tests.broken.defects import DEFECTS as COMMON
from tests.broken.defects import Defect
from tests.broken.goodcells import good, rejoined, write
from tests.broken.guarantee_defects import GUARANTEE_DEFECTS
from tests.broken.scenario_defects import SCENARIO_DEFECTS, yielded

DEFECTS = (*COMMON, *GUARANTEE_DEFECTS, *SCENARIO_DEFECTS)
TODAY = dt.date(2027, 1, 1)


def judged(folder: Path) -> CellResult:
    return judge(folder, baseline=Baseline(), today=TODAY).cells[0]


@pytest.mark.parametrize("dialect", ["responses", "chat"])
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_a_good_cell_passes_every_check(scenario: str, dialect: str, tmp_path: Path) -> None:
    found = judged(write(tmp_path / "cell", good(scenario, dialect)))  # type: ignore[arg-type]
    assert {v.check: v.reason for v in found.non_passes} == {}
    assert found.state is CellState.PASS
    assert [v.check for v in found.verdicts] == list(CHECKS)


def test_output_that_comes_with_a_poll_is_whole(tmp_path: Path) -> None:
    found = judged(write(tmp_path / "cell", yielded(good("long_tool"), polled=True)))
    assert {v.check: v.reason for v in found.non_passes} == {}


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_a_cell_of_an_agent_server_is_judged_by_what_the_contract_carries(
    scenario: str, tmp_path: Path
) -> None:
    found = judged(write(tmp_path / "cell", of_a_server(good(scenario))))
    assert {v.check: v.reason for v in found.non_passes} == {}
    assert found.state is CellState.PASS


def test_the_receipts_of_our_own_adapters_must_be_there(tmp_path: Path) -> None:
    files = of_a_server(good("tool_success"))
    ours = replace(files, cell=files.cell.model_copy(update={"agent": AgentRecord(name="codex")}))
    found = judged(write(tmp_path / "cell", ours))
    missing = {v.check for v in found.non_passes if v.reason.startswith("missing evidence")}
    assert {"receipt_confirmed", "install_exact", "outcome_class"} <= missing


def test_a_receipt_that_an_agent_server_cannot_have_is_judged_all_the_same(tmp_path: Path) -> None:
    files = good("tool_success")
    assert files.receipt is not None
    bad = files.receipt.model_copy(update={"cleanup_confirmed": False})
    agent = AgentRecord(name="x", url="http://x")
    cell = files.cell.model_copy(update={"agent": agent})
    found = judged(write(tmp_path / "cell", replace(files, cell=cell, receipt=bad)))
    assert "receipt_confirmed" in {v.check for v in found.non_passes}


def of_a_server(files: CellFiles) -> CellFiles:
    """The same cell as an agent server would have left it: without what it keeps itself."""
    gaps, row = [], files.row
    assert row is not None
    if files.receipt is not None and files.receipt.timed_out:
        gaps = [Gap(code="agent_run_timeout")]
    told = row.ng_agent_observations
    told = told.model_copy(update={"gaps": (*told.gaps, *gaps)})
    cell = files.cell.model_copy(
        update={
            "agent": AgentRecord(name="x", url="http://x"),
            "pin": None,
            "session_dir": None,
        }
    )
    return replace(rejoined(files, told), cell=cell, receipt=None, install=None, native=())


def test_every_check_passes_somewhere(tmp_path: Path) -> None:
    passing = set()
    for scenario in SCENARIOS:
        found = judged(write(tmp_path / scenario, good(scenario)))
        passing |= {v.check for v in found.verdicts if v.status is Status.PASS}
    assert passing == set(CHECKS)


def test_every_check_has_a_planted_defect() -> None:
    assert {defect.check for defect in DEFECTS} == set(CHECKS)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: f"{d.check}: {d.name}")
def test_the_check_catches_its_defect(defect: Defect, tmp_path: Path) -> None:
    folder = write(tmp_path / "cell", defect.files())
    defect.spoil(folder)
    found = judged(folder)
    failed = {v.check: v.reason for v in found.verdicts if v.status is Status.FAIL}
    errors = {v.check: v.reason for v in found.verdicts if v.status is Status.ERROR}
    assert errors == {}
    assert failed.get(defect.check), f"{defect.check} did not see it; failed: {failed}"
    assert set(failed) - {defect.check} <= defect.also, failed
    for verdict in found.verdicts:
        assert len(verdict.reason) < 600, f"too long for a terminal: {verdict}"


FILES = {
    "row": "rollouts.jsonl",
    "witness": "witness.json",
    "exchanges": "exchanges.jsonl",
    "receipt": "receipt.json",
    "install": "install.json",
    "egress": "egress.jsonl",
}


@pytest.mark.parametrize(("fact", "name"), FILES.items(), ids=list(FILES.values()))
def test_missing_evidence_fails_and_is_named(fact: str, name: str, tmp_path: Path) -> None:
    found = judged(write(tmp_path / "cell", replace(good(), **{fact: None})))  # type: ignore[arg-type]
    reasons = [v.reason for v in found.verdicts if v.status is Status.FAIL]
    assert any("missing evidence" in reason and name in reason for reason in reasons)
    assert found.state is CellState.FAIL


@pytest.mark.parametrize("name", sorted({*FILES.values(), "footprint.json"} - {"egress.jsonl"}))
def test_a_torn_file_fails_and_never_crashes(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "cell", good())
    path = folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = judged(folder)
    assert found.state is CellState.FAIL
    schema = next(v for v in found.verdicts if v.check == "row_schema")
    assert name in schema.reason
