"""``sandbox serve`` as its users run it: a process of its own, asked over its socket."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sandbox.agents.client import agent_at
from sandbox.agents.contract import (
    CloseRequest,
    ConflictError,
    EpisodeId,
    SandboxAccess,
    SeedRequest,
    TaskId,
    UnprocessableError,
)
from sandbox.conformance.ways import TREE_MOUNT
from sandbox.engine.client import Engine
from sandbox.engine.sandbox import Sandbox
from sandbox.harnesses.codex import CODEX
from sandbox.harnesses.source import source_sha256
from tests.conformance.cli import sandbox, serving

EPISODE = EpisodeId(rollout_id="r")


def seed(name: str, access: SandboxAccess | None) -> SeedRequest:
    task = TaskId(task_source="serve", task_id="1")
    return SeedRequest(
        agent_session_id=name, episode_id=EPISODE, task_id=task, sandbox_access=access
    )


def close(name: str) -> CloseRequest:
    return CloseRequest(agent_session_id=name, episode_id=EPISODE)


def test_a_served_adapter_keeps_the_contract(engine: Engine, make: Callable[..., Sandbox]) -> None:
    with serving("codex") as served, agent_at(served.url) as agent:
        described = agent.describe()
        assert described.interfaces == ("agent-session",)
        assert described.card is not None
        assert described.card.adapter_sha256 == source_sha256(CODEX)
        gone = SandboxAccess.to_container("0" * 64, workdir="/")
        with pytest.raises(UnprocessableError, match="no direct access"):
            agent.seed(seed("gone", gone))
        with pytest.raises(UnprocessableError, match="of its own"):
            agent.seed(seed("own", None))
        with make("busybox-only", workdir="/workspace") as box:
            before = box.diff()
            with pytest.raises(UnprocessableError, match="busybox|platform|libc") as caught:
                agent.seed(seed("unfit", SandboxAccess.to_container(box.id, workdir="/workspace")))
            assert caught.value.cure
            assert agent.close(close("unfit")) == agent.close(close("unfit"))
            assert box.diff() == before
        assert agent.close(close("late")).agent_observations is None
        with pytest.raises(ConflictError, match="closed"):
            agent.seed(seed("late", None))


def test_sandboxes_of_its_own_see_the_runtime_and_lent_ones_get_a_copy(
    engine: Engine, make: Callable[..., Sandbox]
) -> None:
    with (
        serving("pi", "--image", "alpine-3.23") as served,
        agent_at(served.url) as agent,
        make("alpine-3.23", workdir="/workspace") as lent,
    ):
        agent.seed(seed("own", None))
        agent.seed(seed("lent", SandboxAccess.to_container(lent.id, workdir="/workspace")))
        (shown,) = sandboxes(engine, served.process.pid)
        assert TREE_MOUNT in shown
        where = lent.exec(["sh", "-c", "echo /tmp/sandbox-*/runtime"], deadline_s=30)
        assert lent.exec(["test", "-h", where.stdout.text.strip()], deadline_s=30).exit_code == 1
        for name in ("own", "lent"):
            agent.close(close(name))
        assert sandboxes(engine, served.process.pid) == []


def sandboxes(engine: Engine, pid: int) -> list[list[str]]:
    """What each sandbox of a process is shown read-only."""
    found = engine.sdk.api.containers(filters={"label": [f"sandbox.pid={pid}"]})
    return [[mount["Destination"] for mount in one["Mounts"] if not mount["RW"]] for one in found]


def test_what_cannot_be_served_is_said(engine: Engine) -> None:
    unknown = sandbox("serve", "codexx")
    assert unknown.code == 2
    assert "codex" in unknown.err
    taken = sandbox("serve", "codex", "--port", "70000")
    assert taken.code == 2


def test_every_schema_is_printed() -> None:
    listed = sandbox("schema")
    assert listed.code == 0
    for line in listed.out.splitlines():
        name = line.split()[0]
        if name in {"rollout-row", "agent-contract"}:
            assert json.loads(sandbox("schema", name).out)
    assert sandbox("schema", "row").code == 2
