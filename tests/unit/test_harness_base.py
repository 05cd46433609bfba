"""What a launch context and a plan refuse."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sandbox.harnesses.base import Capabilities, LaunchContext, LaunchPlan, PlannedFile
from sandbox.harnesses.kilocode import KILOCODE
from sandbox.harnesses.prompt import prompt_file, with_prompt

GOOD: dict[str, object] = {
    "prefix": "/opt/agent/prefix",
    "session_dir": "/opt/agent/session",
    "workdir": "/task",
    "base_url": "http://127.0.0.1:8080/rollout/r1/v1",
    "api_key": "sk-local-test-1234",
    "model": "scripted",
    "prompt": "Do it.",
    "deadline_s": 60.0,
    "task_env": {"HOME": "/root", "PATH": "/usr/bin:/bin"},
    "platform": "linux-x64-musl",
    "rollout_id": "r1",
}


def test_a_plain_context_is_accepted() -> None:
    assert LaunchContext.model_validate(GOOD).workdir == "/task"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prefix", "relative"),
        ("session_dir", "/a/../b"),
        ("session_dir", "/a/"),
        ("workdir", "//a"),
        ("workdir", "/a\0b"),
        ("base_url", "ftp://x/v1"),
        ("base_url", "http://x y/v1"),
        ("api_key", "two words"),
        ("model", "a/b"),
        ("prompt", " \n"),
        ("prompt", "a\0b"),
        ("deadline_s", 0),
        ("deadline_s", float("inf")),
        ("task_env", {"A=B": "x"}),
        ("task_env", {"A": "x\0"}),
        ("task_env", {"": "x"}),
        ("platform", "windows"),
        ("unknown", 1),
    ],
)
def test_a_context_that_no_harness_can_be_told_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        LaunchContext.model_validate({**GOOD, field: value})


def test_a_plan_names_its_folders_parents_first() -> None:
    plan = LaunchPlan(
        argv=("x",),
        env={},
        files=(PlannedFile(path="/s/a/b/c", data=b""), PlannedFile(path="/s/d", data=b"")),
        native=(),
    )
    assert plan.directories == ("/s", "/s/a", "/s/a/b")


def test_a_plan_makes_no_file_twice() -> None:
    twice = (PlannedFile(path="/a", data=b"1"), PlannedFile(path="/a", data=b"2"))
    with pytest.raises(ValidationError, match="twice"):
        LaunchPlan(argv=("x",), env={}, files=twice, native=())


def test_the_prompt_travels_as_bytes_in_a_file() -> None:
    prompt = '-- 007 "quoted" $HOME\n\té ☃\n'
    assert prompt_file("/s/prompt", prompt).data.decode() == prompt
    argv = with_prompt(("codex", "exec"), "/s/prompt")
    assert argv[:2] == ("/bin/sh", "-c")
    assert argv[-3:] == ("/s/prompt", "codex", "exec")
    assert prompt not in argv


def test_what_is_otherwise_on_a_platform_holds_there_alone() -> None:
    can = KILOCODE.capabilities
    assert can.on("linux-x64-gnu").request_deadline
    assert not can.on("linux-x64-musl").request_deadline
    assert can.on("linux-x64-gnu").stream_deadline
    assert not can.on("linux-x64-musl").stream_deadline  # no chunkTimeout in 7.0.33
    assert can.on("linux-x64-musl").exceptions == {}
    others = can.model_dump(exclude={"exceptions", *can.exceptions["linux-x64-musl"]})
    assert can.on("linux-x64-musl").model_dump(include=set(others)) == others


@pytest.mark.parametrize(
    "exceptions",
    [
        {"linux-x64-musl": {}},
        {"linux-x64-musl": {"request_dedline": False}},
        {"linux-x64-musl": {"dialect": "morse"}},
        {"linux-x64-musl": {"exceptions": {}}},
        {"windows": {"request_deadline": False}},
    ],
    ids=str,
)
def test_an_exception_is_about_fields_and_platforms_that_there_are(exceptions: object) -> None:
    fields = KILOCODE.capabilities.model_dump() | {"exceptions": exceptions}
    with pytest.raises(ValidationError):
        Capabilities.model_validate(fields)
