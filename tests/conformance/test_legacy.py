"""One real harness by both interfaces: equal evidence where both can give it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.conformance.baked import baked_entries
from sandbox.engine.bake import commit, remove_image
from sandbox.engine.client import Engine
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.progress import PlainProgress
from tests.conformance.cli import sandbox

pytestmark = pytest.mark.docker
SCENARIO = "tool_failure"


def evidence(cell: Path) -> Any:
    """What both interfaces can tell, with ids of the run made alike."""
    text = (cell / "rollouts.jsonl").read_text()
    record = json.loads((cell / "cell.json").read_text())
    row = json.loads(text.replace(record["rollout_id"], "ROLLOUT"))
    observed = row["ng_agent_observations"]
    exchanges = [json.loads(line) for line in (cell / "exchanges.jsonl").read_text().splitlines()]
    witness = json.loads((cell / "witness.json").read_text())
    tools = [record for record in observed["records"] if record["kind"] == "tool_call"]
    root = next(one for one in observed["records"] if one["kind"] == "agent_invocation")
    return {
        "reward": row["reward"],
        "status": (row["response"]["status"], root["status"]),
        "version": row["response"]["metadata"]["harness_version"],
        "tools": [(tool["tool_name"], tool["status"], tool["error_type"]) for tool in tools],
        "talk": [_plain(item) for item in root["conversation"]],
        "calls": len(root["model_calls"]),
        "gaps": observed["gaps"],
        "exchanges": [(one["status_code"], one["dialect"], one["streamed"]) for one in exchanges],
        "markers": [tool["marker_found"] for tool in witness["tools"]],
        "survivors": witness["survivors"],
        "bundle": record["pin"]["bundle_sha256"],
        "adapter": record["agent"]["adapter_sha256"],
        "sandbox": {tool["sandbox_id"] for tool in tools} == {_box(observed)},
    }


def _box(observed: Any) -> str:
    return next(one["sandbox_id"] for one in observed["records"] if one["kind"] == "sandbox")


def _plain(item: dict[str, Any]) -> Any:
    said = {key: value for key, value in item.items() if key != "tool_call_id"}
    return json.loads(re.sub(r"/tmp/sandbox-[0-9a-f]+|call[0-9a-f]{8,}", "X", json.dumps(said)))


def test_codex_gives_equal_evidence_both_ways(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ended = sandbox(
        "conformance",
        *("--profile", "full", f"codex*/alpine-3.23/{SCENARIO}", "--output", str(folder)),
    )
    assert ended.code == 0, ended.out + ended.err
    cells = folder / "cells"
    session = cells / "codex/alpine-3.23" / SCENARIO
    legacy = cells / "codex+legacy/alpine-3.23" / SCENARIO
    interfaces = [
        json.loads((cell / "cell.json").read_text())["interface"] for cell in (session, legacy)
    ]
    assert interfaces == ["agent-session", "legacy"]
    assert evidence(legacy) == evidence(session)
    assert evidence(session)["sandbox"]


@pytest.fixture
def baked(engine: Engine) -> Iterator[str]:
    """Give an image of a bundle that no lock names."""
    name = f"sandbox-baked/busybox-only:test-{uuid.uuid4().hex[:8]}"
    task = ensure_image(engine, image_definition("busybox-only"), PlainProgress(quiet=True))
    with Sandbox(engine, task.ref, owner=Ownership.current(run_id="baked")) as box:
        labels = {"baked.image": task.image_id, "baked.bundle": "0" * 64}
        commit(engine, box, reference=name, labels=labels)
    yield name
    remove_image(engine, name)


def test_a_baked_image_of_a_bundle_that_no_lock_names_is_not_needed(
    engine: Engine, baked: str
) -> None:
    def states(bundles: set[str]) -> dict[str, str]:
        return {str(entry.path): entry.state for entry in baked_entries(engine, bundles)}

    listed = sandbox("cache", "list", "--engine", "--json")
    assert {"baked", "unneeded"} <= {
        word
        for entry in json.loads(listed.out)
        if entry["path"] == baked
        for word in (entry["kind"], entry["state"])
    }
    assert states({"0" * 64})[baked] == "needed"
    with Sandbox(engine, baked, owner=Ownership.current(run_id="baked")):
        assert states(set())[baked] == "used"
        assert not remove_image(engine, baked)
    assert states(set())[baked] == "unneeded"
    assert remove_image(engine, baked)
    assert remove_image(engine, baked)
    assert baked not in states(set())


def test_an_image_that_there_is_none_of_is_not_baked(engine: Engine) -> None:
    baked = sandbox("images", "bake", "codex", "no-such-image")
    assert baked.code == 2
    assert "no-such-image" in baked.err
