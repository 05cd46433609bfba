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

from sandbox.evidence.records import Record, ToolExpectation
from sandbox.model.faults import Fault


class ToolStep(Record):
    """One call of the shell tool that the harness advertises.

    ``command`` is a POSIX sh command line that writes ``marker_text`` to the path ``marker`` in
    the sandbox. ``output`` and ``exit_code`` are its true result (``exit_code`` None: it never
    ends by itself, so an unfinished result is enough to go on). ``text`` is said before the call.
    """

    kind: Literal["tool"] = "tool"
    command: str
    marker: str
    marker_text: str
    output: str
    exit_code: int | None
    text: str = ""


class RawToolStep(Record):
    """One call exactly as written: an unknown tool, or arguments that are not JSON.

    ``tool_name`` None means the advertised shell tool. Nothing is expected to have run; only the
    call's result must come back.
    """

    kind: Literal["raw_tool"] = "raw_tool"
    tool_name: str | None
    arguments: str
    text: str = ""


class ParallelToolStep(Record):
    """Several calls in one reply."""

    kind: Literal["parallel_tools"] = "parallel_tools"
    calls: tuple[ToolStep | RawToolStep, ...] = Field(min_length=1)


class TextStep(Record):
    """A text that ends the turn; ``reasoning`` is sent before it in the dialect's own form."""

    kind: Literal["text"] = "text"
    text: str
    reasoning: str = ""


class HoldStep(Record):
    """Never answers: the request is held until the client leaves or the server stops."""

    kind: Literal["hold"] = "hold"


Step = Annotated[
    ToolStep | RawToolStep | ParallelToolStep | TextStep | HoldStep, Field(discriminator="kind")
]


@dataclass(frozen=True)
class ScriptedCall:
    """A tool call of a script with its id, which is letters and digits only."""

    call_id: str
    step: int
    spec: ToolStep | RawToolStep


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
        seed: goes into the tool call ids, for two scripts whose calls must not be confused.
    """

    steps: tuple[Step, ...] = Field(min_length=1)
    faults: tuple[Fault, ...] = ()
    usage: bool = True
    helper_text: str = "Scripted helper answer"
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
        match step:
            case ToolStep() | RawToolStep():
                specs: tuple[ToolStep | RawToolStep, ...] = (step,)
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
        """What each scripted command must do; ``step`` is the index in ``steps``."""
        return tuple(
            ToolExpectation(
                step=call.step,
                tool_call_id=call.call_id,
                command=call.spec.command,
                marker=call.spec.marker,
                marker_text=call.spec.marker_text,
                output=call.spec.output,
                exit_code=call.spec.exit_code,
            )
            for call in self.all_calls()
            if isinstance(call.spec, ToolStep)
        )

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
        calls = self.calls(index)
        return bool(calls) and all(call.call_id in results for call in calls)

    def _call_id(self, index: int, slot: int, spec: ToolStep | RawToolStep) -> str:
        text = f"{self.seed}\0{index}\0{slot}\0{spec.model_dump_json()}"
        return f"call{index}x{slot}x{hashlib.sha256(text.encode()).hexdigest()[:12]}"
