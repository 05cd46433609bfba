"""Scenarios: complete, coherent, runnable by a plain shell, and documented as they are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sandbox.conformance.profiles import PROFILES
from sandbox.conformance.scenario import Scenario, home_note, marker, probe
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.evidence.expectations import Ending, Expectation, StatusRun
from sandbox.evidence.observations import InvocationStatus
from sandbox.harnesses.base import Capabilities
from sandbox.model.script import ToolStep

DOCUMENT = Path(__file__).parents[2] / "docs" / "scenarios.md"
QUICK = ["tool_success", "tool_failure", "model_error", "retry_500", "run_timeout"]


def table() -> list[str]:
    """The table of the document, from the scenarios themselves."""
    return [
        "| scenario | it proves that | legitimate ends | about | deadline |",
        "|---|---|---|---|---|",
        *(_row(scenario) for scenario in SCENARIOS.values() if "slow" not in scenario.profiles),
    ]


def _row(scenario: Scenario) -> str:
    expected = scenario.expectation
    ends = "; ".join(
        dict.fromkeys(_end(e) for e in (expected, *expected.alternatives) if not e.unwanted)
    )
    name = f"**{scenario.name}**" if "quick" in scenario.profiles else scenario.name
    about = expected.needs or ""
    return f"| {name} | {expected.proves} | {ends} | {about} | {scenario.deadline_s:.0f} s |"


def _end(ending: Ending) -> str:
    graded = f"reward {ending.reward:g}" if ending.row == "rollout" else "no grade"
    if ending.failure_stage not in (None, "agent"):
        graded += f" ({ending.failure_stage})"
    how = "cancelled" if ending.stopped else "out of time" if ending.timed_out else ""
    how = how or "/".join(dict.fromkeys(status.value for status in ending.outcomes))
    return f"{how}, {graded}" + (f" (without {ending.lacks})" if ending.lacks else "")


def test_the_document_shows_every_scenario_as_it_is() -> None:
    text = DOCUMENT.read_text()
    missing = [row for row in table() if row not in text.splitlines()]
    assert not missing, "put these rows into docs/scenarios.md:\n" + "\n".join(missing)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == len(table()) - 1, "docs/scenarios.md has rows of no scenario"


def test_the_profiles_hold_what_they_say() -> None:
    by_profile = {
        name: [s.name for s in SCENARIOS.values() if name in s.profiles] for name in PROFILES
    }
    assert by_profile["quick"] == [name for name in SCENARIOS if name in QUICK]
    assert set(by_profile["quick"]) < set(by_profile["full"])
    assert not set(by_profile["slow"]) & set(by_profile["full"])
    assert set(by_profile["slow"]) | set(by_profile["full"]) == set(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda s: s.name)
def test_a_scenario_is_coherent(scenario: Scenario) -> None:
    expected = scenario.expectation
    assert "\n" not in expected.proves
    assert len(expected.proves) < 160
    script = scenario.script("r1")
    markers = {step.marker for step in script.expectations() if step.runs}
    assert set(scenario.graded) <= markers | {marker(2)} | set(scenario.workspace)
    most = max(ending.tools for ending in (expected, *expected.alternatives))
    assert most <= len(markers)
    assert script.expectations() != scenario.script("r2").expectations()
    assert expected.needs is None or expected.needs in Capabilities.model_fields


def test_every_command_is_sh() -> None:
    commands = [
        step.command
        for scenario in SCENARIOS.values()
        for step in scenario.script("r1").expectations()
        if step.runs
    ]
    assert len(commands) > len(SCENARIOS)
    whole = "\n".join(f"({command}\n)" for command in dict.fromkeys(commands))
    checked = subprocess.run(["sh", "-n"], check=False, input=whole, text=True, capture_output=True)
    assert checked.stderr == ""


@pytest.mark.parametrize("first", ["", "true", "sleep 0 >/dev/null 2>&1 &"])
def test_a_probe_leaves_its_marker_and_its_home_and_prints(first: str, tmp_path: Path) -> None:
    step = probe("r1", 4, exit_code=3, first=first)
    ended = subprocess.run(
        ["sh", "-c", step.command],
        check=False,
        cwd=tmp_path,
        env={"HOME": "/h"},
        text=True,
        capture_output=True,
    )
    assert (ended.returncode, ended.stdout) == (3, step.output)
    assert (tmp_path / step.marker).read_text() == step.marker_text
    assert (tmp_path / home_note(step.marker)).read_text() == "/h"


def test_a_long_output_has_the_size_that_the_script_says(tmp_path: Path) -> None:
    (step,) = SCENARIOS["big_output"].script("r1").expectations()
    ended = subprocess.run(
        ["sh", "-c", step.command], check=True, cwd=tmp_path, capture_output=True
    )
    printed = ended.stdout
    assert step.output_bytes == len(printed) > 20 * 1024 * 1024
    assert printed.decode().startswith(step.output)


def test_only_harnesses_without_a_capability_may_end_otherwise() -> None:
    other = Ending(
        exchanges=(StatusRun(status=0),),
        outcomes=(InvocationStatus.INCOMPLETE,),
        row="failure",
        failure_stage="agent",
        timed_out=True,
        lacks="request_deadline",
    )
    expectation = Expectation(
        proves="x",
        exchanges=(StatusRun(status=200),),
        outcomes=(InvocationStatus.COMPLETED,),
        row="rollout",
        reward=1.0,
        alternatives=(other,),
    )
    assert expectation.legitimate({"request_deadline": True}) == (expectation,)
    assert expectation.legitimate({"request_deadline": False}) == (expectation, other)
    settled = expectation.settled(other)
    assert (settled.proves, settled.timed_out, settled.reward) == ("x", True, None)
    assert settled.alternatives == ()


def test_a_tool_step_keeps_its_own_home_note() -> None:
    for scenario in SCENARIOS.values():
        for step in scenario.script("r1").steps:
            if isinstance(step, ToolStep):
                assert home_note(step.marker).removeprefix("~/") in step.command, scenario.name
