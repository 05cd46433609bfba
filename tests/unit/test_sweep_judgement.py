"""Whose things a sweep removes, with an engine that only remembers."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest
import requests.exceptions

from sandbox.engine.client import Engine, EngineInfo
from sandbox.engine.owner import Ownership
from sandbox.engine.sweep import sweep
from sandbox.errors import EngineFailure

ME = Ownership.current(run_id="mine")


def dead_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


DEAD = ME.model_copy(update={"run_id": "dead", "pid": dead_pid(), "pid_started": 1})
RECYCLED = ME.model_copy(update={"run_id": "recycled", "pid_started": 1})
REBOOTED = ME.model_copy(update={"run_id": "rebooted", "boot_id": "another"})
ELSEWHERE = REBOOTED.model_copy(update={"run_id": "elsewhere", "machine": "another"})
CONTAINED = DEAD.model_copy(update={"run_id": "contained", "pid_namespace": "pid:[1]"})


class Api:
    """Containers, networks and volumes by id, and what is said when one is to be removed."""

    def __init__(self, *owners: Ownership, refuse: dict[str, Any] | None = None) -> None:
        self.things = {
            f"{kind}-{owner.run_id}": owner.labels()
            for owner in owners
            for kind in ("volume", "network", "container")
        }
        self.refuse = refuse or {}
        self.calls: list[str] = []

    def _rows(self, kind: str) -> list[dict[str, Any]]:
        return [
            {"Id": ident, "Name": ident, "Names": [f"/{ident}"], "Labels": labels}
            for ident, labels in self.things.items()
            if ident.startswith(kind)
        ]

    def containers(self, **_: Any) -> list[dict[str, Any]]:
        return self._rows("container")

    def networks(self, **_: Any) -> list[dict[str, Any]]:
        return self._rows("network")

    def volumes(self, **_: Any) -> dict[str, Any]:
        return {"Volumes": self._rows("volume") or None}

    def inspect_network(self, ident: str) -> dict[str, Any]:
        return {}

    def _remove(self, ident: str, **_: Any) -> None:
        self.calls.append(ident)
        refusals = self.refuse.get(ident, [])
        if refusals:
            raise refusals.pop(0)
        del self.things[ident]

    remove_container = remove_network = remove_volume = _remove


def engine(api: Api, *, is_local: bool = True) -> Engine:
    info = EngineInfo(
        host="tcp://engine:2375",
        version="1",
        api_version="1",
        product="docker",
        architecture="x86_64",
        kernel="6.1",
        cgroup_version=2,
        cgroup_driver="systemd",
        storage_driver="overlay2",
        root_dir="/var/lib/docker",
        is_local=is_local,
        can_enter_namespaces=is_local,
    )
    return Engine(SimpleNamespace(api=api), info)


def status(code: int) -> docker.errors.APIError:
    kind = docker.errors.NotFound if code == 404 else docker.errors.APIError
    response: Any = SimpleNamespace(status_code=code)
    return kind("no", response=response, explanation="because")


@pytest.mark.parametrize(
    ("owner", "is_local", "reason"),
    [
        pytest.param(DEAD, True, None, id="dead"),
        pytest.param(DEAD, False, None, id="dead, engine elsewhere"),
        pytest.param(RECYCLED, True, None, id="its pid is another process's"),
        pytest.param(REBOOTED, True, None, id="before the last boot"),
        pytest.param(REBOOTED, False, "another boot", id="a twin of this machine"),
        pytest.param(ELSEWHERE, True, "another machine", id="another machine"),
        pytest.param(ELSEWHERE, False, "another machine", id="another machine, engine elsewhere"),
        pytest.param(CONTAINED, True, "another container", id="another pid namespace"),
        pytest.param(ME, True, f"process {os.getpid()}, lives", id="living"),
        pytest.param(ME, False, f"process {os.getpid()}, lives", id="living, engine elsewhere"),
    ],
)
def test_only_proved_death_removes(owner: Ownership, is_local: bool, reason: str | None) -> None:
    api = Api(owner)
    report = sweep(engine(api, is_local=is_local))
    if reason is None:
        assert not api.things
        assert [item.kind for item in report.removed] == ["container", "network", "volume"]
        assert {item.run_id for item in report.removed} == {owner.run_id}
        assert report.kept == ()
    else:
        assert (api.calls, report.removed, len(report.kept)) == ([], (), 3)
        assert all(reason in kept.reason for kept in report.kept)
        assert bool(report.unsettled) == (owner is not ME)


def test_incomplete_labels_are_kept_and_need_a_look() -> None:
    api = Api(DEAD)
    del api.things["volume-dead"]["sandbox.pid"]
    report = sweep(engine(api))
    assert [kept.item.name for kept in report.unsettled] == ["volume-dead"]
    assert len(report.removed) == 2


def test_a_run_can_be_swept_whoever_owns_it() -> None:
    api = Api(ME, ELSEWHERE)
    report = sweep(engine(api), include_run="elsewhere")
    assert sorted(api.things) == ["container-mine", "network-mine", "volume-mine"]
    assert len(report.removed) == 3
    assert not report.unsettled


def test_a_second_sweep_finds_nothing() -> None:
    api = Api(DEAD)
    sweep(engine(api))
    assert sweep(engine(api)).removed == ()


@pytest.mark.parametrize(
    ("ident", "code"),
    [
        ("container-dead", 404),
        ("container-dead", 409),
        ("network-dead", 404),
        ("network-dead", 403),
        ("volume-dead", 404),
        ("volume-dead", 409),
    ],
)
def test_other_sweeps_at_the_same_time_do_not_matter(ident: str, code: int) -> None:
    api = Api(DEAD, refuse={ident: [status(code)]})
    assert sweep(engine(api)).kept == ()
    assert not api.things


def test_what_the_engine_will_not_remove_is_kept_with_its_words() -> None:
    api = Api(DEAD, refuse={"container-dead": [status(500)] * 9})
    report = sweep(engine(api))
    (kept,) = report.unsettled
    assert kept.item.kind == "container"
    assert "because" in kept.reason
    assert list(api.things) == ["container-dead"]


def test_an_engine_that_goes_away_is_a_failure() -> None:
    gone = requests.exceptions.ConnectionError("refused")
    with pytest.raises(EngineFailure, match="did not answer"):
        sweep(engine(Api(DEAD, refuse={"network-dead": [gone]})))
