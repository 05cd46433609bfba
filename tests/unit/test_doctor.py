"""Findings of ``sandbox doctor`` on machines that lack something."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.engine.client import Engine, EngineInfo
from sandbox.engine.doctor import examine, exit_code
from sandbox.engine.enginechecks import control_groups, disk
from sandbox.engine.finding import Finding
from sandbox.engine.hostchecks import GIB, WANTED_GIB, cache_space
from sandbox.engine.hostcommands import LocalCommands
from sandbox.errors import CacheUnusable, ExitCode, FetchError, PrerequisiteMissing, UsageError

NO_ENGINE = PrerequisiteMissing("no Docker engine answers", cure="start one")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


class Host(LocalCommands):
    """A host with these programs."""

    def __init__(self, *programs: str, root: bool = True) -> None:
        self.programs = programs
        self.root = root

    def is_root(self) -> bool:
        return self.root

    def which(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.programs else None


FULL_HOST = Host("dockerd", "apt-get", "mmdebstrap")


def utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "123Z")


def engine(*, said: dict[str, Any] | None = None, **info: Any) -> Engine:
    words = {
        "InitBinary": "docker-init",
        "InitCommit": {"ID": "de40ad0"},
        "SystemTime": utc(time.time()),
        **(said or {}),
    }
    known = {
        "host": "unix:///var/run/docker.sock",
        "version": "20.10.24",
        "api_version": "1.41",
        "product": "docker",
        "architecture": "x86_64",
        "kernel": "6.1",
        "cgroup_version": 1,
        "cgroup_driver": "cgroupfs",
        "storage_driver": "overlay2",
        "root_dir": "/",
        "is_local": True,
        "can_enter_namespaces": True,
        "security": ("seccomp=default",),
        "limits": {"memory": True, "swap": True, "pids": True},
        "backing": "extfs",
        **info,
    }
    api = SimpleNamespace(info=lambda: words)
    return Engine(SimpleNamespace(api=api, close=lambda: None), EngineInfo(**known))


def look(
    tmp_path: Path,
    *,
    found: Engine | Exception | None = None,
    host: LocalCommands = FULL_HOST,
    waiting: Sequence[str] = ("debian-12",),
    **options: Any,
) -> dict[str, Finding]:
    def connect() -> Engine:
        answer = found or engine()
        if isinstance(answer, Exception):
            raise answer
        return answer

    findings = examine(
        cache=options.pop("cache", tmp_path / "cache"),
        connect=connect,
        commands=host,
        to_build=lambda _: waiting,
        **options,
    )
    assert len({item.name for item in findings}) == len(findings)
    for item in findings:
        assert item.ok is True or item.cure, item
        assert (item.exit_code == ExitCode.OK) == (item.ok is not False), item
    return {item.name: item for item in findings}


def test_all_is_well(tmp_path: Path) -> None:
    findings = look(tmp_path)
    bad = {item.name for item in findings.values() if item.ok is not True}
    own = {"cache", "engine disk", "control groups"}  # these are this host's
    assert bad <= {*own, "guarantee 'disk limit'"}
    assert "docker 20.10.24" in findings["engine"].detail
    assert list((tmp_path / "cache").iterdir()) == []


def test_no_engine_is_exit_5_and_ends_no_other_check(tmp_path: Path) -> None:
    findings = look(tmp_path, found=NO_ENGINE)
    assert findings["engine"].cure == "start one"
    assert "--ensure-engine" in findings["engine step"].detail
    assert set(findings) == {"engine", "engine step", "cache", "image tools"}
    assert exit_code(findings.values()) == ExitCode.PREREQUISITE


@pytest.mark.parametrize("host", [Host("apt-get", root=False), Host("mmdebstrap")])
def test_without_the_means_to_start_one(tmp_path: Path, host: Host) -> None:
    step = look(tmp_path, found=NO_ENGINE, host=host)["engine step"]
    assert step.ok is False
    assert "apt-get install docker.io" in (step.cure or "")


def test_an_address_that_makes_no_sense_is_exit_2(tmp_path: Path) -> None:
    findings = look(tmp_path, found=UsageError("DOCKER_HOST cannot be read", cure="unset it"))
    assert exit_code(findings.values()) == ExitCode.USAGE


@pytest.mark.parametrize(
    ("host", "waiting", "ok"),
    [
        pytest.param(Host("mmdebstrap", root=False), ["debian-12"], True, id="there"),
        pytest.param(Host("apt-get"), ["debian-12"], True, id="installable"),
        pytest.param(Host(), [], True, id="not needed"),
        pytest.param(Host("apt-get", root=False), ["debian-12"], False, id="missing"),
    ],
)
def test_image_tools(tmp_path: Path, host: Host, waiting: list[str], ok: bool) -> None:
    finding = look(tmp_path, host=host, waiting=waiting)["image tools"]
    assert finding.ok is ok
    assert ok or "debian-12" in finding.detail


@pytest.mark.parametrize(
    ("info", "ok"),
    [
        pytest.param({}, True, id="root beside the engine"),
        pytest.param({"can_enter_namespaces": False}, None, id="docker group"),
        pytest.param({"can_enter_namespaces": False, "is_local": False}, None, id="elsewhere"),
    ],
)
def test_model_link(tmp_path: Path, info: dict[str, Any], ok: bool | None) -> None:
    findings = look(tmp_path, found=engine(**info))
    assert findings["model link"].ok is ok
    egress = findings["guarantee 'egress log'"]
    assert (egress.ok, egress.detail.partition(":")[0]) == (
        (True, "holds") if ok else (None, "does not hold")
    )


def test_an_engine_without_init_is_exit_5(tmp_path: Path) -> None:
    findings = look(tmp_path, found=engine(said={"InitCommit": {"ID": "N/A"}}))
    assert findings["init"].ok is False
    assert exit_code([findings["init"]]) == ExitCode.PREREQUISITE


@pytest.mark.parametrize(
    ("ahead_s", "ok"), [(0.0, True), (-1.5, True), (30.0, False), (-30.0, False), (None, None)]
)
def test_clock(tmp_path: Path, ahead_s: float | None, ok: bool | None) -> None:
    said = {"SystemTime": None if ahead_s is None else utc(time.time() + ahead_s)}
    assert look(tmp_path, found=engine(said=said))["clock"].ok is ok


def test_an_engine_that_goes_away_meanwhile_is_a_finding(tmp_path: Path) -> None:
    leaving = engine()

    def fail() -> None:
        raise ConnectionResetError

    leaving.sdk.api.info = fail
    findings = look(tmp_path, found=leaving)
    assert findings["init"].exit_code == findings["clock"].exit_code == ExitCode.ERROR


V1 = """\
30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 20 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
"""
V2 = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("version", "mounts", "ok"),
    [(1, V1, True), (1, V2, False), (2, V2, True), (2, V1, False), (1, V1[:65], False)],
)
def test_control_groups(tmp_path: Path, version: int, mounts: str, ok: bool) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(mounts)
    assert control_groups(engine(cgroup_version=version), mountinfo=mountinfo).ok is ok


def test_disk_of_an_engine_elsewhere_cannot_be_seen() -> None:
    finding = disk(engine(is_local=False))
    assert finding.ok is None
    assert finding.cure


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tmpfs"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@needs_root
def test_a_small_disk_is_exit_5(tmp_path: Path, tmpfs: Path) -> None:
    finding = look(tmp_path, cache=tmpfs / "cache")["cache"]
    assert finding.exit_code == ExitCode.PREREQUISITE
    assert "wants 6.0 GiB" in finding.detail
    assert "XDG_CACHE_HOME" in (finding.cure or "")


@needs_root
def test_a_full_disk_is_exit_5_and_nothing_is_left_on_it(tmp_path: Path, tmpfs: Path) -> None:
    (tmpfs / "full").write_bytes(b"x" * 65536)
    finding = look(tmp_path, cache=tmpfs)["cache"]
    assert finding.exit_code == ExitCode.PREREQUISITE
    assert "No space left" in finding.detail
    assert [entry.name for entry in tmpfs.iterdir()] == ["full"]


@needs_root
def test_a_read_only_disk_is_exit_5(tmp_path: Path, tmpfs: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", tmpfs], check=True)
    finding = look(tmp_path, cache=tmpfs)["cache"]
    assert finding.exit_code == ExitCode.PREREQUISITE
    assert "Read-only" in finding.detail


def test_what_the_cache_holds_already_needs_no_space_again(tmp_path: Path) -> None:
    def nearly_enough(_: Path) -> int:
        return int(WANTED_GIB * GIB) - 8192

    with pytest.raises(CacheUnusable):
        cache_space(tmp_path, space=nearly_enough)
    (tmp_path / "held").write_bytes(b"x" * 16_384)
    assert cache_space(tmp_path, space=nearly_enough).ok


def test_a_file_where_the_cache_should_be_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finding = look(tmp_path, cache=tmp_path / "file" / "cache")["cache"]
    assert (finding.ok, finding.exit_code) == (False, ExitCode.ERROR)


def test_other_rooms_add_findings_and_their_errors_are_findings(tmp_path: Path) -> None:
    def broken() -> list[Finding]:
        raise FetchError("no registry answers", cure="look at the proxy")

    extra = Finding(name="store", ok=True, detail="7 bundles, all as pinned")
    findings = look(tmp_path, more=[("store", lambda: [extra]), ("registries", broken)])
    assert findings["store"] == extra
    assert findings["registries"].cure == "look at the proxy"
    assert findings["registries"].exit_code == ExitCode.ERROR


def test_the_first_bad_finding_decides_the_exit_code() -> None:
    def finding(ok: bool | None, code: ExitCode) -> Finding:
        return Finding(name="x", ok=ok, detail="", cure="y", exit_code=code)

    assert exit_code([]) == ExitCode.OK
    assert exit_code([finding(None, ExitCode.OK)]) == ExitCode.OK
    bad = [finding(False, ExitCode.PREREQUISITE), finding(False, ExitCode.ERROR)]
    assert exit_code(bad) == ExitCode.PREREQUISITE
