"""``run.json``, ``cell.json`` and ``witness.json``: a run, a cell, and what its witness saw."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from sandbox.evidence.exchanges import ScriptReport, ToolWitness
from sandbox.evidence.expectations import Expectation
from sandbox.evidence.records import EgressSeen, Record, ResourceUse, Settings, Survivor


class ServerChoice(Record):
    """The agent server that a run tests: where, what cells call it, and how it is asked."""

    url: str
    name: str
    interface: Literal["agent-session", "legacy"]


class RunConfiguration(Record):
    """What decides a run's results, so that a resumed or merged run is the same run.

    ``plan`` are all cell ids before sharding. ``pins`` is version and bundle by ``harness
    platform``, ``images`` the engine's image ID by image name, ``scenarios`` a digest of what is
    run and expected by scenario name. ``agent`` is the server of ``--agent-url``, None where our
    adapters are tested.
    """

    profile: str
    plan: tuple[str, ...]
    repeat: int = Field(default=1, ge=1)
    isolation: str = "auto"
    install: str = "auto"
    conditions: tuple[str, ...] = ()
    tool_version: str = ""
    pins: dict[str, str] = Field(default_factory=dict)
    images: dict[str, str] = Field(default_factory=dict)
    scenarios: dict[str, str] = Field(default_factory=dict)
    agent: ServerChoice | None = None


class RunRecord(Record):
    """One execution of a plan; ``cells`` are the planned cell ids in order.

    ``completed_at`` is None while the run goes on and after it was killed. ``shard`` is ``k/n``
    when ``cells`` are only a part of the plan. ``configuration`` is None in runs of early versions.
    """

    schema_version: Literal["1.0"] = "1.0"
    run_id: str
    profile: str
    cells: tuple[str, ...]
    started_at: float
    completed_at: float | None = None
    tool_version: str = ""
    shard: str | None = None
    configuration: RunConfiguration | None = None


class HarnessPin(Record):
    """The runtime that the cell had to install: exact version, platform and bundle."""

    harness: str
    version: str
    platform: str
    bundle_sha256: str


class ImageRecord(Record):
    """The task image that ran: name, engine image ID and what was probed in it."""

    name: str
    image_id: str
    libc: str
    arch: str
    uid: int | None = None


class EngineRecord(Record):
    """The engine that ran the sandbox."""

    version: str
    api_version: str
    cgroup_version: str | None = None
    storage_driver: str | None = None
    product: str | None = None
    rootless: bool | None = None


class Guarantee(Record):
    """One promise about sandboxes, on the engine at hand; ``holds`` None: nobody can tell there."""

    name: str
    holds: bool | None
    reason: str
    cure: str | None = None


class AgentRecord(Record):
    """Who worked on the task: an adapter in the runner's process, or the server at ``url``.

    ``adapter_sha256`` is a hash of the adapter's source, None where nobody could tell;
    ``version`` is what the agent says of itself.
    """

    name: str
    url: str | None = None
    adapter_sha256: str | None = None
    version: str | None = None


class Refusal(Record):
    """Why a cell was not run: it cannot work (``unsupported``), or something broke (``error``)."""

    kind: Literal["unsupported", "error"]
    reason: str
    cure: str | None = None


class CellRecord(Record):
    """Identity and circumstances of one cell (``cell.json``).

    ``phases`` are durations in seconds by name (resources, seed, activate, close, verify, release).
    ``conditions`` name what the sandbox was made harder by than it is by default. ``guarantees``
    say of each promise about sandboxes whether it holds on this engine. ``deadline_s`` is the
    task's own, in seconds; None in cells of early versions. ``session_dir``, ``workdir`` and
    ``task_home`` are paths in the sandbox. Fields that were not known when a refused cell ended are
    None. ``earlier_attempts`` are the engine's failures that the cell was tried again after: a cell
    that has some is flaky. ``egress_seen`` is what the egress log can hold: look-ups and a count of
    what found no route, or connections too. ``settings`` "defaults": the adapter worked without
    what keeps the harness quiet.
    """

    schema_version: Literal["1.0"] = "1.0"
    cell_id: str
    harness: str
    image: str
    scenario: str
    run_id: str
    rollout_id: str
    task_id: str
    expectation: Expectation
    started_at: float
    completed_at: float
    interface: Literal["agent-session", "legacy"] | None = None
    agent: AgentRecord | None = None
    isolation: Literal["namespace", "bridge", "relay"] | None = None
    egress_seen: EgressSeen | None = None
    settings: Settings = "ours"
    guarantees: tuple[Guarantee, ...] = ()
    conditions: tuple[str, ...] = ()
    pin: HarnessPin | None = None
    image_record: ImageRecord | None = None
    engine: EngineRecord | None = None
    session_dir: str | None = None
    workdir: str | None = None
    task_home: str | None = None
    phases: dict[str, float] = Field(default_factory=dict)
    deadline_s: float | None = None
    capabilities: dict[str, JsonValue] = Field(default_factory=dict)
    refusal: Refusal | None = None
    earlier_attempts: tuple[Refusal, ...] = ()

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        flat = f"{self.harness}/{self.image}/{self.scenario}"
        if self.cell_id != flat:
            raise ValueError(f"cell_id {self.cell_id!r} is not {flat!r}")
        return self


class VerifierResult(Record):
    """What the scenario's verifier found in the sandbox; absent when it was not called.

    ``model_calls`` are the ids of the model's answers to the verifier itself.
    """

    reward: float
    detail: str = ""
    model_calls: tuple[str, ...] = ()


class Companion(Record):
    """Another agent session of the same harness that worked in the same sandbox meanwhile.

    ``calls`` counts its model calls; ``foreign_calls`` those that carried this session's id or
    prefix to the other's model, or the reverse. ``overlapped``: both ran at the same time.
    """

    rollout_id: str
    outcome: str
    reward: float | None
    calls: int
    foreign_calls: int
    overlapped: bool
    session_dir_gone: bool | None = None
    error: str | None = None


class Teardown(Record):
    """What was left of the cell's sandbox after its release."""

    container_gone: bool
    networks_gone: bool = True
    volumes_gone: bool = True
    errors: tuple[str, ...] = ()


class PhaseUse(Record):
    """Figures of the sandbox at the end of a phase, all since its start; None: not to be seen.

    ``disk_mib`` and ``inodes`` are what lies in the container's layer, in /tmp and in /dev/shm.
    ``processes`` live then beside the container's own two; ``zombies`` are dead and not buried.
    """

    phase: str
    cpu_time_s: float | None = None
    peak_memory_mib: float | None = None
    disk_mib: float | None = None
    inodes: int | None = None
    processes: int | None = None
    zombies: int | None = None


class SecretSeen(Record):
    """A place where a canary was found: a file's name, a program's name, or a document's."""

    secret: Literal["model key", "host environment"]
    place: Literal["native", "records", "container", "process arguments", "process environment"]
    where: str


class NetworkCounters(Record):
    """What the kernel counted in the sandbox's network namespace.

    ``sent``: packets by interface. ``without_route``: packets and connections that had nowhere to
    go, as those to bare addresses; None: this kernel does not tell.
    """

    sent: dict[str, int]
    without_route: int | None = None


class WitnessRecord(Record):
    """Independent observations of one cell; None always means "not observed", never "nothing".

    ``exchange_tally`` has one digest (``sandbox.evidence.tally``) for each request that reached the
    model server's outermost layer. ``survivors`` are processes alive after the agent session was
    closed, ``zombies`` those that nobody has buried by then. ``use`` are figures by phase.
    ``secrets`` are the places where a canary was found. ``workdir_files`` are paths below the task
    workdir after the run.
    ``network_interfaces`` are the interface names seen inside the sandbox. ``task_home`` is HOME as
    a process of the task has it. ``companion`` is the other session's end; ``reactivation`` is how
    the closed session answered to being activated again: the error's name, or ``accepted``.
    """

    tools: tuple[ToolWitness, ...] = ()
    script: ScriptReport | None = None
    exchange_tally: tuple[str, ...] | None = None
    survivors: tuple[Survivor, ...] | None = None
    session_dir_gone: bool | None = None
    workdir_files: tuple[str, ...] | None = None
    network_interfaces: tuple[str, ...] | None = None
    task_home: str | None = None
    verifier: VerifierResult | None = None
    resources: ResourceUse | None = None
    use: tuple[PhaseUse, ...] = ()
    zombies: tuple[Survivor, ...] | None = None
    secrets: tuple[SecretSeen, ...] | None = None
    network: NetworkCounters | None = None
    teardown: Teardown | None = None
    companion: Companion | None = None
    reactivation: str | None = None
    errors: tuple[str, ...] = ()
