"""Rows of the legacy interface: a flat task row goes into ``/run``, a verified row comes out.

The agent owns its sandbox. It starts one as ``sandbox`` says, tells the resources server its id
(``POST /seed_session``), which answers with the model's endpoint as that sandbox sees it, runs its
harness, lets the same server grade what is in the sandbox (``POST /verify``), and removes it. The
names follow NeMo Gym, where an agent's ``/run`` does the same three calls.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field, JsonValue

from sandbox.agents.contract import EpisodeId, ModelEndpoint
from sandbox.agents.response import AgentResponse
from sandbox.evidence.observations import Observations
from sandbox.evidence.records import Record

SEED_SESSION, VERIFY = "/seed_session", "/verify"


class ResponsesParams(Record):
    """What the agent is asked: a prompt, and the model's name."""

    input: str
    model: str


class SandboxOrder(Record):
    """The sandbox that the agent is to start.

    ``create`` are options of the engine's create call by the SDK's names (network, DNS), ``labels``
    whose it is: both are needed for the model to be reached and for nothing to be left.
    """

    image: str
    labels: dict[str, str] = Field(default_factory=dict)
    create: dict[str, JsonValue] = Field(default_factory=dict)


class ResourcesServer(Record):
    """Who seeds and grades: ``POST {base_url}/seed_session`` and ``/verify``."""

    base_url: str


class RunRow(Record):
    """A flat task row; keys that an agent does not know are its dataset's own."""

    model_config = ConfigDict(frozen=True, extra="allow")

    task_id: str = Field(min_length=1)
    rollout_id: str = Field(min_length=1)
    attempt: int = Field(default=0, ge=0)
    responses_create_params: ResponsesParams
    deadline_s: float = Field(gt=0)
    sandbox: SandboxOrder
    resources: ResourcesServer

    @property
    def episode_id(self) -> EpisodeId:
        """The attempt that this row is."""
        return EpisodeId(rollout_id=self.rollout_id, attempt=self.attempt)


class SeedSessionRequest(Record):
    """The agent's sandbox runs: make the task's workspace in it, and connect the model."""

    container_id: str = Field(min_length=1)


class SeedSessionResponse(Record):
    """Where the model is, as seen from inside the sandbox, and where to work."""

    endpoint: ModelEndpoint
    workdir: str


class VerifyRequest(Record):
    """The agent has finished, well or not: look at its sandbox, which still runs."""

    container_id: str = Field(min_length=1)
    response: AgentResponse


class VerifyResponse(Record):
    """The verifier's word. ``reward`` None: the turn was not gradable, nothing was graded."""

    reward: float | None


class VerifyRow(Record):
    """What ``/run`` answers. ``reward`` None: the turn was not gradable, nobody was asked."""

    model_config = ConfigDict(frozen=True, extra="allow")

    task_id: str
    rollout_id: str
    reward: float | None
    response: AgentResponse
    ng_agent_observations: Observations | None = None
