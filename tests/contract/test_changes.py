"""The changes read from a container's own layer are those that the engine tells of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox.engine.calls import counted_calls
from sandbox.engine.changes import container_changes, parse_changes
from sandbox.engine.client import Engine
from sandbox.engine.sandbox import Sandbox
from tests.contract.kit import sh

pytestmark = pytest.mark.docker

CHANGES = {
    "nothing": "true",
    "added": "echo a >/new && ln /new /hard && mkdir -p /d/e && echo x >/d/e/f && mkfifo /pipe",
    "modified": "echo x >>/etc/passwd && chmod 700 /home && chown 5:5 /etc/shells",
    "untouched": "cp -p /etc/shadow /etc/s && mv /etc/s /etc/shadow; mkdir /t && rm -r /t",
    "deleted": "rm -rf /etc/group /usr/share/apk /usr/share/doc /media",
    "replaced": "rm -rf /opt /srv && echo x >/opt && ln -s /etc /srv; mkdir /media; >/media/z",
    "emptied": "rm -rf /etc/init.d /etc/apt && mkdir -p /etc/init.d /etc/apt && echo 1 >/etc/apt/k",
    "moved": "mv /etc/profile /etc/profile.old && mv /usr/share/misc /usr/share/other",
}


def test_every_kind_of_change_is_told_as_the_engine_does(
    make: Callable[..., Sandbox], engine: Engine
) -> None:
    with make() as own:
        for name, script in CHANGES.items():
            sh(own, script)
            told = parse_changes(engine.sdk.api.diff(own.id))
            assert container_changes(engine, own.id) == told, name
        kinds = {change.change for change in told}
        assert kinds == {"added", "modified", "deleted"}, "the scripts did not do what they say"


def test_where_the_layer_is_read_the_engine_compares_no_trees(
    make: Callable[..., Sandbox], engine: Engine
) -> None:
    info = engine.info
    if not (info.can_enter_namespaces and info.storage_driver == "overlay2"):
        pytest.skip("this engine's layers are not read from here")
    with make() as own, counted_calls(engine) as calls:
        sh(own, "echo a >/new")
        assert "/new" in [change.path for change in own.diff()]
    assert "GET /containers/{id}/changes" not in calls.counts
