"""What an adapter is: values in, a launch plan out; native evidence in, observations out.

Nothing here touches an engine, a clock or the host. Paths are POSIX strings inside the sandbox.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Protocol, runtime_checkable

from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator

from sandbox.evidence.observations import ModelRef, Observations
from sandbox.evidence.records import Record

Dialect = Literal["responses", "chat", "messages"]
Platform = Literal["linux-x64-gnu", "linux-x64-musl", "linux-arm64-gnu", "linux-arm64-musl"]

SECRET_MODE = 0o600
"""Mode of planned files: the harness's own user reads them, nobody else."""


def _absolute(path: str) -> str:
    if not path.startswith("/") or "\0" in path or str(PurePosixPath(path)) != path:
        raise ValueError(f"not a plain absolute path: {path!r}")
    if ".." in PurePosixPath(path).parts or path.startswith("//"):
        raise ValueError(f"not a plain absolute path: {path!r}")
    return path


SandboxPath = Annotated[str, AfterValidator(_absolute)]


class Capabilities(Record):
    """What a harness can do and how it behaves, declared so that checks know what applies.

    ``session_header`` is the request header whose value is the invocation id. ``response_ids``:
    the native transcript names the model's response ids, so calls join without the header, and
    those of subagents need not have it.
    ``request_deadline``: a request that gets no answer at all ends by itself (where False, only
    the supervisor's deadline ends it). ``stream_deadline``: so does a stream that stalls.
    ``project_instructions`` says which instruction files of the task the harness reads although
    everything that switches them off is set. ``tools_see_key``: the model key is in the
    environment of tools. ``slow_start_s``: what the start may take beyond a few seconds on a busy
    machine; a scenario whose deadline must expire gives it on top. ``peak_memory_mib``: what its
    sandbox takes at its peak in a usual scenario, files in memory and page cache included; a run
    begins a cell when that fits, unless an earlier run says better. ``exceptions`` are what is
    otherwise on a platform, for instance because another version is pinned there: a platform's
    fields that differ; ask ``on`` for what holds.
    """

    dialect: Dialect
    session_header: str | None
    response_ids: bool
    parallel_tools: bool
    subagents: bool
    compaction: bool
    needs_bash: bool
    request_deadline: bool
    stream_deadline: bool = True
    project_instructions: Literal["none", "nested", "all"]
    tools_see_key: bool
    slow_start_s: float = Field(default=0.0, ge=0)
    peak_memory_mib: int = Field(default=512, ge=1)
    exceptions: dict[Platform, dict[str, JsonValue]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _exceptions_are_fields(self) -> Capabilities:
        for platform, fields in self.exceptions.items():
            if not fields or "exceptions" in fields:
                raise ValueError(f"not an exception for {platform}: {fields}")
            self.on(platform)
        return self

    def on(self, platform: str) -> Capabilities:
        """Return what holds on one platform; it has no exceptions any more."""
        changed = next((said for name, said in self.exceptions.items() if name == platform), {})
        return Capabilities.model_validate(self.model_dump(exclude={"exceptions"}) | changed)


class LaunchContext(Record):
    """One activation, as the agent room knows it.

    ``prefix`` is the installed runtime (``bin/<harness>`` is its entry point), ``session_dir`` a
    private folder that the session may fill, ``base_url`` the model link up to and including
    ``/v1``, ``task_env`` the environment of the task's own shells, HOME and PATH included.
    """

    prefix: SandboxPath
    session_dir: SandboxPath
    workdir: SandboxPath
    base_url: str = Field(pattern=r"^https?://[^\s]+$")
    api_key: str = Field(min_length=1, pattern=r"^[\x21-\x7e]+$")
    model: str = Field(min_length=1, pattern=r"^[A-Za-z0-9._-]+$")
    prompt: str
    deadline_s: float = Field(gt=0, allow_inf_nan=False)
    task_env: dict[str, str]
    platform: Platform
    rollout_id: str

    @field_validator("prompt")
    @classmethod
    def _says_something(cls, prompt: str) -> str:
        if not prompt.strip():
            raise ValueError("the prompt is blank")
        if "\0" in prompt:
            raise ValueError("the prompt holds a NUL character")
        return prompt

    @field_validator("task_env")
    @classmethod
    def _can_be_an_environment(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not name or "=" in name or "\0" in name or "\0" in value:
                raise ValueError(f"not an environment variable: {name!r}")
        return env


class PlannedFile(Record):
    """A file to make before the launch; its folders are made with it."""

    path: SandboxPath
    data: bytes
    mode: int = SECRET_MODE


class LaunchPlan(Record):
    """Everything that a launch needs: a complete environment, nothing is inherited.

    The command starts in the task's workdir with stdin from ``/dev/null``. ``native`` are the files
    and folders to keep after the run, ``proof`` the files that exist after every run that worked
    as planned (they are below ``native``); both may be missing when the harness died early.
    """

    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str]
    files: tuple[PlannedFile, ...]
    native: tuple[SandboxPath, ...]
    proof: tuple[SandboxPath, ...] = ()

    @model_validator(mode="after")
    def _distinct_files(self) -> LaunchPlan:
        paths = [file.path for file in self.files]
        if len(set(paths)) != len(paths):
            raise ValueError("the plan makes a file twice")
        return self

    @property
    def directories(self) -> tuple[str, ...]:
        """Every folder that the files need, parents first."""
        parents = {str(up) for file in self.files for up in PurePosixPath(file.path).parents}
        return tuple(sorted(parents - {"/"}))


class NativeContext(Record):
    """What parsing needs besides the native evidence itself.

    ``model_ref`` names the model server in references to its calls, where that is known.
    """

    model_ref: ModelRef | None = None


class Harness(Protocol):
    """One adapter. Implementations are values: they keep nothing between calls."""

    @property
    def name(self) -> str:
        """The harness's name: entry point, pin and ``bin/<name>``."""

    @property
    def capabilities(self) -> Capabilities:
        """What the harness can do; ``on`` says it for one platform."""

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch the harness; the same context gives the same plan.

        Raises:
            UsageError: the context asks for something that this harness cannot be told.
        """

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the native evidence says; whatever it does not say is a gap.

        Never raises for the evidence's content, and never changes it.

        Args:
            native: host folder that holds copies of the plan's ``native`` paths, at any depth, and
                the harness's ``stdout`` and ``stderr``.
            context: facts from outside the evidence.
        """


@runtime_checkable
class PinnedHarness(Protocol):
    """An adapter of another package: it brings the pins of its own runtime."""

    @property
    def pins_file(self) -> Path:
        """Its ``pins.toml``, which holds ``[harness.<name>]``; its lock lies beside it."""
