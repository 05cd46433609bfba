"""Evidence that ends early or comes in pieces: what is let pass, and how little is too little."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox.evidence.checks import CHECKS
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.observations import (
    AgentInvocation,
    Gap,
    InvocationStatus,
    ToolCall,
    ToolStatus,
)
from sandbox.evidence.records import Record
from sandbox.evidence.verdict import Status
from sandbox.evidence.view import UNPARSEABLE, CellEvidence
from tests.broken.defects import (
    conversation,
    failure_row,
    result,
    status,
    tool_status,
    with_cell,
    with_exchanges,
    with_observed,
    with_row,
    with_tool,
)
from tests.broken.goodcells import good
from tests.broken.scenario_defects import untruncated

NO_OUTCOME = "tool_outcome_unavailable"
NO_END = Gap(code="invocation_outcome_unavailable")


def failures(files: CellFiles) -> set[str]:
    """Return the checks that fail."""
    found = {name: check.judge(CellEvidence(files)) for name, check in CHECKS.items()}
    assert not [v for v in found.values() if v.status is Status.ERROR]
    return {name for name, v in found.items() if v.status is Status.FAIL}


def forgotten(number: int) -> Callable[[Record], Record | None]:
    """Leave scripted call ``number`` out of all records."""
    known = good("disk_full").witness
    assert known is not None
    name = known.tools[number].expected.tool_call_id

    def change(record: Record) -> Record | None:
        if isinstance(record, AgentInvocation):
            items = [i for i in record.conversation if getattr(i, "tool_call_id", "") != name]
            return record.model_copy(update={"conversation": tuple(items)})
        return None if isinstance(record, ToolCall) and record.tool_call_id == name else record

    return change


def ended_by_the_disk(
    *gaps: Gap, outcome: InvocationStatus = InvocationStatus.UNKNOWN
) -> CellFiles:
    """A harness that asked for the second command and could not write any more."""
    files = failure_row(good("disk_full", statuses=(200, 200)))
    files = with_row(files, failure_stage="agent", failure_kind="failed")
    files = with_tool(files, 1, marker_found=False, home_seen=None)
    return with_observed(with_observed(files, forgotten(1), *gaps), status(outcome))


def test_a_call_that_a_full_disk_swallowed_with_the_harness_is_no_fault() -> None:
    assert failures(ended_by_the_disk(NO_END)) == set()


def test_nor_is_one_that_ran_and_whose_end_could_not_be_written() -> None:
    files = failure_row(good("disk_full", statuses=(200,)))
    files = with_row(files, failure_stage="agent", failure_kind="failed")
    files = with_observed(files, tool_status(ToolStatus.INCOMPLETE), NO_END)
    files = with_observed(files, conversation(result(output="")))
    assert failures(with_observed(files, status(InvocationStatus.UNKNOWN))) == set()


def test_a_run_that_fails_after_both_commands_is_held_to_both() -> None:
    files = failure_row(good("disk_full"))
    files = with_row(files, failure_stage="agent", failure_kind="failed")
    files = with_observed(files, status(InvocationStatus.FAILED))
    assert failures(files) == set()
    assert failures(with_tool(files, 1, marker_found=False)) >= {"tools_executed"}


def swallowed(*gaps: Gap) -> CellFiles:
    """A run that completed, and the first command's end is not on record."""
    files = with_observed(good("disk_full"), tool_status(ToolStatus.INCOMPLETE), *gaps)
    return with_observed(files, conversation(result(exit_code=None)))


def test_a_result_that_could_not_be_written_is_no_fault_where_a_gap_names_its_call() -> None:
    witness = good("disk_full").witness
    assert witness is not None
    name = witness.tools[0].expected.tool_call_id
    lost, told = Gap(code=UNPARSEABLE), Gap(code=NO_OUTCOME, detail=f"{name}: no result")
    assert failures(swallowed(lost, told)) == set()
    assert failures(swallowed(lost)) == failures(swallowed(told)) == {"tool_status"}
    other = told.model_copy(update={"detail": "call9: no result"})
    assert failures(swallowed(lost, other)) == {"tool_status"}


LESS = {
    "no gap tells of it": (
        ended_by_the_disk,
        {"outcome_class", "tools_executed", "tool_status", "observations_present"},
    ),
    "an earlier call is lost too": (
        lambda: with_observed(ended_by_the_disk(NO_END), forgotten(0)),
        {"tool_status", "observations_present", "tool_output"},
    ),
    "an earlier call is called incomplete": (
        lambda: with_observed(ended_by_the_disk(NO_END), tool_status(ToolStatus.INCOMPLETE)),
        {"tool_status"},
    ),
    "the run went on to its end": (
        lambda: with_observed(good("disk_full"), tool_status(ToolStatus.INCOMPLETE, 1), NO_END),
        {"tool_status"},
    ),
}


@pytest.mark.parametrize(("make", "failing"), LESS.values(), ids=list(LESS))
def test_less_than_that_is_not_let_pass(make: Callable[[], CellFiles], failing: set[str]) -> None:
    assert failures(make()) == failing


def whole(files: CellFiles, *, missing: int) -> CellFiles:
    """Show the model and the transcript all of a big output but for so many bytes."""
    assert files.witness is not None
    known = files.witness.tools[0].expected
    size = len(known.output.encode()) + missing
    files = with_exchanges(files, untruncated)
    files = with_observed(files, conversation(result(output=known.output)))
    return with_tool(files, 0, expected=known.model_copy(update={"output_bytes": size}))


def test_a_line_break_at_the_end_is_no_loss_and_a_byte_more_is() -> None:
    assert failures(whole(good("big_output"), missing=1)) == set()
    assert failures(whole(good("big_output"), missing=2)) == {"truncation_told"}


def without_header(exchange: Exchange) -> Exchange:
    theirs = exchange.client_session_id == "session-2"
    return exchange.model_copy(update={"headers": {}}) if theirs else exchange


def test_a_subagent_needs_no_header_where_its_transcript_names_its_calls() -> None:
    files = with_exchanges(good("subagent"), without_header)
    assert failures(files) == {"drift"}
    declared = {**files.cell.capabilities, "response_ids": True}
    assert failures(with_cell(files, capabilities=declared)) == set()
    root = with_exchanges(files, lambda e: e.model_copy(update={"headers": {}}))
    assert failures(with_cell(root, capabilities=declared)) == {"drift"}
