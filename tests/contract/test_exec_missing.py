"""exec: what does not exist is NotFound by looking, what cannot run is a value."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox.engine.archive import PutFile
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import NotFound
from tests.contract.kit import run, said, sh

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("command", ["no-such-command", "/no/such/command", "./no-such-command"])
def test_missing_command(box: Sandbox, command: str) -> None:
    with pytest.raises(NotFound, match=f"no command '{command}'"):
        run(box, command, "--version")


def test_missing_command_within_a_shell_is_a_value(box: Sandbox) -> None:
    result = sh(box, "no-such-command")
    assert result.exit_code == 127
    assert "not found" in result.stderr.text


def test_command_outside_of_the_given_path(box: Sandbox) -> None:
    with pytest.raises(NotFound, match="no command 'sh'"):
        run(box, "sh", env={"PATH": "/nowhere"})


@pytest.mark.parametrize("user", ["no-such-user", "no-such-user:0", "root:no-such-group"])
def test_missing_user(box: Sandbox, user: str) -> None:
    with pytest.raises(NotFound, match=r"there is no (user|group)"):
        run(box, "true", user=user)


@pytest.mark.parametrize("cwd", ["/no/such/folder", "/etc/passwd"])
def test_missing_cwd(box: Sandbox, cwd: str) -> None:
    with pytest.raises(NotFound, match=f"no folder '{cwd}'"):
        run(box, "true", cwd=cwd)


def test_missing_cwd_for_a_plain_user(user_box: Sandbox) -> None:
    with pytest.raises(NotFound, match="no folder"):
        run(user_box, "true", cwd="/no/such/folder")


def test_removed_default_folder(make: Callable[..., Sandbox]) -> None:
    with make(workdir="/work/place") as own:
        assert said(run(own, "pwd")) == "/work/place\n"
        sh(own, "rmdir /work/place", cwd="/")
        with pytest.raises(NotFound, match="no folder '/work/place'"):
            run(own, "true")


@pytest.mark.parametrize(
    ("content", "mode"),
    [(b"#!/bin/sh\n", 0o644), (b"#!/no/such/interpreter\n", 0o755), (b"\0no program\n", 0o755)],
    ids=["no permission", "no interpreter", "no program"],
)
def test_file_that_cannot_run_is_a_value(box: Sandbox, content: bytes, mode: int) -> None:
    box.put([PutFile(path="odd", data=content, mode=mode)], "/opt/odd")
    result = run(box, "/opt/odd/odd")
    assert result.exit_code in {1, 126, 127}  # depends on where the runtime notices
    assert result.stdout.total + result.stderr.total > 0  # the runtime's reason


def test_folder_as_command_is_a_value(box: Sandbox) -> None:
    assert run(box, "/etc").exit_code in {126, 127}
