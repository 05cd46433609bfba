"""Which promises hold on engines that say other things of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.engine.client import security_options
from sandbox.engine.guarantees import guarantees
from sandbox.engine.link import Isolation
from sandbox.evidence.cell import Guarantee
from sandbox.report.words import lacking
from tests.broken.goodcells import good
from tests.unit.test_doctor import engine


def held(isolation: Isolation = "namespace", **facts: Any) -> dict[str, bool | None]:
    found = guarantees(engine(**facts).info, isolation)
    for one in found:
        assert one.reason
        assert one.holds or one.cure, one
    return {one.name: one.holds for one in found}


def test_beside_a_usual_engine_only_the_disk_has_no_end() -> None:
    found = held()
    assert [name for name, holds in found.items() if holds is not True] == ["disk limit"]
    assert found["disk limit"] is False


@pytest.mark.parametrize(
    ("facts", "isolation", "other"),
    [
        (
            {"limits": {"memory": True, "swap": False, "pids": True}},
            "namespace",
            {"no swap": False},
        ),
        ({"limits": {"memory": True, "swap": True}}, "namespace", {"process limit": None}),
        (
            {"cgroup_driver": "none"},  # rootless without delegated control groups
            "namespace",
            {
                "memory limit": False,
                "no swap": False,
                "process limit": False,
                "resources counted": False,
            },
        ),
        ({"security": ("seccomp=unconfined",)}, "namespace", {"system calls filtered": False}),
        ({"security": ("apparmor",)}, "namespace", {"system calls filtered": False}),
        ({"backing": "xfs"}, "namespace", {"disk limit": None}),
        (
            {"can_enter_namespaces": False},
            "bridge",
            {"no network": False, "egress log": False, "resources counted": None},
        ),
        (
            {"can_enter_namespaces": False, "is_local": False},
            "relay",
            {"egress log": False, "resources counted": None},
        ),
    ],
)
def test_what_an_engine_lacks(facts: dict[str, Any], isolation: Any, other: dict[str, Any]) -> None:
    assert held(isolation, **facts) == {**held(), **other}


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ({"SecurityOptions": ["name=seccomp,profile=default"]}, ("seccomp=default",)),
        (
            {"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"]},
            ("seccomp=builtin", "rootless", "cgroupns"),
        ),
        (
            {
                "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"],
                "Rootless": True,
            },
            ("seccomp=default", "rootless"),
        ),
        ({"SecurityOptions": ["seccomp"]}, ("seccomp",)),
        ({"SecurityOptions": None}, ()),
    ],
)
def test_security_options(said: dict[str, Any], options: tuple[str, ...]) -> None:
    assert security_options(said) == options


def test_reports_say_once_what_did_not_hold() -> None:
    cell = good("tool_success").cell.model_copy(
        update={
            "guarantees": (
                Guarantee(name="a", holds=True, reason="x"),
                Guarantee(name="b", holds=False, reason="y"),
                Guarantee(name="c", holds=None, reason="z"),
            )
        }
    )
    assert lacking([cell, None, cell]) == ("b: y", "c (not known): z")
