"""Scripts: what the scripted model says, step by step, and what must be true before it goes on.

A script is a value. Which step is due follows from the history that a request carries (which of
our tool calls have a result in it), never from a counter, so a retried request gets the same step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sandbox.evidence.exchanges import ToolExpectation
from sandbox.evidence.records import Record
from sandbox.model.faults import Fault


class ToolStep(Record):
    """One call of the shell tool that the harness advertises.

    ``command`` is a POSIX sh command line that writes ``marker_text`` to the path ``marker`` in
    the sandbox. ``output`` and ``exit_code`` are its true result (``exit_code`` None: it never
    ends by itself, so an unfinished result is enough to go on). ``text`` is said before the call,
    ``reasoning`` before that. ``output_bytes``: the whole output's size, when ``output`` is only
    its first line. ``reported_tokens``: the input tokens that the reply claims, instead of true
    ones, until a helper call was made.
    """

    kind: Literal["tool"] = "tool"
    command: str
    marker: str
    marker_text: str
    output: str
    exit_code: int | None
    text: str = ""
    reasoning: str = ""
    output_bytes: int | None = None
    reported_tokens: int | None = None


class RawToolStep(Record):
    """One call exactly as written: an unknown tool, or arguments that are not JSON.

    ``tool_name`` None means the advertised shell tool. Nothing is expected to have run; only the
    call's result must come back. ``marker`` is a file that exists only when it ran after all.
    """

    kind: Literal["raw_tool"] = "raw_tool"
    tool_name: str | None
    arguments: str
    text: str = ""
    marker: str = ""


class ParallelToolStep(Record):
    """Several calls in one reply."""

    kind: Literal["parallel_tools"] = "parallel_tools"
    calls: tuple[ToolStep | RawToolStep, ...] = Field(min_length=1)


class TextStep(Record):
    """A text that ends the turn; ``reasoning`` is sent before it in the dialect's own form.

    ``reported_tokens``: as in a tool step.
    """

    kind: Literal["text"] = "text"
    text: str
    reasoning: str = ""
    reported_tokens: int | None = None


class SubagentStep(Record):
    """One call of the advertised tool that starts a subagent, which works through ``steps``.

    The subagent's own requests are known by ``prompt``, which must be in no other prompt. Where no
    such tool is advertised, the caller itself is told to do the tool steps.
    """

    kind: Literal["subagent"] = "subagent"
    prompt: str
    steps: tuple[ToolStep | TextStep, ...] = Field(min_length=2)


class HoldStep(Record):
    """Never answers: the request is held until the client leaves or the server stops."""

    kind: Literal["hold"] = "hold"


Step = Annotated[
    ToolStep | RawToolStep | ParallelToolStep | SubagentStep | TextStep | HoldStep,
    Field(discriminator="kind"),
]
CallSpec = ToolStep | RawToolStep | SubagentStep


@dataclass(frozen=True)
class ScriptedCall:
    """A tool call of a script with its id, which is letters and digits only."""

    call_id: str
    step: int
    spec: CallSpec


@dataclass(frozen=True)
class Due:
    """What the history of a request leads to.

    ``step`` is the index of the step to answer with (the number of steps when the script is
    over). ``lost`` are calls that the history must hold a result of, and does not.
    """

    step: int
    lost: tuple[str, ...] = ()


class Script(Record):
    """Steps, faults and options of one scripted model.

    Args:
        steps: what is said, in order.
        faults: what goes wrong, and on which asks; the first that hits wins.
        usage: False leaves token usage out of every reply.
        helper_text: the answer to helper calls (requests without any tool: titles, summaries).
        compacts: calls that have run may vanish from the history, and a request for a summary is a
            helper call even when it offers tools.
        reachable: False: the listener is closed at once, and every connection is refused.
        seed: goes into the tool call ids, for two scripts whose calls must not be confused.
    """

    steps: tuple[Step, ...] = Field(min_length=1)
    faults: tuple[Fault, ...] = ()
    usage: bool = True
    helper_text: str = "Scripted helper answer"
    compacts: bool = False
    reachable: bool = True
    seed: str = ""

    @model_validator(mode="after")
    def _text_and_hold_come_last(self) -> Self:
        for step in self.steps[:-1]:
            if step.kind in ("text", "hold"):
                raise ValueError(f"a {step.kind} step ends the turn, so it must be the last step")
        return self

    def calls(self, index: int) -> tuple[ScriptedCall, ...]:
        """The tool calls of step ``index``; none for a text or a hold."""
        step = self.steps[index]
        specs: tuple[CallSpec, ...]
        match step:
            case ToolStep() | RawToolStep() | SubagentStep():
                specs = (step,)
            case ParallelToolStep():
                specs = step.calls
            case _:
                specs = ()
        return tuple(
            ScriptedCall(call_id=self._call_id(index, slot, spec), step=index, spec=spec)
            for slot, spec in enumerate(specs)
        )

    def all_calls(self) -> tuple[ScriptedCall, ...]:
        """Every tool call of the script, in order."""
        return tuple(call for index in range(len(self.steps)) for call in self.calls(index))

    def expectations(self) -> tuple[ToolExpectation, ...]:
        """What each scripted call must do, or not do; ``step`` is the index in ``steps``."""
        return tuple(found for call in self.all_calls() for found in self._expected(call))

    def child(self, index: int) -> Script | None:
        """What the subagent of step ``index`` is told; None for any other step."""
        step = self.steps[index]
        if not isinstance(step, SubagentStep):
            return None
        seed = f"{self.seed} subagent {index}"
        return Script(steps=step.steps, faults=(), usage=self.usage, seed=seed)

    def child_of(self, prompts: Collection[str]) -> Script | None:
        """The script of the subagent that has these prompts; None: it is the root's."""
        for index, step in enumerate(self.steps):
            if isinstance(step, SubagentStep) and any(step.prompt in text for text in prompts):
                return self.child(index)
        return None

    def _expected(self, call: ScriptedCall) -> tuple[ToolExpectation, ...]:
        match call.spec:
            case ToolStep() as spec:
                return (_expectation(call, spec),)
            case RawToolStep() as spec:
                return (_refusal_expected(call, spec),)
        child = self.child(call.step)
        assert child is not None
        own = {"step": call.step, "spawned_by": call.call_id}
        return tuple(found.model_copy(update=own) for found in child.expectations())

    def due(self, results: Collection[str], requested: Collection[str] = ()) -> Due:
        """The step that a history leads to.

        Args:
            results: ids of the tool calls whose result the request carries.
            requested: ids of the tool calls that its assistant messages carry.
        """
        step = next(
            (index for index in range(len(self.steps)) if not self._is_over(index, results)),
            len(self.steps),
        )
        due = {call.call_id for call in self.all_calls() if call.step == step}
        later = {call.call_id for call in self.all_calls() if call.step > step}
        if not (due | later) & (set(results) | set(requested)):
            return Due(step=step)
        return Due(step=step, lost=tuple(sorted(due - set(results))))

    def fault(self, ask: int | None) -> Fault | None:
        """The fault on ask number ``ask`` (None: a helper call)."""
        return next((fault for fault in self.faults if fault.hits(ask)), None)

    def _is_over(self, index: int, results: Collection[str]) -> bool:
        child = self.child(index)
        if child is not None and all(call.call_id in results for call in child.all_calls()):
            return True
        calls = self.calls(index)
        return bool(calls) and all(call.call_id in results for call in calls)

    def _call_id(self, index: int, slot: int, spec: CallSpec) -> str:
        text = f"{self.seed}\0{index}\0{slot}\0{spec.model_dump_json()}"
        return f"call{index}x{slot}x{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _expectation(call: ScriptedCall, spec: ToolStep) -> ToolExpectation:
    return ToolExpectation(
        step=call.step,
        tool_call_id=call.call_id,
        command=spec.command,
        marker=spec.marker,
        marker_text=spec.marker_text,
        output=spec.output,
        exit_code=spec.exit_code,
        output_bytes=spec.output_bytes,
    )


def _refusal_expected(call: ScriptedCall, spec: RawToolStep) -> ToolExpectation:
    return ToolExpectation(
        step=call.step,
        tool_call_id=call.call_id,
        command=spec.arguments,
        marker=spec.marker,
        marker_text="",
        output="",
        exit_code=None,
        runs=False,
    )
