"""The agent contract: requests, responses, errors, and the class that an adapter derives from.

Wire names follow NeMo Gym's agent sessions (``POST /v1/agent_sessions``, ``/v1/responses``,
``/v1/agent_sessions/close``), so that its servers and ours can be exchanged.
"""

from __future__ import annotations

import re
import threading
from typing import Annotated, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, JsonValue, field_validator

from sandbox.agents.response import AgentResponse
from sandbox.errors import SandboxError, Unsupported
from sandbox.evidence.observations import Gap, Observations
from sandbox.evidence.records import Record
from sandbox.harnesses.base import SandboxPath

Interface = Literal["agent-session", "legacy"]
Name = Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

# --- errors -----------------------------------------------------------------------------------


class ContractError(SandboxError):
    """A request or an adapter breaks the contract; ``status`` is its HTTP form's status."""

    status: ClassVar[int] = 400


class ConflictError(ContractError):
    """The session is not in a state for this request (HTTP 409)."""

    status = 409


class UnprocessableError(ContractError, Unsupported):
    """The setup asked for cannot work, known before anything is fetched (HTTP 422).

    Args:
        reason: the bare reason, without which session asked.
    """

    status = 422

    def __init__(self, message: str, *, reason: str | None = None, cure: str | None = None) -> None:
        super().__init__(message, cure=cure)
        self.reason = message if reason is None else reason


class InvalidRequestError(ContractError):
    """The body is not what the route takes (HTTP 422).

    Args:
        details: each fault, with where in the body it is.
    """

    status = 422

    def __init__(
        self, message: str, *, details: tuple[str, ...] = (), cure: str | None = None
    ) -> None:
        super().__init__(message, cure=cure)
        self.details = details


class NoRouteError(ContractError):
    """The agent server does not have such a route (HTTP 404)."""

    status = 404


class SetupFailed(Exception):
    """A hook could not set a session up, and what it has made so far must still be closed.

    It carries that to the lifecycle and is never seen by a user.

    Args:
        state: what ``close_state`` needs to release it.
        error: why; this is what the caller of seed gets.
    """

    def __init__(self, state: object, error: BaseException) -> None:
        super().__init__(str(error))
        self.state = state
        self.error = error


# --- identity ---------------------------------------------------------------------------------


class EpisodeId(Record):
    """One physical attempt of a rollout."""

    rollout_id: Name
    attempt: int = Field(default=0, ge=0)

    @field_validator("rollout_id")
    @classmethod
    def _no_attempt_suffix(cls, rollout_id: str) -> str:
        if re.search(r"-a[1-9][0-9]*$", rollout_id):
            raise ValueError("must not end like an attempt's capture key, '-a<number>'")
        return rollout_id

    @property
    def capture_key(self) -> str:
        """The id under which the attempt's model calls are captured."""
        return f"{self.rollout_id}-a{self.attempt}" if self.attempt else self.rollout_id


class TaskId(Record):
    """The durable content that the episode works on."""

    task_source: str = Field(min_length=1)
    task_id: str = Field(min_length=1)
    revision: str | None = None


# --- what a seed hands over -------------------------------------------------------------------


class DirectHttpToolAccess(Record):
    """Tool routes of the resources server."""

    kind: Literal["direct_http"] = "direct_http"
    name: Name
    required: bool
    base_url: str
    cookies: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)


class McpToolAccess(Record):
    """An MCP server; ``connection`` says how to reach it, by its ``transport``."""

    kind: Literal["mcp"] = "mcp"
    name: Name
    required: bool
    connection: dict[str, JsonValue]


ToolAccess = Annotated[DirectHttpToolAccess | McpToolAccess, Field(discriminator="kind")]


class DirectSandboxConnection(Record):
    """Direct access to a running container: ``descriptor`` is ``{"container_id": ID}``."""

    kind: Literal["direct"] = "direct"
    provider_config_ref: str = "docker"
    descriptor: dict[str, JsonValue]


class SandboxAccess(Record):
    """A sandbox that somebody else owns and lends; commands run in ``workdir``."""

    connection: DirectSandboxConnection
    workdir: SandboxPath

    @field_validator("workdir", mode="before")
    @classmethod
    def _plain(cls, workdir: object) -> object:
        return (workdir.rstrip("/") or "/") if isinstance(workdir, str) and workdir else workdir

    @classmethod
    def to_container(cls, container_id: str, *, workdir: str) -> SandboxAccess:
        """Lend the container of that engine id."""
        connection = DirectSandboxConnection(descriptor={"container_id": container_id})
        return cls(connection=connection, workdir=workdir)


class SeedRequest(Record):
    """Set a session up; the caller chooses the id. ``sandbox_access`` None: the agent owns one."""

    agent_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    tool_accesses: tuple[ToolAccess, ...] = ()
    sandbox_access: SandboxAccess | None = None

    @field_validator("tool_accesses")
    @classmethod
    def _unique_names(cls, accesses: tuple[ToolAccess, ...]) -> tuple[ToolAccess, ...]:
        names = [access.name for access in accesses]
        if len(names) != len(set(names)):
            raise ValueError("tool access names must be unique within a session")
        return accesses


class SeedResponse(Record):
    """The session is ready to be activated."""

    agent_session_id: str


# --- activation and close ---------------------------------------------------------------------


class ModelEndpoint(Record):
    """Where the harness finds its model, as seen from inside the sandbox."""

    base_url: str
    api_key: str
    model: str


class ActivateRequest(Record):
    """Let the agent work once; ``deadline_s`` is the task's own agent deadline in seconds."""

    agent_session_id: str = Field(min_length=1)
    input: str
    deadline_s: float = Field(gt=0)
    endpoint: ModelEndpoint


class CloseRequest(Record):
    """End a session, whatever state it is in."""

    agent_session_id: str = Field(min_length=1)
    episode_id: EpisodeId


class CloseResponse(Record):
    """The session is over; ``agent_observations`` None: there never was one of this id."""

    agent_session_id: str
    agent_observations: Observations | None = None
    resources_cookies: dict[str, str] | None = None


# --- the class an adapter derives from --------------------------------------------------------

StateT = TypeVar("StateT")


class Agent(Generic[StateT]):
    """Base of all adapters. Both hooks make it a session agent, neither a legacy one.

    The lifecycle (``sandbox.agents.lifecycle``) calls the hooks: for one session never two at a
    time, ``activate_state`` at most once, ``close_state`` again only after it raised.
    """

    name: str = "agent"

    def seed_state(self, request: SeedRequest, cancel: threading.Event) -> StateT:
        """Make the session's state; look at ``cancel`` between steps and raise when it is set.

        Raises:
            UnprocessableError: the setup cannot work.
            SetupFailed: it failed halfway, and its state must be closed.
        """
        raise NotImplementedError("this agent has no sessions")

    def activate_state(
        self, state: StateT, request: ActivateRequest, cancel: threading.Event
    ) -> AgentResponse:
        """Run one agent turn; when ``cancel`` is set, stop it and return what there is."""
        raise NotImplementedError("this agent has no sessions")

    def close_state(self, state: StateT) -> CloseResponse:
        """Release everything of the session, or raise and keep what a retry needs."""
        raise NotImplementedError("this agent has no sessions")

    def forget_session(self, agent_session_id: str) -> None:
        """Drop what is kept of a session whose retry window is over; nothing by default."""

    def run(self, row: dict[str, JsonValue], cancel: threading.Event) -> dict[str, JsonValue]:
        """Take a flat task row through agent and verifier: the legacy interface (``/run``).

        Rows are ``sandbox.agents.legacy.RunRow`` and ``VerifyRow``; the agent owns its sandbox,
        and nothing of it is left when this returns or raises.
        """
        raise NotImplementedError("this agent has no legacy interface")


def interface_of(agent: type[Agent[StateT]]) -> Interface:
    """Tell which interface a class implements; overrides that it inherits count.

    Raises:
        ContractError: only one of the two session hooks is there, or no interface at all.
    """
    hooks = {
        "seed_state": agent.seed_state is not Agent.seed_state,
        "close_state": agent.close_state is not Agent.close_state,
    }
    if all(hooks.values()):
        return "agent-session"
    if any(hooks.values()):
        missing = next(name for name, there in hooks.items() if not there)
        raise ContractError(
            f"{agent.__qualname__} overrides only one of the session hooks",
            cure=f"override {missing} too, or neither",
        )
    if agent.run is Agent.run:
        raise ContractError(
            f"{agent.__qualname__} implements neither the session hooks nor run",
            cure="override seed_state and close_state",
        )
    return "legacy"


def nothing_observed(source: str, detail: str) -> Observations:
    """Return the observations of a session whose harness never ran."""
    return Observations(source=source, gaps=(Gap(code="harness_not_run", detail=detail),))
