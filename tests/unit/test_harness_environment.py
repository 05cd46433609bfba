"""What a harness gets of the task's environment, and its time limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.harnesses.deadlines import deadlines_for
from sandbox.harnesses.environment import DEFAULT_PATH, divide

HOSTILE = [
    "ANTHROPIC_BASE_URL",
    "BASH_ENV",
    "BUN_OPTIONS",
    "CODEX_HOME",
    "HOME",
    "HTTPS_PROXY",
    "KILO_CONFIG_CONTENT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NODE_OPTIONS",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENCODE_PURE",
    "PROXY",
    "PWD",
    "PYTHONPATH",
    "SSL_CERT_FILE",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "all_proxy",
    "http_proxy",
    "npm_config_registry",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_variable_that_changes_a_harness_is_for_tools_only(name: str) -> None:
    divided = divide({name: "value", "PATH": "/task/bin"})
    assert name not in divided.harness
    assert divided.tools[name] == "value"
    assert divided.dropped == (name,)


@pytest.mark.parametrize("name", ["CARGO_HOME", "JAVA_HOME", "LANG", "LC_ALL", "TZ", "MY_LD_FLAGS"])
def test_the_rest_of_the_image_is_kept(name: str) -> None:
    assert divide({name: "value"}).harness[name] == "value"


def test_a_harness_has_a_path_even_if_the_task_has_none() -> None:
    assert divide({}).harness == {"PATH": DEFAULT_PATH}
    assert divide({"PATH": "/only"}).harness == {"PATH": "/only"}
    assert "PATH" not in divide({}).tools


@settings(deadline=None)
@given(env=st.dictionaries(st.text(min_size=1), st.text()))
def test_nothing_is_invented_and_nothing_is_lost(env: dict[str, str]) -> None:
    divided = divide(env)
    assert divided.tools == env
    assert set(divided.dropped) | set(divided.harness) == set(env) | {"PATH"}
    assert not set(divided.dropped) & set(divided.harness)


@settings(deadline=None)
@given(deadline_s=st.floats(min_value=0.001, max_value=1e6))
def test_every_limit_ends_within_the_deadline(deadline_s: float) -> None:
    limits = deadlines_for(deadline_s)
    assert 1 <= limits.idle_ms <= limits.headers_ms <= limits.request_ms
    assert limits.request_ms <= max(1, round(deadline_s * 1000))


def test_a_stalled_try_leaves_time_for_another() -> None:
    limits = deadlines_for(90)
    assert (limits.request_ms, limits.headers_ms, limits.idle_ms) == (90_000, 45_000, 30_000)
    assert deadlines_for(3600).idle_ms == 120_000
    assert [deadlines_for(s).patient for s in (59, 60)] == [False, True]
