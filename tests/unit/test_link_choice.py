"""Which link is chosen, and how its network goes, with an engine that is not there."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest

from sandbox.engine.bridge import remove_network
from sandbox.engine.client import Engine, EngineInfo
from sandbox.engine.link import choose_isolation
from sandbox.errors import EngineFailure, Unsupported


def engine(api: Any = None, *, can_enter: bool = True, **more: Any) -> Engine:
    info = EngineInfo(
        host="unix:///var/run/docker.sock",
        version="1",
        api_version="1",
        product="docker",
        architecture="x86_64",
        kernel="6.1",
        cgroup_version=2,
        cgroup_driver="systemd",
        storage_driver="overlay2",
        root_dir="/var/lib/docker",
        can_enter_namespaces=can_enter,
        **{"is_local": True, **more},
    )
    return Engine(SimpleNamespace(api=api), info)


@pytest.mark.parametrize(
    ("isolation", "can_enter", "chosen"),
    [
        ("auto", True, "namespace"),
        ("auto", False, "bridge"),
        ("bridge", True, "bridge"),
        ("namespace", True, "namespace"),
        ("relay", True, "relay"),
    ],
)
def test_choice(isolation: Any, can_enter: bool, chosen: str) -> None:
    assert choose_isolation(engine(can_enter=can_enter), isolation) == chosen


@pytest.mark.parametrize("more", [{"is_local": False}, {"security": ("rootless",)}])
def test_where_the_gateway_is_not_this_host_a_relay_passes_calls_on(more: dict[str, Any]) -> None:
    assert choose_isolation(engine(can_enter=False, **more)) == "relay"


def test_a_namespace_that_cannot_be_entered_is_unsupported() -> None:
    with pytest.raises(Unsupported) as caught:
        choose_isolation(engine(can_enter=False), "namespace")
    assert "bridge" in (caught.value.cure or "")


def status(code: int) -> docker.errors.APIError:
    kind = docker.errors.NotFound if code == 404 else docker.errors.APIError
    response: Any = SimpleNamespace(status_code=code)
    return kind("no", response=response, explanation="because")


class Networks:
    """An engine's network calls; each answers with the next of its list, then well."""

    def __init__(self, *, inspect: Any = (), disconnect: Any = (), remove: Any = ()) -> None:
        self.answers = {
            "inspect": iter(inspect),
            "disconnect": iter(disconnect),
            "remove": iter(remove),
        }
        self.calls: list[str] = []

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        for code in self.answers[call]:
            raise status(code)

    def inspect_network(self, name: str) -> dict[str, Any]:
        self._answer("inspect")
        return {"Containers": {"c1": {}}}

    def disconnect_container_from_network(self, container: str, name: str, *, force: bool) -> None:
        assert force
        self._answer("disconnect")

    def remove_network(self, name: str) -> None:
        self._answer("remove")


@pytest.mark.parametrize(
    ("api", "calls"),
    [
        pytest.param(Networks(), ["inspect", "disconnect", "remove"], id="plain"),
        pytest.param(Networks(inspect=[404]), ["inspect"], id="gone"),
        pytest.param(Networks(remove=[404]), ["inspect", "disconnect", "remove"], id="just gone"),
        pytest.param(
            Networks(disconnect=[404]), ["inspect", "disconnect", "remove"], id="detached already"
        ),
        pytest.param(
            Networks(disconnect=[409], remove=[403]),
            ["inspect", "disconnect", "remove"] * 2,
            id="busy once",
        ),
    ],
)
def test_a_network_is_removed_whatever_else_happens(api: Networks, calls: list[str]) -> None:
    remove_network(engine(api), "n", sleep=no_sleep)
    assert api.calls == calls


@pytest.mark.parametrize(
    "api",
    [
        pytest.param(Networks(remove=[500]), id="fails"),
        pytest.param(Networks(disconnect=[500]), id="does not detach"),
        pytest.param(Networks(remove=itertools.repeat(403)), id="busy for ever"),
    ],
)
def test_a_network_that_stays_is_an_engine_failure(api: Networks) -> None:
    with pytest.raises(EngineFailure, match="remove network n"):
        remove_network(engine(api), "n", deadline_s=0.05, sleep=no_sleep)


def no_sleep(seconds: float) -> None:
    """Waiting is not what these tests are about."""
