"""What differs between two judged runs, and what never counts as a difference."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.commands.pins_cells import Behaviour, conclude
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.difference import Difference, Differing, Judged
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.judge import judge_cell
from sandbox.evidence.records import EgressEvent, FileChange
from sandbox.evidence.verdict import Status
from sandbox.evidence.view import CellEvidence
from sandbox.report.differencetext import difference_lines
from tests.broken.goodcells import good

GOOD = good()
CELL = GOOD.cell.cell_id


def judged(files: CellFiles | None) -> Judged | None:
    if files is None:
        return None
    checks = tuple(CHECKS.values())
    cell = judge_cell(
        CellEvidence(files), baseline=Baseline(), today=dt.date(2026, 1, 1), checks=checks
    )
    return Judged(0, cell, files)


def between(old: CellFiles, new: CellFiles | None) -> Difference:
    found = Differing()
    found.add(CELL, judged(old), judged(new))
    return found.end()


def changed(**fields: object) -> CellFiles:
    return replace(GOOD, **fields)  # type: ignore[arg-type]


def test_the_same_cell_twice_differs_in_nothing() -> None:
    found = between(GOOD, GOOD)
    assert (found.verdicts, found.names, found.unknown, found.failing) == ((), (), (), ())
    assert all(figure.old == figure.new for figure in found.figures)
    assert found.states["old"] == found.states["new"]


def test_a_check_that_fails_now_is_named_with_the_reason_of_the_side_that_fails() -> None:
    broken = changed(receipt=None)
    found = between(GOOD, broken)
    assert found.verdicts
    assert all((one.old, one.new) == (Status.PASS, Status.FAIL) for one in found.verdicts)
    assert all("receipt.json" in one.reason for one in found.verdicts)
    assert found.failing == (CELL,)
    back = between(broken, GOOD)
    assert {one.check for one in back.verdicts} == {one.check for one in found.verdicts}
    assert all("receipt.json" in one.reason for one in back.verdicts)


def test_what_fails_on_both_sides_is_no_difference_and_is_not_hidden() -> None:
    broken = changed(receipt=None)
    found = between(broken, broken)
    assert (found.verdicts, found.failing) == ((), (CELL,))
    assert any("no baseline entry" in line for line in difference_lines(found))


def footprint(*paths: str) -> CellFiles:
    return changed(footprint=tuple(FileChange(path=path, change="added") for path in paths))


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("/tmp/run-0123456789abcdef/x", "/tmp/run-fedcba9876543210/x", True),
        ("/tmp/log.12345", "/tmp/log.54321", True),
        ("/root/.cache/a", "/root/.config/a", False),
    ],
)
def test_paths_are_compared_without_what_each_run_invents(old: str, new: str, same: bool) -> None:
    names = between(footprint(old), footprint(new)).names
    assert (names == ()) is same
    if not same:
        assert (names[0].gone, names[0].added) == ((f"added {old}",), (f"added {new}",))


def test_a_name_that_is_asked_for_now_is_told() -> None:
    event = EgressEvent(at=1.0, name="telemetry.example", record_type="A")
    found = between(changed(egress=()), changed(egress=(event,)))
    assert any(line == "egress: only now: telemetry.example" for line in difference_lines(found))


@pytest.mark.parametrize(
    ("new", "code"),
    [
        pytest.param(lambda: GOOD, 0, id="same"),
        pytest.param(lambda: changed(receipt=None), 1, id="fails"),
    ],
)
def test_the_exit_code(
    new: Callable[[], CellFiles], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Behaviour(bumps=(), sizes=(), difference=between(GOOD, new()), results=tmp_path)
    assert conclude(found, as_json=True) == code
    assert capsys.readouterr().out == (tmp_path / "difference.json").read_text()


def test_a_cell_of_one_side_only_is_unknown(tmp_path: Path) -> None:
    found = between(GOOD, None)
    assert found.unknown == (CELL,)
    answer = Behaviour(bumps=(), sizes=(), difference=found, results=tmp_path)
    assert conclude(answer, as_json=False) == 4
