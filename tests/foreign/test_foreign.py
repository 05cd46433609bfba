"""Somebody else's agent server is tested by --agent-url, once by sessions, once by /run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.engine.client import Engine
from tests.conformance.cli import sandbox

pytestmark = pytest.mark.docker
SERVER = Path(__file__).with_name("server.py")


@contextmanager
def serving(mode: str) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, str(SERVER), mode], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("mode", "interface"), [("session", "agent-session"), ("legacy", "legacy")]
)
def test_a_foreign_server_passes(mode: str, interface: str, engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scenarios = ("tool_success", "tool_failure", "model_error")
    with serving(mode) as url:
        ended = sandbox(
            "conformance",
            *("--agent-url", url, "--agent-name", "foreign", "--image", "alpine-3.23"),
            *(word for name in scenarios for word in ("--scenario", name)),
            *("--output", str(folder)),
        )
    assert ended.code == 0, ended.out + ended.err
    for scenario in scenarios:
        cell = json.loads((folder / f"cells/foreign/alpine-3.23/{scenario}/cell.json").read_text())
        assert cell["interface"] == interface
        assert cell["agent"]["url"] == url
        assert cell["refusal"] is None


def test_a_server_is_held_to_the_interface_that_is_asked_for(
    engine: Engine, tmp_path: Path
) -> None:
    with serving("session") as url:
        ended = sandbox(
            "conformance",
            *("--agent-url", url, "--interface", "legacy", "--image", "alpine-3.23"),
            *("--scenario", "tool_success", "--output", str(tmp_path / "run")),
        )
    row = next((tmp_path / "run").glob("cells/remote/*/*/failures.jsonl")).read_text()
    assert ended.code == 1
    assert json.loads(row)["_ng_failure_kind"] == "contract_error"
    assert "404" in json.loads(row)["_ng_failure_message"]
