"""pytest as the judge's second face says the same as the judge; needs no engine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from sandbox.commands.reporting import baseline, judged
from sandbox.evidence.cell import RunRecord
from sandbox.evidence.folder import CellFiles, cell_folder, write_run
from sandbox.evidence.verdict import Status
from tests.broken.defects import with_cell, with_witness
from tests.broken.goodcells import good, write

ROOT = Path(__file__).resolve().parents[2]


def run_of(run: Path, *cells: CellFiles) -> Path:
    names = tuple(files.cell.cell_id for files in cells)
    write_run(run, RunRecord(run_id="r", profile="quick", cells=names, started_at=1.0))
    for files in cells:
        write(cell_folder(run, files.cell.cell_id), files)
    return run


def face(run: Path) -> tuple[int, str]:
    argv = [sys.executable, "-m", "pytest", "tests/conformance", "--run", str(run), "-q", "-rA"]
    ended = subprocess.run(
        [*argv, "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def counted(text: str) -> dict[str, int]:
    return {word: int(n) for n, word in re.findall(r"(\d+) ([a-z]+)", text.splitlines()[-1])}


def test_an_item_for_each_cell_and_check_and_the_baseline_as_strict_xfail(tmp_path: Path) -> None:
    entry = next(one for one in baseline().known if one.check == "failure_told")
    harness = entry.cell.split("/")[0]
    name = f"{harness}/debian-12/tool_failure"
    told = with_cell(good("tool_failure", "chat"), harness=harness, cell_id=name)
    gone = with_witness(good("model_error"), session_dir_gone=False)
    run = run_of(tmp_path, good("tool_success"), gone, told)
    code, text = face(run)
    result = judged(run, known=baseline())
    statuses = [verdict.status for cell in result.cells for verdict in cell.verdicts]
    found = counted(text)
    assert (code, result.exit_code) == (1, 1)
    rows = len(result.cells)
    assert found["passed"] == statuses.count(Status.PASS) - 1 + rows
    assert found["failed"] == statuses.count(Status.FAIL) + 1 == 2
    assert found["skipped"] == statuses.count(Status.NOT_APPLICABLE)
    assert "[codex/debian-12/model_error-session_dir_gone]" in text
    assert f"[{name}-failure_told]" in text
    assert "XPASS(strict)" in text
    assert found["deselected"]
