"""Launch contexts for the adapters' plans, and what is in a plan."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.harnesses.base import LaunchContext, LaunchPlan

KEY = "sk-local-test-1234"
SESSION = "/opt/agent/ses sion"


def launch_context(task_env: Mapping[str, str], **changes: object) -> LaunchContext:
    """Return an activation like any other, with ``changes``."""
    return LaunchContext.model_validate(
        {
            "prefix": "/opt/agent/prefix",
            "session_dir": SESSION,
            "workdir": "/task/work",
            "base_url": "http://127.0.0.1:8080/rollout/r1/v1",
            "api_key": KEY,
            "model": "scripted",
            "prompt": "Do it.",
            "deadline_s": 90.0,
            "task_env": task_env,
            "platform": "linux-x64-gnu",
            "rollout_id": "r1",
            **changes,
        }
    )


def content(plan: LaunchPlan, suffix: str) -> bytes:
    """Return the one planned file whose path ends so."""
    (found,) = [file.data for file in plan.files if file.path.endswith(suffix)]
    return found
