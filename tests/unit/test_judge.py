"""Judging a run: states, the baseline, staleness, exit codes, and the same result each time."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from sandbox.errors import NothingSelected, UsageError
from sandbox.evidence.baseline import Baseline, KnownFailure
from sandbox.evidence.cell import Refusal, RunRecord
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.folder import CellFiles, attempt_folder, cell_folder, write_run
from sandbox.evidence.judge import judge, sources, write_verdicts
from sandbox.evidence.observations import ToolStatus
from sandbox.evidence.results import CellState, CellVerdicts, RunVerdicts
from sandbox.evidence.verdict import Status, Tier
from tests.broken.defects import tool_status, with_cell, with_observed, with_witness
from tests.broken.goodcells import START, good, write

TODAY = dt.date(2027, 1, 1)
REASON = "the harness stores exit 7 as completed"


def wrong_status(image: str = "debian-12") -> CellFiles:
    return with_observed(good("tool_failure", image=image), tool_status(ToolStatus.COMPLETED))


def refused(kind: str) -> CellFiles:
    refusal = Refusal(kind=kind, reason="no bash", cure="add bash")
    return CellFiles(cell=good().cell.model_copy(update={"refusal": refusal}))


def run_of(tmp_path: Path, *cells: CellFiles, planned: tuple[str, ...] = ()) -> Path:
    run = tmp_path / "run"
    ids = tuple(files.cell.cell_id for files in cells)
    record = RunRecord(run_id="run1", profile="quick", cells=(*ids, *planned), started_at=START)
    write_run(run, record)
    for files in cells:
        write(cell_folder(run, files.cell.cell_id), files)
    return run


def judged(run: Path, *entries: KnownFailure, today: dt.date = TODAY) -> RunVerdicts:
    return judge(run, baseline=Baseline(known=entries), today=today)


def keep(run: Path, found: RunVerdicts) -> None:
    for cell in found.cells:
        write_verdicts(sources(run).place.folders(cell.cell_id), cell)


def known(
    cell: str = "codex/*/tool_failure",
    check: str = "tool_status",
    expires: dt.date | None = None,
    *,
    sometimes: bool = False,
) -> KnownFailure:
    return KnownFailure(cell=cell, check=check, reason=REASON, expires=expires, sometimes=sometimes)


def test_a_cell_of_an_image_by_reference_is_found_again(tmp_path: Path) -> None:
    """Its folder has another name than its id has: there are no colons on disk."""
    found = judged(run_of(tmp_path, good("tool_success", image="local+task:1")))
    assert [(one.cell_id, one.state) for one in found.cells] == [
        ("codex/local+task:1/tool_success", CellState.PASS)
    ]


def test_a_clean_run(tmp_path: Path) -> None:
    found = judged(run_of(tmp_path, good("tool_success"), good("model_error")))
    assert found.exit_code == 0
    assert found.run_id == "run1"
    assert [cell.state for cell in found.cells] == [CellState.PASS] * 2
    assert found.summary.cells["pass"] == 2
    assert set(found.summary.tiers) == {"P0", "P1", "P2"}


def test_cells_keep_the_order_of_the_plan(tmp_path: Path) -> None:
    found = judged(
        run_of(tmp_path, good("tool_success"), good("model_error", "chat"), good("retry_500"))
    )
    assert [cell.cell_id.split("/")[2] for cell in found.cells] == [
        "tool_success",
        "model_error",
        "retry_500",
    ]


def test_a_failure_ends_with_1(tmp_path: Path) -> None:
    found = judged(run_of(tmp_path, wrong_status()))
    assert (found.exit_code, found.cells[0].state) == (1, CellState.FAIL)
    assert [v.check for v in found.cells[0].unknown_failures] == ["tool_status"]


def test_a_known_failure_ends_with_0_and_keeps_its_reason(tmp_path: Path) -> None:
    found = judged(run_of(tmp_path, wrong_status()), known())
    assert (found.exit_code, found.cells[0].state) == (0, CellState.KNOWN)
    assert found.cells[0].non_passes[0].known == REASON
    assert found.summary.known == 1


def test_an_expired_entry_counts_no_more(tmp_path: Path) -> None:
    found = judged(run_of(tmp_path, wrong_status()), known(expires=dt.date(2026, 12, 31)))
    assert found.exit_code == 1
    assert "expired on 2026-12-31" in found.cells[0].non_passes[0].reason
    assert found.stale == ()


def test_a_stale_entry_ends_with_1(tmp_path: Path) -> None:
    found = judged(run_of(tmp_path, good("tool_failure")), known())
    assert found.exit_code == 1
    assert [(s.cell, s.check, s.near) for s in found.stale] == [
        ("codex/*/tool_failure", "tool_status", None)
    ]
    assert found.cells[0].state is CellState.PASS


def test_what_fails_only_sometimes_is_known_when_it_does_and_never_stale(tmp_path: Path) -> None:
    sometimes = known(sometimes=True)
    assert judged(run_of(tmp_path / "fine", good("tool_failure")), sometimes).exit_code == 0
    failed = judged(run_of(tmp_path / "bad", wrong_status()), sometimes)
    assert (failed.exit_code, failed.cells[0].state) == (0, CellState.KNOWN)


def test_an_entry_is_used_when_one_of_its_cells_fails(tmp_path: Path) -> None:
    run = run_of(tmp_path, wrong_status(), good("tool_failure", image="alpine-3.23"))
    assert judged(run, known()).exit_code == 0


def test_entries_of_cells_outside_the_run_are_left_alone(tmp_path: Path) -> None:
    assert judged(run_of(tmp_path, good()), known(cell="opencode/*/*")).exit_code == 0


def test_the_near_miss_of_a_stale_entry_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path, wrong_status(), good("tool_failure", image="alpine-3.23"))
    other_cell = judged(run, known(cell="codex/alpine-*/tool_failure")).stale[0]
    assert other_cell.near is not None
    assert "tool_status fails in codex/debian-12/tool_failure" in other_cell.near
    other_check = judged(run, known(check="tool_output")).stale[0]
    assert other_check.near is not None
    assert other_check.near.startswith("tool_status fails in a cell")


def test_contradicting_entries_are_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two baseline entries"):
        judged(run_of(tmp_path, wrong_status()), known(), known(cell="codex/*/*"))


@pytest.mark.parametrize(
    ("kind", "state"), [("error", CellState.ERROR), ("unsupported", CellState.REFUSED)]
)
def test_a_refused_cell_never_passes(kind: str, state: CellState, tmp_path: Path) -> None:
    found = judged(run_of(tmp_path, refused(kind)))
    assert (found.exit_code, found.cells[0].state) == (4, state)
    (verdict,) = found.cells[0].verdicts
    assert (verdict.check, verdict.status) == ("cell_run", Status.ERROR)
    assert verdict.reason == f"{kind}: no bash (what to do: add bash)"


def test_the_baseline_covers_what_is_unsupported_and_no_error(tmp_path: Path) -> None:
    entry = known(cell="codex/*/*", check="cell_run")
    unsupported = judged(run_of(tmp_path / "a", refused("unsupported")), entry)
    assert (unsupported.exit_code, unsupported.cells[0].state) == (0, CellState.REFUSED)
    assert judged(run_of(tmp_path / "b", refused("error")), entry).exit_code == 4


def test_an_unsupported_entry_is_stale_once_the_cell_runs(tmp_path: Path) -> None:
    found = judged(run_of(tmp_path, good()), known(cell="codex/*/*", check="cell_run"))
    assert (found.exit_code, len(found.stale)) == (1, 1)


def test_what_could_not_be_found_out_stands_above_what_failed(tmp_path: Path) -> None:
    lost = "codex/debian-12/retry_500"
    found = judged(run_of(tmp_path, wrong_status(), planned=(lost,)))
    assert found.exit_code == 4
    assert found.cells[1].cell_id == lost
    assert found.cells[1].record is None
    assert "planned and not recorded" in found.cells[1].verdicts[0].reason


def test_an_unreadable_cell_record_is_an_error_of_that_cell(tmp_path: Path) -> None:
    run = run_of(tmp_path, good(), good("model_error"))
    (cell_folder(run, good().cell.cell_id) / "cell.json").write_text("{")
    found = judged(run)
    assert [cell.state for cell in found.cells] == [CellState.ERROR, CellState.PASS]
    assert "cannot be judged" in found.cells[0].verdicts[0].reason


def test_a_cell_in_another_s_folder_is_an_error(tmp_path: Path) -> None:
    run = run_of(tmp_path, good())
    folder = cell_folder(run, good().cell.cell_id)
    folder.rename(folder.with_name("model_error"))
    found = judged(run)
    assert {cell.cell_id: cell.state for cell in found.cells} == {
        "codex/debian-12/tool_success": CellState.ERROR,
        "codex/debian-12/model_error": CellState.ERROR,
    }


def test_an_error_keeps_a_baseline_entry_from_being_stale(tmp_path: Path) -> None:
    run = run_of(tmp_path, refused("error"))
    assert judged(run, known(cell="codex/*/*")).stale == ()


def test_an_empty_folder_selects_nothing(tmp_path: Path) -> None:
    with pytest.raises(NothingSelected):
        judged(tmp_path)


def test_one_cell_folder_can_be_judged_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "anything", wrong_status())
    found = judged(folder)
    assert (found.run_id, found.exit_code) == ("run1", 1)
    keep(folder, found)
    assert (folder / "verdicts.json").is_file()


def test_some_cells_of_a_run_can_be_judged_alone(tmp_path: Path) -> None:
    lost = ("codex/debian-12/reasoning", "pi/debian-12/reasoning")
    run = run_of(tmp_path, good("tool_success"), wrong_status(), planned=lost)
    found = judge(run, baseline=Baseline(), today=TODAY, only=("codex/*/*_success", "pi/*"))
    assert [(one.cell_id, one.state) for one in found.cells] == [
        ("codex/debian-12/tool_success", CellState.PASS),
        ("pi/debian-12/reasoning", CellState.ERROR),
    ]
    with pytest.raises(NothingSelected, match="no such cell"):
        judge(run, baseline=Baseline(), today=TODAY, only=("hermes/*",))


def test_judging_again_gives_identical_files(tmp_path: Path) -> None:
    run = run_of(tmp_path, wrong_status(), good("model_error"), planned=("a/b/c",))
    first = judged(run, known())
    keep(run, first)
    texts = {p: p.read_text() for p in run.glob("cells/*/*/*/verdicts.json")}
    assert len(texts) == 2
    second = judged(run, known())
    keep(run, second)
    assert second == first
    assert {p: p.read_text() for p in texts} == texts


def test_verdict_files_are_read_again(tmp_path: Path) -> None:
    run = run_of(tmp_path, wrong_status())
    found = judged(run, known())
    keep(run, found)
    text = (cell_folder(run, found.cells[0].cell_id) / "verdicts.json").read_text()
    kept = CellVerdicts.model_validate_json(text, strict=True)
    assert kept.state is CellState.KNOWN
    assert kept.verdicts == found.cells[0].verdicts
    assert json.loads(text)["schema_version"] == "1.0"


def test_only_asked_for_checks_are_judged(tmp_path: Path) -> None:
    run = run_of(tmp_path, with_witness(good(), survivors=None))
    found = judge(run, baseline=Baseline(), today=TODAY, checks=[CHECKS["row_schema"]])
    assert [v.check for v in found.cells[0].verdicts] == ["row_schema"]
    assert found.exit_code == 0


def test_a_gate_names_the_lightest_tier_that_holds(tmp_path: Path) -> None:
    p1 = with_witness(good("model_error"), session_dir_gone=False)
    found = judged(run_of(tmp_path, good(), p1, wrong_status(image="alpine-3.23")))
    gates = {(gate.harness, gate.image): gate for gate in found.gates}
    assert gates["codex", "debian-12"].reached is Tier.P0
    assert gates["codex", "debian-12"].open == {"P0": 0, "P1": 1, "P2": 0}
    assert gates["codex", "alpine-3.23"].reached is None
    known_too = judged(tmp_path / "run", known()).gates
    assert [gate.reached for gate in known_too] == [Tier.P0, Tier.P2]


def test_failures_lighter_than_the_gate_do_not_decide(tmp_path: Path) -> None:
    run = run_of(tmp_path, with_witness(good("model_error"), session_dir_gone=False))

    def code(gate: Tier) -> int:
        return judge(run, baseline=Baseline(), today=TODAY, gate=gate).exit_code

    assert {tier: code(tier) for tier in Tier} == {Tier.P0: 0, Tier.P1: 1, Tier.P2: 1}


def repeated(tmp_path: Path, *attempts: CellFiles) -> Path:
    run = run_of(tmp_path, attempts[0])
    for number, files in enumerate(attempts[1:], start=2):
        write(cell_folder(attempt_folder(run, number), files.cell.cell_id), files)
    return run


def test_a_check_that_fails_in_some_attempts_is_flaky_and_fails(tmp_path: Path) -> None:
    run = repeated(tmp_path, good("tool_failure"), wrong_status(), good("tool_failure"))
    (cell,) = (found := judged(run)).cells
    assert (found.exit_code, cell.state) == (1, CellState.FLAKY)
    (flaky,) = cell.unknown_failures
    assert (flaky.check, flaky.flaky) == ("tool_status", "failed in 1 of 3 attempts")
    assert [attempt.state.value for attempt in cell.attempts] == ["pass", "fail", "pass"]
    assert judged(run, known()).exit_code == 0


def retried(files: CellFiles) -> CellFiles:
    gone = Refusal(kind="error", reason="the container is gone")
    return with_cell(files, earlier_attempts=(gone,))


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_pass_after_the_engine_failed_is_flaky_and_passes(attempts: int, tmp_path: Path) -> None:
    run = repeated(tmp_path, *[good()] * (attempts - 1), retried(good()))
    (cell,) = judged(run).cells
    assert (cell.state, judged(run).exit_code) == (CellState.FLAKY, 0)
    (told,) = cell.retried
    assert (told.check, told.reason) == ("cell_run", "the container is gone")


def test_other_failures_count_after_the_engine_failed_too(tmp_path: Path) -> None:
    found = judged(run_of(tmp_path, retried(wrong_status())))
    assert (found.cells[0].state, found.exit_code) == (CellState.FAIL, 1)
    again = judged(run_of(tmp_path / "2", retried(refused("error"))))
    assert again.exit_code == 4
    assert "before that the container is gone" in again.cells[0].verdicts[0].reason


def test_what_fails_in_every_attempt_is_not_flaky(tmp_path: Path) -> None:
    (cell,) = judged(repeated(tmp_path, wrong_status(), wrong_status())).cells
    assert (cell.state, cell.unknown_failures[0].flaky) == (CellState.FAIL, None)


def test_a_repetition_that_was_lost_is_an_error(tmp_path: Path) -> None:
    run = repeated(tmp_path, good())
    (run / "repeats" / "2" / "cells").mkdir(parents=True)
    found = judged(run)
    assert (found.exit_code, found.cells[0].state) == (4, CellState.FLAKY)


def test_each_attempt_keeps_its_own_verdicts(tmp_path: Path) -> None:
    run = repeated(tmp_path, good("tool_failure"), wrong_status())
    keep(run, judged(run))
    states = [
        CellVerdicts.model_validate_json((folder / "verdicts.json").read_bytes()).state.value
        for folder in (
            cell_folder(attempt_folder(run, n), "codex/debian-12/tool_failure") for n in (1, 2)
        )
    ]
    assert states == ["pass", "fail"]


def test_an_entry_s_link_travels_with_the_verdict(tmp_path: Path) -> None:
    entry = known().model_copy(update={"link": "https://example.org/1"})
    assert judged(run_of(tmp_path, wrong_status()), entry).cells[0].non_passes[0].link == entry.link
    assert judged(run_of(tmp_path / "b", good("tool_failure")), entry).stale[0].link == entry.link
