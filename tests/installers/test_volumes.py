"""Runtimes mounted from volumes, as on an engine that does not see this machine's files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.conformance.volumes import RuntimeVolumes
from sandbox.conformance.ways import ImageRuntimes, run_volumes
from sandbox.engine.client import Engine
from sandbox.engine.images import LoadedImage
from sandbox.engine.limits import VolumeMount
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.engine.sweep import sweep
from sandbox.errors import EngineFailure, InstallError, IntegrityError
from sandbox.runtimes.install import install
from sandbox.runtimes.library import Bundle, RuntimeLibrary
from sandbox.runtimes.store import Store

pytestmark = pytest.mark.docker

Start = Callable[..., Sandbox]
Tiny = Callable[..., Bundle]
PREFIX = "/tmp/harness/runtime"  # in the sandbox


@pytest.fixture
def away(engine: Engine) -> Engine:
    """The engine, seen as if it were on another machine."""
    return Engine(engine.sdk, engine.info.model_copy(update={"is_local": False}))


@pytest.fixture
def library(tmp_path: Path) -> RuntimeLibrary:
    return RuntimeLibrary(store=Store(tmp_path / "store"))


def volumes_of(engine: Engine, run_id: str) -> list[str]:
    mine = {"label": [f"sandbox.run_id={run_id}"]}
    return [str(one["Name"]) for one in engine.sdk.api.volumes(filters=mine)["Volumes"] or ()]


def containers_of(engine: Engine, run_id: str) -> int:
    mine = {"label": [f"sandbox.run_id={run_id}"]}
    return len(engine.sdk.api.containers(all=True, filters=mine))


def test_a_volume_is_filled_once_seen_by_all_and_gone_at_the_end(
    away: Engine, image: LoadedImage, owner: Ownership, tiny: Tiny, library: RuntimeLibrary
) -> None:
    bundle = tiny(image.platform)
    with run_volumes(away, "mount", owner.run_id) as volumes, ThreadPoolExecutor(2) as pool:
        assert volumes is not None
        names = set(pool.map(lambda _: volumes.ensure(bundle, image.ref), range(2)))
        assert names == set(volumes_of(away, owner.run_id))
        assert len(names) == 1
        assert containers_of(away, owner.run_id) == 0, "what filled it is gone"
        runtimes = ImageRuntimes(away, library, image, way="mount", volumes=volumes)
        mounts = runtimes.mounts(bundle)
        assert runtimes.room(bundle) == 0
        for user, checked in (("", "now"), ("1234:1234", "earlier")):
            with Sandbox(away, image.ref, owner=owner, mounts=mounts, user=user or None) as box:
                receipt = runtimes.install(box, bundle, PREFIX)
                assert (receipt.way, receipt.version_checked) == ("mount", checked)
                ran = box.exec([f"{PREFIX}/bin/tool"], deadline_s=30, env={"TMPDIR": "/tmp"})
                assert ran.stdout.text == "tool 1.2.3\n"
                wrote = box.exec(["sh", "-c", f": >{PREFIX}/x"], deadline_s=30)
                assert wrote.exit_code != 0
                assert "Read-only file system" in wrote.stderr.text
    assert volumes_of(away, owner.run_id) == []


def test_what_cannot_be_filled_is_told_at_the_installation_and_leaves_nothing(
    away: Engine, image: LoadedImage, owner: Ownership, tiny: Tiny, library: RuntimeLibrary
) -> None:
    """Not before: an agent may have a better reason to refuse the image."""
    other = tiny(image.platform, version_output="tool 9")
    with RuntimeVolumes(away, owner.run_id) as volumes:
        runtimes = ImageRuntimes(away, library, image, way="mount", volumes=volumes)
        assert runtimes.mounts(other) == ()
        assert volumes_of(away, owner.run_id) == []
        with (
            Sandbox(away, image.ref, owner=owner) as box,
            pytest.raises(InstallError, match="pinned is 'tool 9'"),
        ):
            runtimes.install(box, other, PREFIX)
        torn = tiny(image.platform)
        torn.path.write_bytes(torn.path.read_bytes()[:-512] + bytes(511) + b"x")
        with pytest.raises(IntegrityError):
            volumes.ensure(torn, image.ref)
        assert volumes_of(away, owner.run_id) == []


def test_a_volume_that_can_be_written_to_is_not_taken(
    away: Engine, image: LoadedImage, owner: Ownership, tiny: Tiny
) -> None:
    bundle = tiny(image.platform)
    with RuntimeVolumes(away, owner.run_id) as volumes:
        name = volumes.ensure(bundle, image.ref)
        mount = VolumeMount(volume=name, target="/srv/runtimes", writable=True)
        with (
            Sandbox(away, image.ref, owner=owner, mounts=[mount], user="0:0") as box,
            pytest.raises(IntegrityError, match="mounted read-only"),
        ):
            install(box, bundle, PREFIX, tree_path="/srv/runtimes/runtime")


def test_a_volume_in_use_is_told_and_the_others_go(
    away: Engine, image: LoadedImage, owner: Ownership, tiny: Tiny
) -> None:
    one, two = tiny(image.platform), tiny(image.platform, extra={"x": b"y"})
    volumes = RuntimeVolumes(away, owner.run_id)
    held = volumes.ensure(one, image.ref)
    volumes.ensure(two, image.ref)
    mount = VolumeMount(volume=held, target="/srv/runtimes")
    with Sandbox(away, image.ref, owner=owner, mounts=[mount]):
        with pytest.raises(EngineFailure, match=held):
            volumes.__exit__(None)
        assert volumes_of(away, owner.run_id) == [held]
    sweep(away, include_run=owner.run_id)
    assert volumes_of(away, owner.run_id) == []


KILLED = """
import os, signal
from sandbox.engine.client import Engine
from sandbox.engine.owner import Ownership
from sandbox.engine.sweep import create_volume
with Engine.connect() as engine:
    create_volume(engine, "sandbox-runtime-killed", Ownership.current(run_id="volumes-killed"))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_runs_volume_is_swept(engine: Engine) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert ended.returncode == -9
    assert volumes_of(engine, "volumes-killed") == ["sandbox-runtime-killed"]
    assert "sandbox-runtime-killed" in {item.name for item in sweep(engine).removed}
    assert volumes_of(engine, "volumes-killed") == []
