"""The quick profile with real harnesses in real images: verdicts, reports, and judging again."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from sandbox.engine.client import Engine
from tests.conformance.cli import Ended, sandbox, serving

PUBLISHED = Path("docs/schemas/1.0")
pytestmark = pytest.mark.docker
Run = tuple[Path, Ended]


def test_every_cell_is_recorded_and_passes_or_is_known(quick_run: Run) -> None:
    folder, ended = quick_run
    assert ended.code == 0, ended.out + ended.err
    results = json.loads((folder / "results.json").read_text())
    planned = json.loads((folder / "run.json").read_text())["cells"]
    assert [cell["cell_id"] for cell in results["cells"]] == planned
    assert {cell["state"] for cell in results["cells"]} <= {"pass", "known", "flaky"}
    assert {path.split("/")[1] for path in planned} == {"alpine-3.23", "debian-12"}
    told = results["foretold"]
    assert (told["forecasts"], told["cells"], told["disagreeing"]) == (4, len(planned), 0)


def test_no_record_native_file_or_report_holds_a_canary(quick_run: Run) -> None:
    canary = re.compile(rb"sk-local-r[0-9a-f]{32}|host-canary-[0-9a-f]{32}")
    files = [path for path in quick_run[0].rglob("*") if path.is_file()]
    assert {"report.html", "summary.md", "results.json"} < {path.name for path in files}
    assert [path for path in files if canary.search(path.read_bytes())] == []


def test_every_row_validates_against_the_published_schemas(quick_run: Run) -> None:
    folder, _ = quick_run
    rows = 0
    for name, file in (("rollout-row", "rollouts.jsonl"), ("failure-row", "failures.jsonl")):
        published = Draft202012Validator(
            json.loads(PUBLISHED.joinpath(f"{name}.schema.json").read_text())
        )
        for path in folder.glob(f"cells/*/*/*/{file}"):
            errors = published.iter_errors(json.loads(path.read_text()))
            assert [error.message for error in errors] == []
            rows += 1
    assert rows == len(json.loads((folder / "run.json").read_text())["cells"])


def test_the_table_names_every_harness_image_and_scenario(quick_run: Run) -> None:
    folder, ended = quick_run
    cells = json.loads((folder / "run.json").read_text())["cells"]
    text = ended.out.replace("\n", " ")
    for harness, image, scenario in (cell.split("/") for cell in cells):
        assert harness in text
        assert image in text
        assert scenario.split("_")[0] in text


def test_junit_has_one_case_for_each_cell_and_check(quick_run: Run) -> None:
    folder, _ = quick_run
    results = json.loads((folder / "results.json").read_text())
    cases = ET.parse(folder / "junit.xml").getroot().iter("testcase")
    assert len(list(cases)) == sum(len(cell["verdicts"]) for cell in results["cells"])


KEPT_BY_A_SERVER = {"install_exact", "native_kept", "receipt_confirmed", "session_dir_gone"}


def test_a_served_adapter_gets_the_verdicts_of_the_one_in_this_process(
    quick_run: Run, tmp_path: Path
) -> None:
    names, far = ("tool_success", "tool_failure", "model_error"), tmp_path / "run"
    with serving("codex") as served:
        ended = sandbox(
            "conformance",
            *("--agent-url", served.url, "--image", "alpine-3.23", "--output", str(far)),
            *(word for name in names for word in ("--scenario", name)),
        )
    assert ended.code == 0, ended.out + ended.err
    ours, theirs = statuses(quick_run[0], names), statuses(far, names)
    assert ours.keys() == theirs.keys()
    apart = {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]}
    assert {check for _, check in apart} <= KEPT_BY_A_SERVER
    assert set(apart.values()) <= {("pass", "not_applicable")}


def statuses(run: Path, scenarios: tuple[str, ...]) -> dict[tuple[str, str], str]:
    """Codex's verdicts on Alpine by scenario and check."""
    cells = json.loads((run / "results.json").read_text())["cells"]
    return {
        (cell["scenario"], verdict["check"]): verdict["status"]
        for cell in cells
        if (cell["harness"], cell["image"]) == ("codex", "alpine-3.23")
        and cell["scenario"] in scenarios
        for verdict in cell["verdicts"]
    }


def test_judging_again_gives_the_same_verdicts_without_an_engine(quick_run: Run) -> None:
    folder, _ = quick_run
    before = (folder / "results.json").read_text()
    again = sandbox("judge", str(folder), "--json", env={"DOCKER_HOST": "unix:///nowhere"})
    assert again.code == 0, again.err
    assert json.loads(again.out) == json.loads(before)


def test_the_step_summary_is_appended(quick_run: Run, tmp_path: Path) -> None:
    folder, _ = quick_run
    page = tmp_path / "summary.md"
    page.write_text("before\n")
    sandbox("judge", str(folder), env={"GITHUB_STEP_SUMMARY": str(page)})
    text = page.read_text()
    assert text.startswith("before\n")
    assert (folder / "summary.md").read_text() in text


def test_tampered_evidence_turns_the_verdict(quick_run: Run, tmp_path: Path) -> None:
    """A verdict follows the recorded facts, so changing them changes it."""
    folder, _ = quick_run
    cell = next(iter((folder / "cells").glob("codex/*/tool_success")))
    copy = tmp_path / "cell"
    copy.mkdir()
    for path in cell.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    witness = json.loads((copy / "witness.json").read_text())
    witness["survivors"] = [{"pid": 4711, "command": "sleep 1000"}]
    (copy / "witness.json").write_text(json.dumps(witness))
    judged = sandbox("judge", str(copy), "--dry-run")
    assert judged.code == 1
    assert "nothing_left_running" in judged.out


def test_the_bridge_link_gives_the_same_outcome(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ended = sandbox(
        "conformance",
        "codex/alpine-3.23/tool_success",
        *("--isolation", "bridge", "--output", str(folder)),
    )
    cell = json.loads((folder / "cells/codex/alpine-3.23/tool_success/cell.json").read_text())
    assert cell["isolation"] == "bridge"
    assert ended.code == 0, ended.out + ended.err


def test_a_resumed_run_does_what_is_missing_and_nothing_else(
    quick_run: Run, tmp_path: Path
) -> None:
    folder, _ = quick_run
    run = tmp_path / "run"
    shutil.copytree(folder, run, symlinks=True)
    lost = next(iter((run / "cells").glob("codex/alpine-*/tool_success")))
    shutil.rmtree(lost)
    before = {path: path.read_bytes() for path in run.glob("cells/*/*/*/cell.json")}
    other = sandbox("conformance", "--resume", str(run), "--isolation", "bridge")
    assert other.code == 2
    assert "isolation: auto, now bridge" in other.err
    again = sandbox("conformance", "--resume", str(run), "--json")
    assert again.code == 0, again.err
    assert (lost / "cell.json").is_file()
    assert {path: path.read_bytes() for path in before} == before
    states = [
        {c["cell_id"]: c["state"] for c in json.loads(text)["cells"]}
        for text in (again.out, (folder / "results.json").read_text())
    ]
    assert states[0] == states[1]
    whole = sandbox("conformance", "--resume", str(run))
    assert whole.code == 3
    assert "nothing is missing" in whole.err
