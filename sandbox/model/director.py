"""The director: what the script answers to an ask, and whether it may go on."""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from sandbox.evidence.exchanges import ScriptReport
from sandbox.model.dialect import Ask, Call
from sandbox.model.polling import pending_poll
from sandbox.model.script import (
    HoldStep,
    RawToolStep,
    Script,
    ScriptedCall,
    SubagentStep,
    TextStep,
    ToolStep,
)
from sandbox.model.subagents import subagent_call
from sandbox.model.tools import NoShellTool, choose_shell_tool, shell_call

# How harnesses ask for the summary that takes the place of a long history.
_SUMMARY = re.compile(
    r"(?i)(create|write|provide|produce|generate|output)\b[^.\n]{0,90}\bsummary|context checkpoint"
)
ReadMarker = Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True)
class Speak:
    """Say this. ``step`` is the step it belongs to; None for a helper answer or a poll.

    ``reported_tokens`` are input tokens to claim instead of the true ones.
    """

    step: int | None
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    reported_tokens: int | None = None


@dataclass(frozen=True)
class Hold:
    """Say nothing until the client leaves."""

    step: int


@dataclass(frozen=True)
class Refuse:
    """Do not go on; the reason names what is missing."""

    reason: str


Decision = Speak | Hold | Refuse


class Director:
    """Follows one script. Decisions come from one event loop; reports from any thread.

    Args:
        script: what is said.
        read_marker: text of a file in the sandbox, None when it does not exist.
    """

    def __init__(self, script: Script, read_marker: ReadMarker) -> None:
        self._script = script
        self._read_marker = read_marker
        self._verified: set[str] = set()
        self._lock = threading.Lock()
        self._steps_done = 0
        self._refusal: str | None = None
        self._asks = 0
        self._helped = False
        self._claimed: int | None = None

    def number(self, ask: Ask) -> int | None:
        """Number of an ask, from 1; None for a helper call."""
        if self._is_helper(ask):
            return None
        self._asks += 1
        return self._asks

    async def decide(self, ask: Ask) -> Decision:
        """What to answer. A refusal is remembered; so is how far the script came."""
        if self._is_helper(ask):
            self._helped = True
            await self._verify_shortened(ask)
            # the history is the one whose size was claimed: harnesses take the one from the other
            text, claimed = self._script.helper_text, self._claimed
            return Speak(step=None, text=text, reported_tokens=claimed)
        decision = await self._decide(ask)
        match decision:
            case Refuse():
                self._note_refusal(decision.reason)
            case Hold():
                self.done(decision.step)
            case Speak(reported_tokens=int(claimed)):
                self._claimed = claimed
        return decision

    def done(self, step: int) -> None:
        """Step ``step`` was carried out: its tools are verified, or its answer was delivered."""
        with self._lock:
            self._steps_done = max(self._steps_done, step + 1)

    def report(self) -> ScriptReport:
        """How far the script came."""
        with self._lock:
            return ScriptReport(
                steps=len(self._script.steps),
                steps_done=self._steps_done,
                refusal=self._refusal,
            )

    def _is_helper(self, ask: Ask) -> bool:
        asks_summary = self._script.compacts and ask.prompts and _SUMMARY.search(ask.prompts[-1])
        return not ask.tools or bool(asks_summary)

    async def _decide(self, ask: Ask) -> Decision:
        child = self._script.child_of(ask.prompts)
        if child is None:
            return await self._answer(ask, self._script)
        decision = await self._answer(ask, child, is_child=True)
        return replace(decision, step=None) if isinstance(decision, Speak) else decision

    async def _answer(self, ask: Ask, script: Script, *, is_child: bool = False) -> Decision:
        kept = self._verified if self._script.compacts else frozenset()
        due = script.due({*ask.results, *kept}, ask.requested)
        if due.lost:
            return Refuse(f"the request has no result for tool call {', '.join(due.lost)}")
        before = [
            call
            for call in script.all_calls()
            if call.step < due.step and call.call_id in ask.results
        ]
        polls = tuple(poll for call in before if (poll := _poll(call, ask)) is not None)
        if polls:
            return Speak(step=None, calls=polls)
        for call in before:
            if (reason := await self._doubt(call)) is not None:
                return Refuse(reason)
        if due.step > 0 and not is_child:
            self.done(due.step - 1)
        return self._speak(ask, script, due.step)

    def _speak(self, ask: Ask, script: Script, index: int) -> Decision:
        if index == len(script.steps):
            return Refuse(f"the script is over: all of its {index} steps are done")
        step = script.steps[index]
        match step:
            case HoldStep():
                return Hold(step=index)
            case TextStep():
                return Speak(
                    step=index,
                    text=step.text,
                    reasoning=step.reasoning,
                    reported_tokens=None if self._helped else step.reported_tokens,
                )
        child = script.child(index)
        if child is not None and subagent_call(ask.tools, "", "") is None:
            return self._speak(ask, child, child.due(ask.results, ask.requested).step)
        calls = script.calls(index)
        said = [call.spec for call in calls if not isinstance(call.spec, SubagentStep)]
        own = step if isinstance(step, ToolStep) else None
        try:
            return Speak(
                step=index,
                text=" ".join(spec.text for spec in said if spec.text),
                reasoning="" if own is None else own.reasoning,
                calls=tuple(_call(call, ask) for call in calls),
                reported_tokens=None if own is None or self._helped else own.reported_tokens,
            )
        except NoShellTool as error:
            return Refuse(str(error))

    async def _verify_shortened(self, ask: Ask) -> None:
        """Look at what has run while its result is still there: a summary takes its place."""
        for call in self._script.all_calls() if self._script.compacts else ():
            if call.call_id in ask.results:
                await self._doubt(call)

    async def _doubt(self, call: ScriptedCall) -> str | None:
        """Why a call that has a result cannot be taken as run; None when it really ran."""
        spec = call.spec
        if not isinstance(spec, ToolStep) or call.call_id in self._verified:
            return None
        try:
            found = await self._read_marker(spec.marker)
        except Exception as error:  # noqa: BLE001 - whatever kept us from looking is the reason
            return f"marker {spec.marker} could not be read: {type(error).__name__}: {error}"
        if found is None:
            return f"tool call {call.call_id} did not run: no marker {spec.marker}"
        if found.rstrip("\n") != spec.marker_text.rstrip("\n"):
            return (
                f"tool call {call.call_id} did not run as scripted: marker {spec.marker} holds "
                f"{found[:200]!r}, not {spec.marker_text[:200]!r}"
            )
        self._verified.add(call.call_id)
        return None

    def _note_refusal(self, reason: str) -> None:
        with self._lock:
            self._refusal = self._refusal or reason


def _call(call: ScriptedCall, ask: Ask) -> Call:
    spec = call.spec
    if isinstance(spec, ToolStep):
        return shell_call(choose_shell_tool(ask.tools), call.call_id, spec.command)
    if isinstance(spec, SubagentStep):
        spawn = subagent_call(ask.tools, call.call_id, spec.prompt)
        assert spawn is not None
        return spawn
    if spec.tool_name is not None:
        return Call(call_id=call.call_id, name=spec.tool_name, arguments=spec.arguments)
    tool = choose_shell_tool(ask.tools)
    return Call(call.call_id, tool.name, spec.arguments, tool.namespace)


def _poll(call: ScriptedCall, ask: Ask) -> Call | None:
    """The poll due for a call whose command ends by itself and whose result is not final."""
    if isinstance(call.spec, RawToolStep) or (
        isinstance(call.spec, ToolStep) and call.spec.exit_code is None
    ):
        return None
    return pending_poll(call.call_id, ask.results, ask.tools)
