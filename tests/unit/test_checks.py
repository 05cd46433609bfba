"""The machinery of checks, and edges of single checks that no planted defect covers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from sandbox.conformance.scenarios import SCENARIOS
from sandbox.evidence.cell import HarnessPin, VerifierResult
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.checks.check import check
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.expectations import StatusRun
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.observations import (
    AgentInvocation,
    Gap,
    InvocationStatus,
    ToolResultItem,
    ToolStatus,
)
from sandbox.evidence.records import EgressEvent
from sandbox.evidence.verdict import MissingEvidence, Outcome, Status, Tier, Verdict, judged_by
from sandbox.evidence.view import CellEvidence
from tests.broken import defects
from tests.broken.goodcells import START, good, rejoined


def verdict(name: str, files: CellFiles) -> Verdict:
    return CHECKS[name].judge(CellEvidence(files))


def test_every_check_says_why_it_exists() -> None:
    for name, found in CHECKS.items():
        assert name == found.id == found.id.lower()
        assert 10 < len(found.why) < 100
        assert found.function.__doc__
        assert found.group


def test_a_check_that_raises_is_an_error() -> None:
    @check(tier=Tier.P0, kind="health", group="x", why="to see an error")
    def broken(cell: CellEvidence) -> Outcome:
        raise ZeroDivisionError("1/0")

    found = broken.judge(CellEvidence(good()))
    assert (found.status, found.reason) == (
        Status.ERROR,
        "the check itself failed: ZeroDivisionError: 1/0",
    )


def test_missing_evidence_is_a_failure() -> None:
    @check(tier=Tier.P0, kind="health", group="x", why="to see a failure")
    def needy(cell: CellEvidence) -> Outcome:
        raise MissingEvidence("the moon")

    assert needy.judge(CellEvidence(good())).reason == "missing evidence: the moon"


def test_many_faults_are_counted() -> None:
    assert judged_by(list("abcde")).reason == "a; b; c; and 2 more"


def with_statuses(statuses: tuple[int, ...], *runs: StatusRun) -> CellFiles:
    files = good("tool_success")
    assert files.exchanges is not None
    exchanges = tuple(
        files.exchanges[0].model_copy(
            update={
                "exchange_id": f"e{number:03}",
                "status_code": status,
                "started_at": START + number,
                "fault": None if status == 200 else "scripted",
            }
        )
        for number, status in enumerate(statuses)
    )
    expectation = files.cell.expectation.model_copy(update={"exchanges": runs})
    return defects.with_cell(replace(files, exchanges=exchanges), expectation=expectation)


@pytest.mark.parametrize(
    ("statuses", "passes"),
    [
        ((500, 200), True),
        ((500, 500, 500, 200, 200), True),
        ((200,), False),
        ((500,), False),
        ((500, 200, 500), False),
        ((500, 200, 200, 200), False),
        ((), False),
    ],
    ids=str,
)
def test_error_sequence_follows_the_runs(statuses: tuple[int, ...], passes: bool) -> None:
    runs = (StatusRun(status=500, at_most=None), StatusRun(status=200, at_most=2))
    found = verdict("error_sequence", with_statuses(statuses, *runs))
    assert (found.status is Status.PASS) == passes, found.reason


def test_error_sequence_says_what_was_expected_and_seen() -> None:
    files = with_statuses((500, 500, 200), StatusRun(status=500), StatusRun(status=200))
    assert verdict("error_sequence", files).reason == (
        "expected statuses 500, 200; saw 500 x2, 200"
    )


def test_error_sequence_with_an_optional_held_request() -> None:
    runs = (StatusRun(status=200), StatusRun(status=0, at_least=0))
    for statuses in ((200,), (200, 0)):
        assert verdict("error_sequence", with_statuses(statuses, *runs)).status is Status.PASS


def test_a_harness_may_ask_again_before_the_deadline_of_run_timeout() -> None:
    runs = SCENARIOS["run_timeout"].expectation.exchanges
    for statuses in ((200,), (200, 0), (200, 0, 0)):
        assert verdict("error_sequence", with_statuses(statuses, *runs)).status is Status.PASS
    for statuses in ((), (0,), (200, 0, 200)):
        assert verdict("error_sequence", with_statuses(statuses, *runs)).status is Status.FAIL


def probe(**changes: object) -> Exchange:
    files = good()
    assert files.exchanges is not None
    facts = {"dialect": "none", "rollout_id": None, "path": "/api/v1/models", "status_code": 404}
    return files.exchanges[0].model_copy(update={**facts, "exchange_id": "probe", **changes})


@pytest.mark.parametrize(
    ("exchange", "status"),
    [
        (probe(), Status.PASS),
        (probe(rollout_id="another"), Status.FAIL),
        (probe(dialect="chat"), Status.FAIL),
    ],
    ids=["probe of the root", "probe of another rollout", "model call at the root"],
)
def test_requests_beside_the_prefix(exchange: Exchange, status: Status) -> None:
    files = good()
    assert files.exchanges is not None
    found = verdict(
        "model_reached_only_through_link", replace(files, exchanges=(*files.exchanges, exchange))
    )
    assert found.status is status


def test_no_exchange_fails_the_link() -> None:
    found = verdict("model_reached_only_through_link", replace(good(), exchanges=()))
    assert "saw none" in found.reason


def test_the_bridge_link_has_one_interface_more_and_no_name_log() -> None:
    files = defects.with_cell(good(), isolation="bridge")
    files = defects.with_witness(files, network_interfaces=("lo", "eth0"))
    assert verdict("model_reached_only_through_link", files).status is Status.PASS
    for egress in ((), None):
        found = verdict("egress_quiet", replace(files, egress=egress))
        assert found.status is Status.NOT_APPLICABLE
    asked = (EgressEvent(at=START, name="models.dev", record_type="A"),)
    assert verdict("egress_quiet", replace(files, egress=asked)).status is Status.FAIL


@pytest.mark.parametrize(
    "text", ["codex-cli 1.2.3", "1.2.3\n", "v1.2.3 (abc)", "OpenCode 1.2.3, x"]
)
def test_the_pinned_version_is_found_as_a_word(text: str) -> None:
    check = defects.cited(version_output=text)
    files = defects.with_install(good(), version_output=text, version_check=check)
    assert verdict("install_exact", files).status is Status.PASS


@pytest.mark.parametrize("text", ["1.2.30", "11.2.3", "1.2.3-beta", "1.2.3.4", "", "1.2"])
def test_a_longer_version_is_another_version(text: str) -> None:
    check = defects.cited(version_output=text)
    files = defects.with_install(good(), version_output=text, version_check=check)
    assert verdict("install_exact", files).status is Status.FAIL


@pytest.mark.parametrize("way", ["copy", "mount"])
def test_a_program_that_ran_in_the_sandbox_needs_no_citation(way: str) -> None:
    changes = {"way": way, "version_checked": "now", "version_check": None}
    assert verdict("install_exact", defects.with_install(good(), **changes)).status is Status.PASS


def test_without_a_pin_nothing_is_exact() -> None:
    found = verdict("install_exact", defects.with_cell(good(), pin=None))
    assert found.reason == "missing evidence: cell.json names no pin"
    assert HarnessPin.model_fields.keys() == {"harness", "version", "platform", "bundle_sha256"}


def test_two_roots_are_none() -> None:
    stranger = AgentInvocation(invocation_id="x", status=InvocationStatus.COMPLETED)
    files = good()
    known = defects.observations(files)
    files = rejoined(files, known.model_copy(update={"records": (*known.records, stranger)}))
    assert "expected one root invocation, saw 2" in verdict("outcome_class", files).reason


def test_an_unknown_outcome_with_its_gap_is_honest() -> None:
    files = defects.with_observed(
        good("run_timeout"),
        defects.status(InvocationStatus.UNKNOWN),
        Gap(code="invocation_outcome_unavailable"),
    )
    assert verdict("outcome_class", files).status is Status.PASS


@pytest.mark.parametrize("status", ["timeout", "cancelled", "incomplete", "failed"])
def test_a_killed_command_may_be_told_in_several_ways(status: str) -> None:
    files = defects.with_observed(good("run_timeout"), defects.tool_status(ToolStatus(status)))
    assert verdict("tool_status", files).status is Status.PASS


def test_an_unknown_tool_status_with_its_gap_is_honest() -> None:
    files = defects.with_observed(
        good("run_timeout"),
        defects.tool_status(ToolStatus.UNKNOWN),
        Gap(code="tool_outcome_unavailable"),
    )
    assert verdict("tool_status", files).status is Status.PASS


def seed_failure() -> CellFiles:
    """Return a cell whose seed was expected to fail, and did: nothing of the harness ran."""
    files = good("model_error")
    expectation = files.cell.expectation.model_copy(
        update={"failure_stage": "seed", "exchanges": ()}
    )
    files = defects.with_cell(files, expectation=expectation)
    files = defects.with_row(files, failure_stage="seed")
    files = defects.with_observed(
        defects.with_witness(replace(files, exchanges=(), native=()), exchange_tally=()),
        lambda record: None,
        Gap(code="harness_not_run"),
    )
    return replace(files, receipt=None)


def test_an_expected_seed_failure_needs_no_harness() -> None:
    files = seed_failure()
    for name in ("row_schema", "outcome_class", "no_silent_zero", "error_sequence"):
        assert verdict(name, files).status is Status.PASS, verdict(name, files)
    for name in ("observations_present", "native_kept", "step_join"):
        assert verdict(name, files).status is Status.NOT_APPLICABLE, verdict(name, files)


def test_a_harness_that_ran_after_a_seed_failure_is_contrary_evidence() -> None:
    ran = replace(seed_failure(), exchanges=good("model_error").exchanges)
    assert verdict("observations_present", ran).status is Status.FAIL


def test_a_verifier_that_gave_the_scenario_s_zero_is_right() -> None:
    files = good("run_timeout")
    assert files.witness is not None
    assert files.witness.verifier == VerifierResult(reward=0.0)
    assert verdict("verifier_outcome", files).status is Status.PASS


def test_a_tool_output_that_is_shown_twice_is_not_the_command_s() -> None:
    files = good()
    doubled = defects.with_observed(
        files,
        defects.conversation(
            lambda item: (
                item.model_copy(update={"output": item.output * 2})
                if isinstance(item, ToolResultItem)
                else item
            )
        ),
    )
    assert verdict("tool_output", doubled).status is Status.FAIL


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        (lambda output: json.dumps({"output": output.strip(), "exit_code": 0}), Status.PASS),
        (lambda output: json.dumps({"output": output, "again": output}), Status.FAIL),
        (lambda output: json.dumps({"output": output[:-9], "exit_code": 0}), Status.FAIL),
        (lambda output: json.dumps([output]), Status.FAIL),
        (lambda output: "{" + output, Status.PASS),
    ],
    ids=["whole", "twice", "cut", "no object", "no JSON"],
)
def test_a_tool_output_may_be_shown_as_a_string_in_json(
    shown: Callable[[str], str], status: Status
) -> None:
    changed = defects.with_observed(
        good(),
        defects.conversation(
            lambda item: (
                item.model_copy(update={"output": shown(item.output)})
                if isinstance(item, ToolResultItem)
                else item
            )
        ),
    )
    assert verdict("tool_output", changed).status is status


@pytest.mark.parametrize(
    ("scenario", "status"), [("run_timeout", Status.PASS), ("tool_success", Status.FAIL)]
)
def test_a_torn_record_is_only_excused_by_a_stop(scenario: str, status: Status) -> None:
    gap = Gap(code="agent_artifact_record_unparseable", detail="line 9")
    files = defects.with_observed(good(scenario), lambda record: record, gap)
    assert verdict("observations_present", files).status is status
