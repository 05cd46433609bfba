"""Records of the model server's side: what was asked of it, what it answered, what it expected."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from sandbox.evidence.observations import ModelRef
from sandbox.evidence.records import Record

ErrorCategory = Literal[
    "timeout",
    "rate_limit",
    "auth",
    "not_found",
    "client_error",
    "upstream_error",
    "stream_truncated",
    "incomplete",
    "connection",
]


class TokenUsage(Record):
    """Token counts of one reply; absence is kept as None."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class Exchange(Record):
    """One request to the model server and the reply given, whatever its status.

    ``request`` is the JSON body; ``response`` the complete reply body, a streamed one assembled
    from its events. ``fault`` names the injected fault. ``tool_call_ids`` are the calls the
    reply asked for. ``disconnected``: the client left before the reply ended. ``caller``: who
    asked; the verifier has an address of its own.
    """

    exchange_id: str
    rollout_id: str | None
    dialect: Literal["responses", "chat", "messages", "none"]
    method: str
    path: str
    headers: dict[str, str]
    streamed: bool
    started_at: float
    completed_at: float
    request: JsonValue
    status_code: int
    response: JsonValue
    response_id: str | None = None
    tool_call_ids: tuple[str, ...] = ()
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    fault: str | None = None
    disconnected: bool = False
    client_session_id: str | None = None
    caller: Literal["agent", "verifier"] = "agent"


class ToolExpectation(Record):
    """What a scripted tool call must have done, known before it is asked for.

    ``marker`` is a path that the command writes in the sandbox, ``marker_text`` the text it
    writes; ``output`` and ``exit_code`` are the command's true result (``exit_code`` None: it
    never ends by itself). ``output_bytes``: the size of the whole output, of which ``output`` is
    the first line. ``runs`` False: the call is one that must be refused. ``spawned_by``: the call
    that starts the subagent which is to make this one.
    """

    step: int
    tool_call_id: str
    command: str
    marker: str
    marker_text: str
    output: str
    exit_code: int | None
    output_bytes: int | None = None
    runs: bool = True
    spawned_by: str | None = None


class ToolWitness(Record):
    """What the witness saw of a scripted tool call."""

    expected: ToolExpectation
    requested: bool
    tool_name: str | None
    marker_found: bool
    home_seen: str | None = None


class ScriptReport(Record):
    """How far the script came; ``refusal`` says why it would not go on."""

    steps: int
    steps_done: int
    refusal: str | None


class CapturedCall(Record):
    """One exchange in the row's form (``ng_model_call_capture``)."""

    model_call_id: str
    model_ref: ModelRef
    dialect: Literal["responses", "chat", "messages"]
    started_at: float
    completed_at: float
    request: JsonValue
    response: JsonValue
    response_id: str | None
    status_code: int
    response_status: str | None
    finish_reason: str | None
    error_category: ErrorCategory | None
    tokens: TokenUsage | None
    client_session_id: str | None
