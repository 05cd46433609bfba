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
    EngineRecord,
    HarnessPin,
    ImageRecord,
    Teardown,
    VerifierResult,
    WitnessRecord,
)
from sandbox.evidence.expectations import Expectation
from sandbox.evidence.folder import CellFiles, write_cell
from sandbox.evidence.records import (
    AgentInvocation,
    CleanupReceipt,
    ConversationItem,
    Exchange,
    FileChange,
    InstallReceipt,
    MessageItem,
    Observations,
    ResourceUse,
    ScriptReport,
    TokenUsage,
    ToolCall,
    ToolExpectation,
    ToolRequestItem,
    ToolResultItem,
    ToolStatus,
    ToolWitness,
    VersionCheck,
)
from sandbox.evidence.tally import digest_of

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
    script = known.script(rollout_id)
    expectation = known.expectation
    walk = _Walk(
        rollout_id=rollout_id,
        dialect=dialect,
        steps=len(script.steps),
        tools=list(script.expectations()),
        expectation=expectation,
    )
    for status in statuses if statuses is not None else _fewest(expectation):
        walk.ask(status)
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
class _Walk:
    """A simulated harness and all that is seen of it."""

    rollout_id: str
    dialect: Dialect
    steps: int
    tools: list[ToolExpectation]
    expectation: Expectation
    history: list[ConversationItem] = field(
        default_factory=lambda: [MessageItem(role="user", text=PROMPT)]
    )
    exchanges: list[Exchange] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    done: int = 0
    answered: bool = False

    def ask(self, status: int) -> None:
        """Make one request and take its reply."""
        number = len(self.exchanges) + 1
        request = self._request()
        said: list[ConversationItem] = []
        if status == 200:
            said = self._say()
        response, finish = _reply(self.dialect, number, said, status)
        self.exchanges.append(
            Exchange(
                exchange_id=f"mc{number:05d}",
                rollout_id=self.rollout_id,
                dialect=self.dialect,
                method="POST",
                path=f"/rollout/{self.rollout_id}/v1/{self.dialect}",
                headers={"session-id": SESSION},
                streamed=True,
                started_at=START + number,
                completed_at=START + number + 0.5,
                request=request,
                status_code=status,
                response=response,
                response_id=f"resp{number}" if status == 200 else None,
                tool_call_ids=tuple(
                    item.tool_call_id for item in said if isinstance(item, ToolRequestItem)
                ),
                usage=TokenUsage(input_tokens=9, output_tokens=4, total_tokens=13)
                if status == 200
                else None,
                finish_reason=finish,
                fault={200: None, 0: "hold"}.get(status, f"status_{status}"),
                disconnected=status == 0,
                client_session_id=SESSION,
            )
        )
        self.history += said
        for item in said:
            if isinstance(item, ToolRequestItem):
                self._run(item)

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
        graded = expected.reward is not None
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
                phases={"sandbox": 0.4, "seed": 1.5, "activate": 3.0},
                capabilities={**CAPABILITIES, "dialect": self.dialect},
            ),
            row=parts.success(reward=expected.reward, response={"output": []})
            if expected.reward is not None
            else parts.failure(
                kind="model_error", stage=expected.failure_stage or "agent", message="status 400"
            ),
            witness=self._witness(graded),
            exchanges=tuple(self.exchanges),
            receipt=CleanupReceipt(
                cleanup_confirmed=True,
                launched=True,
                return_code=None if expected.timed_out else 0,
                timed_out=expected.timed_out,
                stopped=False,
                error=None,
                survivors=(),
                hostname="sandbox",
                pid=7,
                duration_s=3.0,
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

    def _say(self) -> list[ConversationItem]:
        if self.done < len(self.tools):
            step = self.tools[self.done].step
            return [
                ToolRequestItem(
                    tool_call_id=tool.tool_call_id,
                    tool_name="shell",
                    arguments=json.dumps({"command": tool.command}),
                )
                for tool in self.tools[self.done :]
                if tool.step == step
            ]
        self.done += 1
        self.answered = True
        return [MessageItem(role="assistant", text=ANSWER)]

    def _run(self, item: ToolRequestItem) -> None:
        tool = next(one for one in self.tools if one.tool_call_id == item.tool_call_id)
        self.asked.add(item.tool_call_id)
        code = tool.exit_code
        started = self.exchanges[-1].completed_at
        status = {None: ToolStatus.INCOMPLETE, 0: ToolStatus.COMPLETED}.get(code, ToolStatus.FAILED)
        self.calls.append(
            ToolCall(
                invocation_id=SESSION,
                tool_call_id=item.tool_call_id,
                tool_name=item.tool_name,
                started_at=started,
                completed_at=None if code is None else started + 0.1,
                duration_ms=None if code is None else 100.0,
                timing_source=None if code is None else "harness",
                status=status,
            )
        )
        if code is not None:
            self.done += 1
            self.history.append(
                ToolResultItem(tool_call_id=item.tool_call_id, output=tool.output, exit_code=code)
            )

    def _observations(self, source: str) -> Observations:
        root = AgentInvocation(
            invocation_id=SESSION,
            status=self.expectation.outcomes[0],
            duration_ms=3000.0,
            conversation=tuple(self.history),
        )
        return Observations(source=source, records=(root, *self.calls))

    def _witness(self, graded: bool) -> WitnessRecord:
        reward = self.expectation.reward
        return WitnessRecord(
            tools=tuple(
                ToolWitness(
                    expected=tool,
                    requested=tool.tool_call_id in self.asked,
                    tool_name="shell" if tool.tool_call_id in self.asked else None,
                    marker_found=tool.tool_call_id in self.asked,
                    home_seen=HOME if tool.tool_call_id in self.asked else None,
                )
                for tool in self.tools
            ),
            script=ScriptReport(
                steps=self.steps, steps_done=self.steps if self.answered else 0, refusal=None
            ),
            exchange_tally=tuple(map(digest_of, self.exchanges)),
            survivors=(),
            session_dir_gone=True,
            workdir_files=("probe-1.at-once", "probe-1.txt", "probe-2.at-once", "probe-2.txt"),
            network_interfaces=("lo",),
            task_home=HOME,
            verifier=VerifierResult(reward=reward) if graded and reward is not None else None,
            resources=ResourceUse(
                cpu_time_s=2.0, peak_memory_mib=149.0, oom_kills=0, source="cgroup-v1"
            ),
            teardown=Teardown(container_gone=True),
        )

    def _request(self) -> dict[str, Any]:
        if self.dialect == "responses":
            return {"model": "m", "input": [_responses_item(item) for item in self.history]}
        return {"model": "m", "messages": [_chat_message(item) for item in self.history]}


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
    dialect: Dialect, number: int, said: Sequence[ConversationItem], status: int
) -> tuple[Any, str | None]:
    if status == 0:
        return None, None
    if status >= 400:
        return {"error": {"message": f"status {status}"}}, None
    if dialect == "responses":
        output = [_responses_item(item) for item in said]
        return {"id": f"resp{number}", "status": "completed", "output": output}, "completed"
    merged: dict[str, Any] = {"role": "assistant", "content": None}
    for item in said:
        merged |= {key: value for key, value in _chat_message(item).items() if value}
    finish = "tool_calls" if merged.get("tool_calls") else "stop"
    choice = {"index": 0, "message": merged, "finish_reason": finish}
    return {"id": f"resp{number}", "choices": [choice]}, finish
