"""Runs beside each other: merged from shards, compared, and one cell's story told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.cli import main
from sandbox.errors import UsageError
from sandbox.evidence.cell import RunConfiguration, RunRecord
from sandbox.evidence.compare import Comparison
from sandbox.evidence.folder import CellFiles, attempt_folder, cell_folder, write_run
from sandbox.evidence.merge import merge
from sandbox.evidence.records import Survivor
from sandbox.evidence.story import story
from tests.broken.defects import with_cell, with_witness
from tests.broken.goodcells import good, write

SCENARIOS = ("tool_success", "tool_failure", "model_error", "retry_500")
PLAN = tuple(f"codex/debian-12/{name}" for name in SCENARIOS)
CONFIGURATION = RunConfiguration(profile="quick", plan=PLAN, tool_version="1")


def cell_of(name: str) -> CellFiles:
    files = good(name.rsplit("/", 1)[1])
    return with_witness(files, session_dir_gone=False) if name == PLAN[1] else files


def run_of(
    run: Path,
    *cells: CellFiles,
    run_id: str = "run1",
    planned: tuple[str, ...] | None = None,
    configuration: RunConfiguration = CONFIGURATION,
) -> Path:
    names = planned or tuple(files.cell.cell_id for files in cells)
    write_run(run, record(run_id, names, configuration))
    for files in cells:
        write(cell_folder(run, files.cell.cell_id), files)
    return run


def record(
    run_id: str, cells: tuple[str, ...], configuration: RunConfiguration = CONFIGURATION
) -> RunRecord:
    return RunRecord(
        run_id=run_id,
        profile="quick",
        cells=cells,
        started_at=1.0,
        tool_version="1",
        configuration=configuration,
    )


def results(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "results.json").read_text())
    return found


def test_a_merged_report_equals_an_unsharded_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = run_of(tmp_path / "whole", *map(cell_of, PLAN))
    parts = [
        run_of(tmp_path / f"part{n}", *map(cell_of, PLAN[n::2]), run_id=f"part{n}") for n in (1, 0)
    ]
    codes = [
        main(["judge", str(whole)]),
        main(["merge", *map(str, parts), "--output", str(tmp_path / "merged")]),
    ]
    assert codes == [1, 1]
    assert "4 cells" in capsys.readouterr().out
    merged = results(tmp_path / "merged")
    assert merged["run_id"] == "part1+part0"
    assert {**merged, "run_id": "run1"} == results(whole)
    for name in ("summary.md", "junit.xml"):
        text = (tmp_path / "merged" / name).read_text().replace("part1+part0", "run1")
        assert text == (whole / name).read_text()


def test_repetitions_are_merged_too(tmp_path: Path) -> None:
    for n, name in enumerate(PLAN[:2]):
        for number in (1, 2):
            run_of(attempt_folder(tmp_path / f"p{n}", number), cell_of(name), planned=(name,))
    parts = [str(tmp_path / f"p{n}") for n in (0, 1)]
    main(["merge", *parts, "--output", str(tmp_path / "merged")])
    found = json.loads((tmp_path / "merged" / "results.json").read_text())
    assert [cell["attempts"] for cell in found["cells"]] == [2, 2, 2, 2]


def test_a_shard_that_is_missing_leaves_its_cells_lost(tmp_path: Path) -> None:
    part = run_of(tmp_path / "part", cell_of(PLAN[0]))
    assert main(["merge", str(part), "--output", str(tmp_path / "merged")]) == 4
    states = [cell["state"] for cell in results(tmp_path / "merged")["cells"]]  # type: ignore[attr-defined]
    assert states == ["pass", "error", "error", "error"]


def test_parts_that_do_not_belong_together_are_refused() -> None:
    other = CONFIGURATION.model_copy(update={"profile": "full"})
    parts = {Path("a"): record("a", PLAN[:1]), Path("b"): record("b", PLAN[1:2], other)}
    with pytest.raises(UsageError, match="profile: quick, now full"):
        merge(parts, {Path("a"): PLAN[:1], Path("b"): PLAN[1:2]})
    parts = {Path("a"): record("a", PLAN[:1]), Path("b"): record("b", PLAN[:1])}
    with pytest.raises(UsageError, match="is in a and in b"):
        merge(parts, {Path("a"): PLAN[:1], Path("b"): PLAN[:1]})


def changed(files: CellFiles) -> CellFiles:
    pin = files.cell.pin
    assert pin is not None
    newer = pin.model_copy(update={"version": "1.2.4"})
    return with_cell(files, pin=newer, completed_at=files.cell.completed_at + 60)


def compared(
    capsys: pytest.CaptureFixture[str], before: Path, after: Path
) -> tuple[int, Comparison]:
    capsys.readouterr()
    code = main(["diff", str(before), str(after), "--json"])
    return code, Comparison.model_validate_json(capsys.readouterr().out)


def test_a_difference_names_pins_verdicts_cells_and_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = run_of(tmp_path / "a", good("tool_success"), cell_of(PLAN[1]), good("model_error"))
    worse = with_witness(changed(good("tool_success")), session_dir_gone=False)
    after = run_of(tmp_path / "b", worse, good("tool_failure"), good("retry_500"), run_id="run2")
    code, found = compared(capsys, before, after)
    assert code == 1
    (pin,) = found.pins
    assert pin.name == "codex linux-x64-gnu"
    assert (pin.before or "").startswith("1.2.3 ")
    assert "1.2.4 " in (pin.after or "")
    regressions = [(one.cell_id, one.check, one.before, one.after) for one in found.regressions]
    assert (PLAN[0], "session_dir_gone", "pass", "fail") in regressions
    assert {one.cell_id for one in found.regressions} == {PLAN[0]}
    better = [one.check for one in found.verdicts if one.cell_id == PLAN[1]]
    assert better == ["session_dir_gone"]
    assert (found.only_before, found.only_after) == ((PLAN[2],), (PLAN[3],))
    assert [(one.cell_id, one.ratio) for one in found.timings] == [(PLAN[0], 2.0)]
    main(["diff", str(before), str(after)])
    text = capsys.readouterr().out
    assert f"{PLAN[0]} session_dir_gone: pass -> fail" in text
    assert f"{PLAN[0]}: 60.0 s -> 120.0 s (x2.00)" in text


def test_a_run_does_not_differ_from_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "a", *map(cell_of, PLAN))
    code, found = compared(capsys, run, run)
    assert code == 0
    empty = (found.pins, found.images, found.only_before, found.only_after, found.verdicts)
    assert [*empty, found.timings] == [()] * 6


def test_a_lost_cell_is_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = run_of(tmp_path / "a", good("tool_success"))
    after = run_of(tmp_path / "b", planned=PLAN[:1])
    _, found = compared(capsys, before, after)
    assert [(one.check, one.before, one.after) for one in found.regressions] == [
        ("cell_run", "pass", "error")
    ]


def test_the_story_of_a_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = (Survivor(pid=9, command="\x1b[2Jsleep"),)
    run = run_of(tmp_path / "a", with_witness(good("retry_500"), survivors=evil))
    assert main(["show", "*/retry_500", "--run", str(run), "--native"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{PLAN[3]}: FAIL (1)")
    assert text.index("-> 500") < text.index("-> 200") < text.index("tool call shell")
    assert "asked, user: Do the task." in text
    assert "left running: 9 \\x1b[2Jsleep" in text
    assert "\x1b" not in text
    assert text.index("fail           P0 nothing_left_running") < text.index("pass           P0")
    assert "transcript.jsonl" in text


def test_the_story_keeps_tool_calls_without_a_time_in_their_place(tmp_path: Path) -> None:
    files = good("tool_success")
    assert files.row is not None
    seen = files.row.ng_agent_observations
    untimed = tuple(
        one.model_copy(update={"started_at": None}) if one.kind == "tool_call" else one
        for one in seen.records
    )
    row = files.row.model_copy(
        update={"ng_agent_observations": seen.model_copy(update={"records": untimed})}
    )
    kinds = [event.kind for event in story(replace(files, row=row)) if event.kind != "phase"]
    assert kinds == ["exchange", "tool", "exchange", "tool", "exchange", "end"]


@pytest.mark.parametrize(
    ("words", "code"),
    [(["nothing/*"], 3), (["*"], 2), ([PLAN[0]], 0)],
)
def test_which_cell_is_shown(words: list[str], code: int, tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", good("tool_success"), good("model_error"))
    assert main(["show", *words, "--run", str(run)]) == code
