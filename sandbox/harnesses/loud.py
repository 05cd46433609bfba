"""A harness as its vendor ships it: our adapter without the settings that keep it quiet.

Only for measuring what those settings do (``sandbox egress``): a run of it proves nothing else.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from sandbox.evidence.observations import Observations
from sandbox.harnesses import toml
from sandbox.harnesses.base import Capabilities, Harness, LaunchContext, LaunchPlan, NativeContext

# Variables that switch something off, or lead it to where nothing listens.
_VARIABLES = (
    "*DISABLE_*",
    "*TELEMETRY*",
    "*_OFFLINE",
    "*_SKIP_VERSION_CHECK",
    "*_MODELS_URL",
    "*_NO_DAEMON",
    "KILO_API_URL",
    "NPM_CONFIG_REGISTRY",
)
# Keys of configuration files that do.
_KEYS = frozenset(
    {
        "analytics", "autoupdate", "cacheWarming", "check_for_update_on_startup", "enableAnalytics",
        "enableAutoUpdate", "enableInstallTelemetry", "feedback", "privacy", "share", "telemetry",
        "update", "updates",
    }
)  # fmt: skip


class Loud:
    """The adapter; see the module."""

    def __init__(self, quiet: Harness) -> None:
        self._quiet = quiet

    @property
    def name(self) -> str:
        """The harness's name."""
        return self._quiet.name

    @property
    def capabilities(self) -> Capabilities:
        """What the harness can do."""
        return self._quiet.capabilities

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return the launch without the quieting settings."""
        plan = self._quiet.plan(ctx)
        env = {
            name: loud_text(value)
            for name, value in plan.env.items()
            if name in ctx.task_env or not _quiets(name)
        }
        files = tuple(
            file.model_copy(update={"data": loud_file(file.path, file.data)}) for file in plan.files
        )
        return plan.model_copy(update={"env": env, "files": files})

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the native evidence says."""
        return self._quiet.parse(native, context)


def loud_file(path: str, data: bytes) -> bytes:
    """Take the quieting keys out of a JSON or TOML file; any other file stays as it is."""
    if path.endswith(".json"):
        return loud_text(data.decode()).encode()
    if path.endswith(".toml"):
        told = tomllib.loads(data.decode())
        loud = _without(told)
        assert isinstance(loud, dict)
        return data if loud == told else toml.dumps(loud).encode()
    return data


def loud_text(text: str) -> str:
    """Take the quieting keys out of a JSON object; any other text stays as it is."""
    if not text.startswith("{"):
        return text
    try:
        told = json.loads(text)
    except ValueError:
        return text
    loud = _without(told)
    return text if loud == told else json.dumps(loud)


def _quiets(variable: str) -> bool:
    return any(fnmatchcase(variable, pattern) for pattern in _VARIABLES)


def _without(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without(inner) for key, inner in value.items() if key not in _KEYS}
    return value
