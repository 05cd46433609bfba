"""Engine.connect: which engine is found, and what it says of itself."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from tests.contract.kit import run
from tests.contract.severed import Severable

pytestmark = pytest.mark.docker


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Severable:
    """Make the CLI's current context one that leads to the engine on another road."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    with Severable(engine.info.host) as road:
        meta = tmp_path / "contexts/meta" / hashlib.sha256(b"road").hexdigest()
        meta.mkdir(parents=True)
        ends = {"docker": {"Host": road.address, "SkipTLSVerify": False}}
        (meta / "meta.json").write_text(
            json.dumps({"Name": "road", "Metadata": {}, "Endpoints": ends})
        )
        (tmp_path / "config.json").write_text(json.dumps({"currentContext": "road"}))
        yield road


def test_what_it_says(engine: Engine) -> None:
    info = engine.info
    said = engine.sdk.api.version()
    assert (info.version, info.api_version) == (said["Version"], engine.sdk.api.api_version)
    assert info.kernel == said["KernelVersion"]
    assert info.cgroup_version in {1, 2}
    assert info.product == "docker"
    if info.host.startswith("unix://") and os.geteuid() == 0:
        assert info.is_local
        assert info.can_enter_namespaces


def test_the_clis_context_is_respected(context: Severable, image: str) -> None:
    with Engine.connect() as engine:
        assert engine.info.host == context.address
        owner = Ownership.current(run_id="kit-context")
        with Sandbox(engine, image, owner=owner) as own:
            assert run(own, "true").ok
    assert "DOCKER_HOST" not in os.environ


def test_docker_host_goes_before_the_context(context: Severable, engine: Engine) -> None:
    with Engine.connect(environ={"DOCKER_HOST": engine.info.host}) as found:
        assert found.info.host == engine.info.host
