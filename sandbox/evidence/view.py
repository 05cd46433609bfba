"""A cell as checks see it: facts that are missing raise, so no check can skip them by accident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from sandbox.evidence.capture import capture, is_completed, says_something
from sandbox.evidence.cell import CellRecord, WitnessRecord
from sandbox.evidence.exchanges import CapturedCall, Exchange, ToolWitness
from sandbox.evidence.expectations import Ending, Expectation
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.join import invocations_of
from sandbox.evidence.observations import AgentInvocation, Observations, ToolCall, ToolResultItem
from sandbox.evidence.records import CleanupReceipt, EgressEvent, InstallReceipt
from sandbox.evidence.rows import FailureRow, Row, SuccessRow
from sandbox.evidence.verdict import MissingEvidence

UNPARSEABLE = "agent_artifact_record_unparseable"
"""The gap of a record that was lost or torn."""

_Fact = TypeVar("_Fact")
_TIMED_OUT = "agent_run_timeout"
_NO_END = "invocation_outcome_unavailable"
_NO_OUTCOME = "tool_outcome_unavailable"


@dataclass(frozen=True)
class CellEvidence:
    """The files of one cell folder; a property raises ``MissingEvidence`` when its fact lacks."""

    files: CellFiles

    @property
    def cell(self) -> CellRecord:
        """The cell's identity and circumstances."""
        return self.files.cell

    @cached_property
    def expected(self) -> Expectation:
        """What the scenario expects: of its legitimate endings the one that this cell has.

        Of several that differ in the number of commands alone it is the nearest one. A cell that
        has none of them is held to the best one.
        """
        expectation = self.files.cell.expectation
        endings = expectation.legitimate(self.files.cell.capabilities)
        fitting = filter(self._ended_so, endings)
        tools = self.files.witness.tools if self.files.witness is not None else ()
        ran = sum(tool.expected.runs and tool.marker_found for tool in tools)
        nearest = min(fitting, key=lambda ending: abs(ending.tools - ran), default=expectation)
        return expectation.settled(nearest)

    def _ended_so(self, ending: Ending) -> bool:
        row, receipt = self.files.row, self.files.receipt
        if row is None or receipt is None:
            return False
        stage = row.failure_stage if isinstance(row, FailureRow) else None
        statuses = {i.status for i in self.invocations if i.parent_invocation_id is None}
        reward = row.reward if isinstance(row, SuccessRow) else None
        return (
            stage == ending.failure_stage
            and reward == ending.reward
            and statuses <= set(ending.outcomes)
            and (receipt.timed_out, receipt.stopped) == (ending.timed_out, ending.stopped)
        )

    @property
    def row(self) -> Row:
        """The one row."""
        row: Row | None = self.files.row
        if row is None:
            raise self._missing("rollouts.jsonl", "failures.jsonl", "row")
        return row

    @property
    def witness(self) -> WitnessRecord:
        """What the witness saw."""
        return self._need(self.files.witness, "witness.json")

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Every saved exchange."""
        return self._need(self.files.exchanges, "exchanges.jsonl")

    @property
    def receipt(self) -> CleanupReceipt:
        """The supervisor's cleanup receipt."""
        return self._need(self.files.receipt, "receipt.json")

    @property
    def is_remote(self) -> bool:
        """Whether a server at a URL did the work: its receipts and files are not in the cell."""
        return self.cell.agent is not None and self.cell.agent.url is not None

    @property
    def timed_out(self) -> bool:
        """Whether the run was stopped by its deadline: by the receipt, or as a server reports."""
        if self.files.receipt is None and self.is_remote:
            return any(gap.code == _TIMED_OUT for gap in self.observations.gaps)
        return self.receipt.timed_out

    @property
    def was_stopped(self) -> bool:
        """Whether the run did not end by itself."""
        if self.files.receipt is None and self.is_remote:
            return self.timed_out or self.expected.stopped  # who stops it then is the runner
        return self.receipt.timed_out or self.receipt.stopped

    @property
    def install(self) -> InstallReceipt:
        """The installer's receipt."""
        return self._need(self.files.install, "install.json")

    @property
    def egress(self) -> tuple[EgressEvent, ...]:
        """The egress log."""
        return self._need(self.files.egress, "egress.jsonl")

    @property
    def observations(self) -> Observations:
        """What the adapter reported, as the row carries it."""
        return self.row.ng_agent_observations

    @cached_property
    def calls(self) -> tuple[CapturedCall, ...]:
        """The agent's model calls among the saved exchanges: made here, not taken from the row."""
        return capture(self.exchanges)

    @cached_property
    def completed_calls(self) -> int:
        """How many model calls were answered."""
        return sum(map(is_completed, self.calls))

    @property
    def said_anything(self) -> bool:
        """Whether any answer had a text or a tool call."""
        return any(map(says_something, self.calls))

    @property
    def invocations(self) -> list[AgentInvocation]:
        """The invocation records."""
        return invocations_of(self.observations)

    @property
    def root(self) -> AgentInvocation:
        """The one root invocation."""
        roots = [i for i in self.invocations if i.parent_invocation_id is None]
        if len(roots) != 1:
            raise MissingEvidence(f"expected one root invocation, saw {len(roots)}")
        return roots[0]

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool call records."""
        return [r for r in self.observations.records if isinstance(r, ToolCall)]

    @property
    def tool_results(self) -> list[ToolResultItem]:
        """The tool results in all conversations."""
        return [
            item
            for invocation in self.invocations
            for item in invocation.conversation
            if isinstance(item, ToolResultItem)
        ]

    @property
    def records_lost(self) -> bool:
        """Whether the scenario may cost records, and a gap says that it did."""
        return self.expected.lossy and any(
            gap.code == UNPARSEABLE for gap in self.observations.gaps
        )

    def result_lost(self, tool_call_id: str) -> bool:
        """Whether records were lost, and a gap says so of this call's outcome."""
        return self.records_lost and any(
            gap.code == _NO_OUTCOME and gap.detail.startswith(tool_call_id)
            for gap in self.observations.gaps
        )

    @cached_property
    def broken_off(self) -> set[str]:
        """The tool calls of the last reply, where a harness may have ended in the middle of them.

        Empty unless the scenario may cost records, the run is a failure, and a gap says that its
        end is not on record: then nobody was left to carry them out or to note what became of them.
        """
        told = any(gap.code == _NO_END for gap in self.observations.gaps)
        whole = [call for call in self.calls if is_completed(call)]
        if not (self.expected.lossy and self.expected.row == "failure" and told and whole):
            return set()
        last = max(whole, key=lambda call: call.started_at).model_call_id
        names = (e.tool_call_ids for e in self.exchanges if e.exchange_id == last)
        return {name for found in names for name in found}

    @property
    def scripted_tools(self) -> Sequence[ToolWitness]:
        """The scripted tool calls that must run when they are asked for."""
        return [tool for tool in self.witness.tools if tool.expected.runs]

    @cached_property
    def asked_for(self) -> set[str]:
        """The tool calls in replies that arrived whole."""
        whole = {call.model_call_id for call in self.calls if is_completed(call)}
        return {
            name
            for exchange in self.exchanges
            if exchange.exchange_id in whole
            for name in exchange.tool_call_ids
        }

    def was_asked(self, tool: ToolWitness) -> bool:
        """Whether a reply that arrived whole, or that the harness obeyed, asked for the call."""
        return tool.requested and (
            tool.marker_found or tool.expected.tool_call_id in self.asked_for
        )

    @property
    def run_tools(self) -> Sequence[ToolWitness]:
        """The scripted tool calls that the model asked for or that ran."""
        return [tool for tool in self.scripted_tools if self.was_asked(tool) or tool.marker_found]

    @property
    def refused_tools(self) -> Sequence[ToolWitness]:
        """The calls that were asked for and that the harness must refuse."""
        return [t for t in self.witness.tools if not t.expected.runs and t.requested]

    def seen(self, fact: _Fact | None, name: str) -> _Fact:
        """Return a fact of the witness that must have been observed."""
        if fact is None:
            raise MissingEvidence(f"the witness did not observe {name}")
        return fact

    def _need(self, fact: _Fact | None, name: str) -> _Fact:
        if fact is None:
            raise self._missing(name)
        return fact

    def _missing(self, *names: str) -> MissingEvidence:
        for name in names:
            if name in self.files.problems:
                return MissingEvidence(f"{name}: {self.files.problems[name]}")
        return MissingEvidence(f"{' or '.join(n for n in names if '.' in n)} is missing")
