"""Reports: what they say, in how many columns, and that programs can read them."""

from __future__ import annotations

import datetime as dt
import io
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite
from rich.console import Console

from sandbox.evidence.baseline import Baseline, KnownFailure
from sandbox.evidence.cell import Refusal, RunRecord
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.folder import CellFiles, write_run
from sandbox.evidence.judge import judge, judge_cell
from sandbox.evidence.observations import ToolStatus
from sandbox.evidence.repeats import settle
from sandbox.evidence.results import CellResult, RunVerdicts, StaleEntry, tally
from sandbox.evidence.view import CellEvidence
from sandbox.report.ctrf import Report
from sandbox.report.jsonreport import Results
from sandbox.report.terminal import report
from tests.broken.defects import tool_status, with_cell, with_observed, with_witness
from tests.broken.goodcells import good
from tests.reported import error_lines, gathered, render, report_files, summary

TODAY = dt.date(2027, 1, 1)
BASELINE = Baseline(
    known=(
        KnownFailure(
            cell="opencode/*/tool_failure",
            check="tool_status",
            reason="exit 7 is stored as completed",
        ),
    )
)
STALE = StaleEntry(
    cell="codex/*/retry_500", check="step_join", reason="retries were steps", near="tool_status"
)


def result(files: CellFiles) -> CellResult:
    return judge_cell(CellEvidence(files), baseline=BASELINE, today=TODAY, checks=CHECKS.values())


def run_of(*cells: CellFiles, stale: tuple[StaleEntry, ...] = ()) -> RunVerdicts:
    found = tuple(map(result, cells))
    return RunVerdicts(
        run_id="20270101-1",
        profile="quick",
        cells=found,
        stale=stale,
        summary=tally(found).summary(stale),
        exit_code=int(tally(found).exit_code(stale)),
    )


def refused() -> CellFiles:
    cell = good("retry_500", "chat").cell
    refusal = Refusal(kind="unsupported", reason="no <bash> | here", cure="add *bash*")
    return CellFiles(cell=cell.model_copy(update={"refusal": refusal}))


def failing() -> CellFiles:
    return with_witness(good("model_error"), session_dir_gone=False, survivors=None)


def mixed(stale: tuple[StaleEntry, ...] = (STALE,)) -> RunVerdicts:
    lied = with_observed(good("tool_failure", "chat"), tool_status(ToolStatus.COMPLETED))
    return run_of(good("tool_success"), failing(), lied, refused(), stale=stale)


def wide() -> RunVerdicts:
    cells = [
        with_cell(
            good("tool_success", image=image),
            scenario=f"scenario_number_{n}",
            cell_id=f"codex/{image}/scenario_number_{n}",
        )
        for image in ("debian-12", "an-image-with-a-very-long-name-1.2.3")
        for n in range(25)
    ]
    return run_of(*cells)


def test_the_table_says_each_cell_in_a_word() -> None:
    text = render(mixed(), results="results/20270101-1")
    row = next(line for line in text.splitlines() if "codex 1.2.3" in line)
    assert "pass" in row
    assert "FAIL (2)" in row
    other = next(line for line in text.splitlines() if "opencode 1.2.3" in line)
    assert "known (1)" in other
    assert "refused" in other
    assert "debian-12" in text


def test_each_non_pass_is_listed_with_its_reason() -> None:
    text = render(mixed(), width=200)
    assert "FAIL codex/debian-12/model_error session_dir_gone (P1)" in text
    assert "expected /var/tmp/agent-1 to be gone" in text
    assert "known opencode/debian-12/tool_failure tool_status (P0)" in text
    assert "baseline: exit 7 is stored as completed" in text
    assert "error opencode/debian-12/retry_500 cell_run (P0)" in text
    assert "STALE baseline entry codex/*/retry_500 step_join" in text
    assert "near miss: tool_status" in text
    assert "4 cells: 1 pass, 1 known, 1 fail, 1 refused" in text


def test_unknown_failures_come_before_known_ones() -> None:
    text = render(mixed(), width=200)
    assert text.index("FAIL codex/") < text.index("known opencode/")


def test_the_results_folder_is_the_last_line() -> None:
    assert render(mixed(), results="results/x").splitlines()[-1] == "results: results/x"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for run in (mixed(), wide()):
        for line in render(run, width=width, results="r").splitlines():
            assert len(line) <= width, line


def test_many_scenarios_fill_several_tables() -> None:
    text = render(wide(), width=80)
    for n in range(25):
        assert f"number_{n} " in text
    assert text.count("harness image") > 3


def test_the_quick_profile_is_one_table_in_80_columns() -> None:
    cells = [
        good(scenario, dialect, image=image)
        for dialect in ("responses", "chat")
        for image in ("debian-12", "alpine-3.23")
        for scenario in ("tool_success", "tool_failure", "model_error", "retry_500", "run_timeout")
    ]
    text = render(run_of(*cells), width=80)
    assert text.count("harness image") == 1
    assert text.count(" pass ") == 20


def test_colour_is_only_for_terminals_and_never_with_no_color(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shown(**options: object) -> str:
        out = io.StringIO()
        Console(file=out, width=80, **options).print(report(gathered(mixed())))  # type: ignore[arg-type]
        return out.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" not in shown()
    assert "\x1b[1;31m" in shown(force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    coloured = shown(force_terminal=True, color_system="standard")
    assert "31m" not in coloured
    assert "FAIL (2)" in coloured


def test_text_of_harnesses_is_no_markup() -> None:
    files = with_witness(good("model_error"), errors=("[red]boom[/red] [/]",))
    assert "[red]boom[/red] [/]" in render(run_of(files), width=200)


def test_the_summary_has_one_table_and_the_findings() -> None:
    text = summary(mixed())
    lines = text.splitlines()
    assert lines[0] == "## Conformance run 20270101-1, profile quick"
    head = next(line for line in lines if line.startswith("| harness"))
    assert head == (
        "| harness | version | image | gate | tool\\_success | model\\_error | tool\\_failure "
        "| retry\\_500 |"
    )
    codex = next(line for line in lines if line.startswith("| codex"))
    assert codex.count("|") == head.count("|")
    assert "❌ FAIL (2)" in codex
    assert "no &lt;bash&gt; \\| here" in text
    assert "add \\*bash\\*" in text
    assert "- **STALE** baseline entry `codex/*/retry_500` `step_join`" in text


def test_a_clean_summary_has_no_findings() -> None:
    assert "Findings" not in summary(run_of(good()))


def test_the_summary_stays_under_its_limit() -> None:
    whole = summary(mixed())
    limit = len(whole.encode()) - 50
    short = summary(mixed(), limit=limit)
    assert len(short.encode()) <= limit
    assert "more tables of harnesses in report.html" in short
    assert "more findings" not in short
    shorter = summary(mixed(), limit=whole.index("<details>") - 50)
    assert len(shorter.encode()) <= whole.index("<details>") - 50
    assert "more findings in results.json" in shorter


def test_the_summary_has_a_table_of_checks_for_each_harness() -> None:
    text = summary(mixed())
    assert text.count("<details>") == 2
    codex = text[text.index("<summary>codex on debian-12") :]
    lines = codex[: codex.index("</details>")].splitlines()
    gone = next(line for line in lines if "session\\_dir\\_gone" in line)
    assert gone == "| session\\_dir\\_gone | P1 | P | **F** |"
    lied = next(line for line in text.splitlines() if line.startswith("| tool\\_status | P0 | K"))
    assert lied


def test_a_field_of_the_table_has_a_letter_for_each_image_that_differs() -> None:
    gone = with_witness(good("model_error"), session_dir_gone=False)
    text = summary(run_of(gone, good("model_error", image="alpine-3.23")))
    assert "| session\\_dir\\_gone | P1 | **F** P |" in text


def test_ctrf_counts_what_it_holds() -> None:
    report = Report.model_validate_json(report_files(mixed())["ctrf.json"], strict=True)
    found, total = report.results.tests, report.results.summary
    assert total.tests == len(found) == 3 * len(CHECKS) + 2
    assert total.failed == sum(test.status == "failed" for test in found) == 4
    assert total.passed + total.failed + total.skipped == total.tests
    assert len({test.id for test in found}) == len(found)
    by_name = {(*test.suite, test.name): test for test in found}
    known = by_name["opencode", "debian-12", "tool_failure", "tool_status"]
    assert (known.status, known.rawStatus) == ("skipped", "known")
    lost = by_name["opencode", "debian-12", "retry_500", "cell_run"]
    assert (lost.status, lost.rawStatus) == ("failed", "error")
    assert by_name["baseline", "codex/*/retry_500 step_join"].rawStatus == "stale"


def test_annotations_are_for_p0_and_stale_entries_and_cannot_be_forged() -> None:
    lines = error_lines(mixed())
    assert [line.split("::")[1] for line in lines] == [
        "error title=codex/debian-12/model_error nothing_left_running (P0)",
        "error title=opencode/debian-12/retry_500 cell_run (P0)",
        "error title=stale baseline entry",
    ]
    run = mixed(stale=(STALE.model_copy(update={"cell": "a\n::warning::100%"}),))
    assert "a%0A::warning::100%25" in error_lines(run)[-1]
    assert all("\n" not in line for line in error_lines(run))
    short = error_lines(run, most=2)
    assert len(short) == 2
    assert "2 more failures" in short[-1]


def test_a_flaky_cell_is_called_so_everywhere() -> None:
    cell = settle([result(good("model_error")), result(failing())])
    run = run_of(good()).model_copy(update={"cells": (cell,)})
    assert "flaky (2)" in render(run, width=120)
    assert "failed in 1 of 2 attempts" in render(run, width=200)
    assert "🎲 flaky (2)" in summary(run)
    ctrf = Report.model_validate_json(report_files(run)["ctrf.json"])
    assert ctrf.results.summary.flaky == 2
    (one,) = [test for test in ctrf.results.tests if test.name == "session_dir_gone"]
    assert one.retryAttempts is not None
    assert [attempt.status for attempt in one.retryAttempts] == ["passed", "failed"]
    assert "failed in 1 of 2 attempts" in report_files(run)["junit.xml"]


def test_a_cell_that_the_engine_broke_before_is_flaky_everywhere_and_passes() -> None:
    gone = Refusal(kind="error", reason="the container is gone")
    run = run_of(with_cell(good(), earlier_attempts=(gone,)), good("tool_failure"))
    texts, said = report_files(run), "the engine failed in 1 of 2 attempts"
    assert (run.exit_code, run.summary.cells["flaky"]) == (0, 1)
    table = render(run, width=200)
    assert "flaky codex/debian-12/tool_success cell_run (P0)" in table
    assert f"{said}: the container is gone" in table
    assert f"{said}: the container is gone" in summary(run)
    assert "🎲 flaky" in summary(run)
    assert error_lines(run) == ()
    cell = Results.model_validate_json(texts["results.json"]).cells[0]
    assert (cell.state, cell.verdicts[0].reason) == ("flaky", "the container is gone")
    (test,) = [
        test
        for test in Report.model_validate_json(texts["ctrf.json"]).results.tests
        if test.name == "cell_run"
    ]
    assert (test.status, test.flaky, test.retries) == ("passed", True, 1)
    case = next(ET.fromstring(texts["junit.xml"]).iter("testcase"))
    assert case.get("name") == "cell_run"
    assert [one.tag for one in case] == ["flakyError"]
    assert case[0].get("message") == f"{said}: the container is gone"


def test_results_are_read_back_strictly() -> None:
    text = report_files(mixed())["results.json"]
    found = Results.model_validate_json(text, strict=True)
    assert found.schema_version == "1.2"
    assert found.exit_code == 4
    assert [check.id for check in found.checks] == list(CHECKS)
    cell = found.cells[0]
    assert (cell.harness, cell.version, cell.image_id) == ("codex", "1.2.3", "sha256:1")
    assert cell.proves
    raw = json.loads(text)
    assert raw["cells"][2]["verdicts"][0].keys() >= {"check", "tier", "status", "reason", "known"}


def test_junit_has_a_case_for_each_check_of_a_cell(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(report_files(mixed())["junit.xml"])
    xml = JUnitXml.fromfile(str(path))
    suites = {suite.name: list(suite) for suite in xml if isinstance(suite, TestSuite)}
    assert list(suites) == ["codex/debian-12", "opencode/debian-12", "baseline"]
    assert len(suites["codex/debian-12"]) == 2 * len(CHECKS)
    assert len(suites["opencode/debian-12"]) == len(CHECKS) + 1
    by_name = {(case.classname, case.name): case.result for case in suites["opencode/debian-12"]}
    (known,) = by_name[("opencode.debian-12.tool_failure", "tool_status")]
    assert isinstance(known, Skipped)
    assert "known: exit 7 is stored as completed" in str(known.message)
    (lost,) = by_name[("opencode.debian-12.retry_500", "cell_run")]
    assert isinstance(lost, Error)
    failed = [c for c in suites["codex/debian-12"] if any(isinstance(r, Failure) for r in c.result)]
    assert {case.name for case in failed} == {"session_dir_gone", "nothing_left_running"}
    assert (xml.tests, xml.failures, xml.errors) == (3 * len(CHECKS) + 2, 3, 1)


def test_junit_survives_control_characters(tmp_path: Path) -> None:
    files = with_witness(good("model_error"), errors=("bell \x07 and \x1b[31m",))
    (tmp_path / "junit.xml").write_text(report_files(run_of(files))["junit.xml"])
    JUnitXml.fromfile(str(tmp_path / "junit.xml"))


def test_a_lost_cell_is_reported_too(tmp_path: Path) -> None:
    planned = ("codex/debian-12/tool_success",)
    write_run(tmp_path, RunRecord(run_id="r", profile="quick", cells=planned, started_at=1.0))
    run = judge(tmp_path, baseline=Baseline(), today=TODAY)
    texts = report_files(run)
    del texts["report.html"]  # it says so in the details of the cell, which are packed
    del texts["timings.json"]
    for text in (render(run), *texts.values()):
        assert "planned and not recorded" in " ".join(text.split())
