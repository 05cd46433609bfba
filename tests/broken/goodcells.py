"""Cells in which everything is right, made from the real scenarios: the ground for planted defects.

A small simulated harness walks through a scenario's own script in either dialect and records what a
correct adapter, witness and supervisor would. ``good`` returns the facts, ``write`` a folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sandbox.conformance.scenarios import SCENARIOS
from sandbox.evidence.assemble import assemble
from sandbox.evidence.cell import (
    CellRecord,
    Companion,
    EngineRecord,
    HarnessPin,
    ImageRecord,
    NetworkCounters,
    PhaseUse,
    SecretSeen,
    Teardown,
    VerifierResult,
    WitnessRecord,
)
from sandbox.evidence.exchanges import Exchange, ScriptReport, TokenUsage, ToolWitness
from sandbox.evidence.expectations import Expectation
from sandbox.evidence.folder import CellFiles, write_cell
from sandbox.evidence.observations import (
    AgentInvocation,
    ContextCompaction,
    ConversationItem,
    InvocationStatus,
    MessageItem,
    Observations,
    ReasoningItem,
    ToolCall,
    ToolRequestItem,
    ToolResultItem,
    ToolStatus,
)
from sandbox.evidence.records import (
    CleanupReceipt,
    FileChange,
    InstallReceipt,
    ResourceUse,
    Survivor,
    VersionCheck,
)
from sandbox.evidence.tally import digest_of
from sandbox.model.faults import (
    CutFault,
    EmptyFault,
    Fault,
    LengthFault,
    MalformedFault,
    StallFault,
    StatusFault,
    fault_name,
)
from sandbox.model.script import (
    RawToolStep,
    Script,
    ScriptedCall,
    SubagentStep,
    TextStep,
    ToolStep,
)

Dialect = Literal["responses", "chat"]

PROMPT = "Do the task."
ANSWER = "The task is done."
SESSION = "session-1"
HOME = "/root"
SESSION_DIR = "/var/tmp/agent-1"
START = 1_800_000_000.0
CAPABILITIES = {
    "session_header": "session-id",
    "parallel_tools": True,
    "subagents": True,
    "compaction": False,
    "needs_bash": False,
    "request_deadline": False,
    "stream_deadline": True,
    "tools_see_key": False,
}
COMPANION = Companion(
    rollout_id="run1.other",
    outcome="completed",
    reward=1.0,
    calls=2,
    foreign_calls=0,
    overlapped=True,
    session_dir_gone=True,
)
HARNESS = {"responses": "codex", "chat": "opencode"}


def good(
    scenario: str = "tool_success",
    dialect: Dialect = "responses",
    *,
    image: str = "debian-12",
    statuses: Sequence[int] | None = None,
) -> CellFiles:
    """Return the facts of a cell that passes every check; ``statuses`` replaces the exchanges'."""
    known = SCENARIOS[scenario]
    cell_id = f"{HARNESS[dialect]}/{image}/{scenario}"
    rollout_id = f"run1.{cell_id.replace('/', '.')}"
    walk = _Walk(
        rollout_id=rollout_id,
        dialect=dialect,
        script=known.script(rollout_id),
        expectation=known.expectation,
    )
    if statuses is not None:
        for status in statuses:
            walk.root.ask(status)
    else:
        walk.to_the_end()
    return walk.files(cell_id, image)


def rejoined(files: CellFiles, observations: Observations) -> CellFiles:
    """Return the files with a row assembled anew from these observations."""
    assert files.row is not None
    parts = assemble(
        task_id=files.cell.task_id,
        rollout_id=files.cell.rollout_id,
        observations=observations,
        exchanges=files.exchanges or (),
    )
    row = files.row.model_copy(
        update={
            "ng_agent_observations": parts.observations,
            "ng_trajectory": parts.trajectory,
            "ng_model_call_capture": parts.capture,
        }
    )
    return replace(files, row=row)


def write(folder: Path, files: CellFiles) -> Path:
    """Write a cell folder with its native files."""
    native = folder.parent / f"{folder.name}.native"
    for name in files.native:
        (native / name).parent.mkdir(parents=True, exist_ok=True)
        (native / name).write_text("{}\n")
    write_cell(folder, files, native=native if files.native else None)
    return folder


def _fewest(expectation: Expectation) -> list[int]:
    return [run.status for run in expectation.exchanges for _ in range(run.at_least)]


@dataclass
class _Agent:
    """A simulated agent loop, the root's or a subagent's, and what it records."""

    walk: _Walk
    script: Script
    session: str
    prompt: str
    parent: str | None = None
    spawned_by: str | None = None
    history: list[ConversationItem] = field(default_factory=list)
    step: int = 0
    answered: bool = False

    def __post_init__(self) -> None:
        self.history.append(MessageItem(role="user", text=self.prompt))

    def ask(self, status: int = 200, fault: Fault | None = None) -> None:
        """Make one request and take its reply."""
        walk = self.walk
        number = len(walk.exchanges) + 1
        whole = status == 200 and not isinstance(fault, CutFault | MalformedFault | StallFault)
        said = self._say(fault) if whole else []
        cut = isinstance(fault, LengthFault)
        response, finish = _reply(walk.dialect, number, said, status if whole else 0, cut=cut)
        if status >= 400:
            response, finish = _reply(walk.dialect, number, said, status)
        scripted = "hold" if status == 0 else None if status == 200 else f"status_{status}"
        walk.exchanges.append(
            Exchange(
                exchange_id=f"mc{number:05d}",
                rollout_id=walk.rollout_id,
                dialect=walk.dialect,
                method="POST",
                path=f"/rollout/{walk.rollout_id}/v1/{walk.dialect}",
                headers={"session-id": self.session},
                streamed=True,
                started_at=START + number,
                completed_at=START + number + 0.5,
                request=walk.request(self.history),
                status_code=status,
                response=response,
                response_id=f"resp{number}" if whole else None,
                tool_call_ids=tuple(
                    item.tool_call_id for item in said if isinstance(item, ToolRequestItem)
                ),
                usage=TokenUsage(input_tokens=9, output_tokens=4, total_tokens=13)
                if whole and self.script.usage
                else None,
                finish_reason=finish,
                fault=scripted if fault is None else fault_name(fault),
                disconnected=status == 0,
                client_session_id=self.session,
            )
        )
        self.history += said
        if whole and fault is None:
            self._carry_out()

    def _say(self, fault: Fault | None) -> list[ConversationItem]:
        if isinstance(fault, EmptyFault):
            return []
        step = self.script.steps[self.step]
        if isinstance(step, TextStep):
            thought = [ReasoningItem(text=step.reasoning)] if step.reasoning else []
            text = step.text[: len(step.text) // 2] if fault else step.text
            return [*thought, MessageItem(role="assistant", text=text)]
        if fault is not None:
            return [MessageItem(role="assistant", text="I shall")]
        said: list[ConversationItem] = []
        if isinstance(step, ToolStep) and step.reasoning:
            said.append(ReasoningItem(text=step.reasoning))
        return [*said, *(_request_of(call) for call in self.script.calls(self.step))]

    def _carry_out(self) -> None:
        calls = self.script.calls(self.step)
        if not calls:
            self.answered = True
            return
        ended = [self._run(call) for call in calls]
        self.step += all(ended)

    def _run(self, call: ScriptedCall) -> bool:
        """Carry a call out; whether it ended."""
        spec = call.spec
        code: int | None = 1
        output = "there is no such tool, or its arguments are wrong"
        if isinstance(spec, SubagentStep):
            code, output = 0, self.walk.subagent(self, call, spec)
        elif isinstance(spec, ToolStep):
            code = spec.exit_code
            output = spec.output if spec.output_bytes is None else f"{spec.output}[truncated]"
        self.walk.note_tool(self, call, code)
        if code is not None:
            self.history.append(
                ToolResultItem(tool_call_id=call.call_id, output=output, exit_code=code)
            )
        return code is not None


@dataclass
class _Walk:
    """A simulated harness and all that is seen of it."""

    rollout_id: str
    dialect: Dialect
    script: Script
    expectation: Expectation
    exchanges: list[Exchange] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    children: list[_Agent] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.root = _Agent(self, self.script, SESSION, PROMPT)

    def to_the_end(self) -> None:
        """Ask as seldom as the best ending allows."""
        whole = self.expectation.outcomes == (InvocationStatus.COMPLETED,)
        for status in _fewest(self.expectation):
            if self.root.answered and whole:
                break
            self._ask(status)
        while whole and not self.root.answered:
            self._ask(200)
        if self.expectation.verifier_calls:
            self.exchanges.append(_judges(self.exchanges[-1]))

    def _ask(self, status: int) -> None:
        fault = self.script.fault(len(self.exchanges) + 1)
        self.root.ask(status, None if isinstance(fault, StatusFault) else fault)

    def subagent(self, parent: _Agent, call: ScriptedCall, spec: SubagentStep) -> str:
        """Let a subagent work; return what it says at the end."""
        script = parent.script.child(call.step)
        assert script is not None
        name = f"session-{len(self.children) + 2}"
        child = _Agent(self, script, name, spec.prompt, parent.session, call.call_id)
        self.children.append(child)
        while not child.answered:
            child.ask()
        return "The subagent is done."

    def note_tool(self, agent: _Agent, call: ScriptedCall, code: int | None) -> None:
        """Record a tool call as the harness does."""
        self.asked.add(call.call_id)
        started = self.exchanges[-1].completed_at
        status = {None: ToolStatus.INCOMPLETE, 0: ToolStatus.COMPLETED}.get(code, ToolStatus.FAILED)
        self.calls.append(
            ToolCall(
                invocation_id=agent.session,
                tool_call_id=call.call_id,
                tool_name=_request_of(call).tool_name,
                started_at=started,
                completed_at=None if code is None else started + 0.1,
                duration_ms=None if code is None else 100.0,
                timing_source=None if code is None else "harness",
                status=status,
            )
        )

    def request(self, history: Sequence[ConversationItem]) -> dict[str, Any]:
        """The body of a request with this history."""
        if self.dialect == "responses":
            return {"model": "m", "input": [_responses_item(item) for item in history]}
        return {"model": "m", "messages": [_chat_message(item) for item in history]}

    def files(self, cell_id: str, image: str) -> CellFiles:
        harness, _, scenario = cell_id.split("/")
        sha = "ab" * 32
        parts = assemble(
            task_id=f"task-{scenario}",
            rollout_id=self.rollout_id,
            observations=self._observations(harness),
            exchanges=self.exchanges,
        )
        expected = self.expectation
        return CellFiles(
            cell=CellRecord(
                cell_id=cell_id,
                harness=harness,
                image=image,
                scenario=scenario,
                run_id="run1",
                rollout_id=self.rollout_id,
                task_id=f"task-{scenario}",
                expectation=expected,
                started_at=START,
                completed_at=START + 60,
                interface="agent-session",
                isolation="namespace",
                pin=HarnessPin(
                    harness=harness,
                    version="1.2.3",
                    platform="linux-x64-gnu",
                    bundle_sha256=sha,
                ),
                image_record=ImageRecord(
                    name=image, image_id="sha256:1", libc="glibc 2.36", arch="x64", uid=0
                ),
                engine=EngineRecord(version="20.10.24", api_version="1.41"),
                session_dir=SESSION_DIR,
                workdir="/work",
                task_home=HOME,
                deadline_s=60.0,
                phases={"sandbox": 0.4, "seed": 1.5, "activate": 3.0},
                capabilities={**CAPABILITIES, "dialect": self.dialect, **self._shown()},
            ),
            row=parts.success(
                reward=expected.reward,
                response=self._response(),
                rejection="refused" if expected.rejected else None,
            )
            if expected.reward is not None
            else parts.failure(
                kind="model_error", stage=expected.failure_stage or "agent", message="status 400"
            ),
            witness=self._witness(),
            exchanges=tuple(self.exchanges),
            receipt=CleanupReceipt(
                cleanup_confirmed=True,
                launched=True,
                return_code=None if expected.timed_out or expected.stopped else 0,
                timed_out=expected.timed_out,
                stopped=expected.stopped,
                error=None,
                survivors=self._left,
                hostname="sandbox",
                pid=7,
                duration_s=3.0,
                ending_s=0.1 if expected.timed_out or expected.stopped else None,
            ),
            install=InstallReceipt(
                harness=harness,
                version="1.2.3",
                platform="linux-x64-gnu",
                bundle_sha256=sha,
                prefix=f"{SESSION_DIR}/runtime",
                version_output=f"{harness}-cli 1.2.3",
                already_installed=False,
                way="mount",
                version_checked="earlier",
                version_check=VersionCheck(
                    bundle_sha256=sha,
                    image_id="sha256:1",
                    installer_sha256="ef" * 32,
                    version_output=f"{harness}-cli 1.2.3",
                    checked_at=START - 60,
                    sandbox="sandbox-of-another-cell",
                ),
                duration_s=1.2,
            ),
            footprint=(FileChange(path="/work/probe-1.txt", change="added"),),
            egress=(),
            native=("stdout.txt", "transcript.jsonl"),
        )

    def _shown(self) -> dict[str, bool]:
        """What the scenario makes a harness show of itself."""
        stalls = any(isinstance(fault, StallFault) for fault in self.script.faults)
        return {"request_deadline": stalls, "compaction": self.expectation.compaction}

    def _response(self) -> dict[str, Any]:
        known = [e.usage for e in self.exchanges if e.caller == "agent" and e.response_id]
        usage = {"input_tokens": sum((u.input_tokens or 0) for u in known if u)}
        return {"output": [], **({"usage": usage} if all(known) else {})}

    def _observations(self, source: str) -> Observations:
        root = AgentInvocation(
            invocation_id=SESSION,
            status=self.expectation.outcomes[0],
            duration_ms=3000.0,
            conversation=tuple(self.root.history),
        )
        children = [
            AgentInvocation(
                invocation_id=child.session,
                parent_invocation_id=child.parent,
                spawned_by_tool_call_id=child.spawned_by,
                status=InvocationStatus.COMPLETED,
                conversation=tuple(child.history),
            )
            for child in self.children
        ]
        shortened = [ContextCompaction(invocation_id=SESSION, outcome="completed")]
        compactions = shortened if self.expectation.compaction else []
        return Observations(source=source, records=(root, *children, *self.calls, *compactions))

    @property
    def _left(self) -> tuple[Survivor, ...]:
        return tuple(Survivor(pid=99, command=part) for part in self.expectation.background)

    def _verified(self) -> VerifierResult | None:
        reward = self.expectation.reward
        if reward is None:
            return None
        mine = tuple(e.exchange_id for e in self.exchanges if e.caller == "verifier")
        return VerifierResult(reward=reward, model_calls=mine)

    def _witness(self) -> WitnessRecord:
        expected = self.expectation
        return WitnessRecord(
            tools=tuple(
                ToolWitness(
                    expected=tool,
                    requested=tool.tool_call_id in self.asked,
                    tool_name="shell" if tool.tool_call_id in self.asked else None,
                    marker_found=tool.runs and tool.tool_call_id in self.asked,
                    home_seen=HOME if tool.runs and tool.tool_call_id in self.asked else None,
                )
                for tool in self.script.expectations()
            ),
            script=ScriptReport(
                steps=len(self.script.steps),
                steps_done=len(self.script.steps) if self.root.answered else 0,
                refusal=None,
            ),
            exchange_tally=tuple(map(digest_of, self.exchanges)),
            survivors=self._left,
            session_dir_gone=True,
            workdir_files=("probe-1.at-once", "probe-1.txt", "probe-2.at-once", "probe-2.txt"),
            network_interfaces=("lo",),
            task_home=HOME,
            verifier=self._verified(),
            resources=ResourceUse(
                cpu_time_s=2.0,
                peak_memory_mib=149.0,
                oom_kills=int(expected.oom),
                source="cgroup-v1",
            ),
            use=(
                PhaseUse(phase="seed", cpu_time_s=0.5, disk_mib=1.0, inodes=9, processes=0),
                PhaseUse(phase="activate", cpu_time_s=2.0, disk_mib=2.5, inodes=12, processes=0),
            ),
            zombies=(),
            secrets=(SecretSeen(secret="model key", place="process environment", where="harness"),),
            network=NetworkCounters(sent={"lo": 60}, without_route=0),
            teardown=Teardown(container_gone=True),
            companion=COMPANION if expected.companion else None,
            reactivation="ConflictError" if expected.reactivated else None,
        )


def _judges(last: Exchange) -> Exchange:
    """The exchange of a verifier that asks the model itself."""
    return last.model_copy(
        update={
            "exchange_id": "mc00099",
            "dialect": "chat",
            "caller": "verifier",
            "started_at": last.completed_at + 1,
            "completed_at": last.completed_at + 2,
            "request": {"model": "judge", "messages": [{"role": "user", "content": "Is it?"}]},
            "response_id": "resp99",
            "tool_call_ids": (),
            "client_session_id": None,
        }
    )


def _request_of(call: ScriptedCall) -> ToolRequestItem:
    spec = call.spec
    match spec:
        case ToolStep():
            name, arguments = "shell", json.dumps({"command": spec.command})
        case RawToolStep():
            name, arguments = spec.tool_name or "shell", spec.arguments
        case SubagentStep():
            name, arguments = "task", json.dumps({"prompt": spec.prompt})
    return ToolRequestItem(tool_call_id=call.call_id, tool_name=name, arguments=arguments)


def _framed(item: ToolResultItem) -> str:
    return f"Exit code: {item.exit_code}\nOutput:\n{item.output}"


def _responses_item(item: ConversationItem) -> dict[str, Any]:
    match item:
        case MessageItem():
            kind = "output_text" if item.role == "assistant" else "input_text"
            content = [{"type": kind, "text": item.text}]
            return {"type": "message", "role": item.role, "content": content}
        case ToolRequestItem():
            return {
                "type": "function_call",
                "call_id": item.tool_call_id,
                "name": item.tool_name,
                "arguments": item.arguments,
            }
        case ToolResultItem():
            return {
                "type": "function_call_output",
                "call_id": item.tool_call_id,
                "output": _framed(item),
            }
        case _:
            return {"type": "reasoning", "summary": [{"type": "summary_text", "text": item.text}]}


def _chat_message(item: ConversationItem) -> dict[str, Any]:
    match item:
        case MessageItem():
            return {"role": item.role, "content": item.text}
        case ToolRequestItem():
            call = {
                "id": item.tool_call_id,
                "type": "function",
                "function": {"name": item.tool_name, "arguments": item.arguments},
            }
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case ToolResultItem():
            return {"role": "tool", "tool_call_id": item.tool_call_id, "content": _framed(item)}
        case _:
            return {"role": "assistant", "reasoning_content": item.text}


def _reply(
    dialect: Dialect,
    number: int,
    said: Sequence[ConversationItem],
    status: int,
    *,
    cut: bool = False,
) -> tuple[Any, str | None]:
    if status == 0:
        return None, None
    if status >= 400:
        return {"error": {"message": f"status {status}"}}, None
    if dialect == "responses":
        output = [_responses_item(item) for item in said]
        ended = "incomplete" if cut else "completed"
        reason = "max_output_tokens" if cut else "completed"
        return {"id": f"resp{number}", "status": ended, "output": output}, reason
    merged: dict[str, Any] = {"role": "assistant", "content": None}
    for item in said:
        calls = [*merged.get("tool_calls", ()), *_chat_message(item).get("tool_calls", ())]
        merged |= {key: value for key, value in _chat_message(item).items() if value}
        merged |= {"tool_calls": calls} if calls else {}
    finish = "length" if cut else "tool_calls" if merged.get("tool_calls") else "stop"
    choice = {"index": 0, "message": merged, "finish_reason": finish}
    return {"id": f"resp{number}", "choices": [choice]}, finish
