"""Record types that rooms hand to each other and that a cell folder holds.

Names of keys and values follow NeMo Gym's evidence vocabulary, so that its tools read our rows.
Times are seconds since the epoch (UTC) as floats, durations say their unit in their name, and a
fact nobody could observe is ``None`` or a ``Gap``, never a guess.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class Record(BaseModel):
    """Base of all records: frozen, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- conversation -----------------------------------------------------------------------------


class MessageItem(Record):
    """A text that one side said."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    text: str


class ReasoningItem(Record):
    """A reasoning text that the harness kept."""

    type: Literal["reasoning"] = "reasoning"
    text: str


class ToolRequestItem(Record):
    """The model asked for a tool call; ``arguments`` is the text as the model sent it."""

    type: Literal["tool_request"] = "tool_request"
    tool_call_id: str
    tool_name: str
    arguments: str


class ToolResultItem(Record):
    """What the harness gave back to the model for a tool call.

    ``output`` is the command's own output with the harness's framing removed where the harness
    keeps it apart; ``exit_code`` is None where the harness does not record it.
    """

    type: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    output: str
    exit_code: int | None = None


ConversationItem = Annotated[
    MessageItem | ReasoningItem | ToolRequestItem | ToolResultItem, Field(discriminator="type")
]


# --- observations -----------------------------------------------------------------------------


class ModelRef(Record):
    """Which model server answered."""

    type: str
    name: str


class ModelCallRef(Record):
    """Points at one captured call: by its id, or by server and response id."""

    model_call_id: str | None = None
    model_ref: ModelRef | None = None
    response_id: str | None = None


class InvocationStatus(StrEnum):
    """How an agent invocation ended; ``unknown`` when no terminal record proves it."""

    COMPLETED = "completed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    UNKNOWN = "unknown"


class ToolStatus(StrEnum):
    """How a tool call ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"
    UNKNOWN = "unknown"


class AgentInvocation(Record):
    """One run of an agent loop: the root, or a subagent with its parent."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    spawned_by_tool_call_id: str | None = None
    status: InvocationStatus
    duration_ms: float | None = None
    error_type: str | None = None
    model_calls: tuple[ModelCallRef, ...] = ()
    conversation: tuple[ConversationItem, ...] = ()


class ToolCall(Record):
    """One tool execution as the harness recorded it."""

    kind: Literal["tool_call"] = "tool_call"
    invocation_id: str
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: float | None = None
    timing_source: Literal["executor", "artifact", "harness"] | None = None
    status: ToolStatus
    error_type: str | None = None


class ContextCompaction(Record):
    """The harness shortened its history."""

    kind: Literal["context_compaction"] = "context_compaction"
    invocation_id: str
    observed_at: float | None = None
    trigger: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    outcome: str | None = None
    summary: str | None = None
    first_kept_item_id: str | None = None
    before_model_call: ModelCallRef | None = None
    model_calls: tuple[ModelCallRef, ...] = ()
    after_model_call: ModelCallRef | None = None


class SandboxObservation(Record):
    """What a sandbox cost and how it ended."""

    kind: Literal["sandbox"] = "sandbox"
    role: Literal["agent", "verifier", "environment"]
    provider: str
    sandbox_id: str
    outcome: Literal[
        "completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"
    ]
    exit_code: int | None = None
    wall_time_s: float | None = None
    cpu_time_s: float | None = None
    peak_memory_mib: float | None = None
    resource_usage_source: str | None = None
    error_type: str | None = None


class Gap(Record):
    """A fact that could not be observed or joined; codes are NeMo Gym's."""

    code: str
    invocation_id: str | None = None
    detail: str = ""


ObservationRecord = Annotated[
    AgentInvocation | ToolCall | ContextCompaction | SandboxObservation,
    Field(discriminator="kind"),
]


class Observations(Record):
    """What the adapter reports about one agent session."""

    source: str
    records: tuple[ObservationRecord, ...] = ()
    gaps: tuple[Gap, ...] = ()


# --- the sandbox's side -----------------------------------------------------------------------


class Survivor(Record):
    """A process alive when it should not be; ``pid`` as seen inside the sandbox."""

    pid: int
    command: str


class CleanupReceipt(Record):
    """The supervisor's last word (``receipt.json``); see ``sandbox/agents/supervisor.sh``.

    ``launched`` is False when a stop won the race before the harness started. ``return_code`` is
    the harness's wait status (128 + n for signal n), None when there is none. ``timed_out``: the
    supervisor's own deadline expired. ``stopped``: somebody asked for the stop. ``ending_s``: from
    the deadline, or from when the stop was seen, until the last process was gone; None of an end by
    itself. ``duration_s``: of an end by itself the command's own time, else from the supervisor's
    start, with which the deadline begins, until the last process was gone.
    """

    cleanup_confirmed: bool
    launched: bool
    return_code: int | None
    timed_out: bool
    stopped: bool
    error: str | None
    survivors: tuple[Survivor, ...]
    hostname: str
    pid: int
    duration_s: float | None
    ending_s: float | None = None


class VersionCheck(Record):
    """Where and when an installed program was run and said its version.

    It holds for these bytes in this image, checked by this installer: ``installer_sha256`` is over
    its script, the arguments and the output that was compared with.
    """

    bundle_sha256: str
    image_id: str
    installer_sha256: str
    version_output: str
    checked_at: float
    sandbox: str


class InstallReceipt(Record):
    """The installer's last word (``install.json``).

    ``way``: unpacked in the sandbox, or a link to a tree that it sees read-only.
    ``version_checked`` says whether the program ran in this sandbox ("now"), or in one of the same
    image before it: then ``version_check`` says in which. A copy's program always runs.
    """

    harness: str
    version: str
    platform: str
    bundle_sha256: str
    prefix: str
    version_output: str
    already_installed: bool
    way: Literal["copy", "mount"] = "copy"
    version_checked: Literal["now", "earlier"] = "now"
    version_check: VersionCheck | None = None
    duration_s: float | None = None


class FileChange(Record):
    """One entry of the container's file-system diff."""

    path: str
    change: Literal["added", "modified", "deleted"]


EgressPhase = Literal["install", "start", "run", "exit"]
EgressSeen = Literal["names", "connections"]
"""What an egress log can hold: look-ups, with a count of what found no route; or connections too,
since every name has an address there, and every address answers."""
Settings = Literal["ours", "defaults"]
"""Whether an adapter keeps its harness quiet."""


class EgressEvent(Record):
    """What the harness or a tool tried to reach; no packet of it left the sandbox.

    ``dns``: ``name`` was looked up, for a ``record_type``. ``tcp``, ``udp``, ``icmp``: a connection
    or a datagram to ``port``. Its ``name`` is what the connection said, or else whose address it
    was, and ``named_by`` tells which: the SNI of a TLS ClientHello, the Host of an HTTP request, or
    a look-up before it. Without any of them ``name`` is the address. ``address`` is None when the
    name had been looked up. ``protocol`` is what a TCP connection turned out to carry.

    ``unrouted``: found no route, as what goes to bare addresses does; which is not known.
    ``malformed``: a message to the resolver that is no DNS query; ``name`` quotes its first octets
    in hexadecimal. ``left_out``: the log was full; ``name`` says how many events are not in it.

    ``count`` events of one ``phase`` that differ in time only are one line: ``at`` is the time of
    the first, ``last_at`` of the last. Early versions have a line for each, without a phase.
    """

    at: float
    kind: Literal["dns", "tcp", "udp", "icmp", "unrouted", "malformed", "left_out"] = "dns"
    name: str
    record_type: str = ""
    port: int | None = None
    protocol: Literal["tls", "http"] | None = None
    named_by: Literal["sni", "host", "dns"] | None = None
    address: str | None = None
    count: int = Field(default=1, ge=1)
    last_at: float | None = None
    phase: EgressPhase | None = None


class ResourceUse(Record):
    """Figures of the sandbox's cgroup; ``source`` is ``cgroup-v1`` or ``cgroup-v2``."""

    cpu_time_s: float | None
    peak_memory_mib: float | None
    oom_kills: int | None
    source: str


# --- the model server's side ------------------------------------------------------------------


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
    error_category: (
        Literal[
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
        | None
    )
    tokens: TokenUsage | None
    client_session_id: str | None
