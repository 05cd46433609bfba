"""What a run can make its sandboxes harder by, as fleets do: options of a run, not images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox.engine.limits import DEFAULT_LIMITS, Limits
from sandbox.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition: what it is, and the limits that it changes."""

    text: str
    limits: dict[str, Any] = field(default_factory=dict)


CONDITIONS = {
    "read-only-root": Condition(
        text="nothing but /tmp, /dev/shm and the workdir (a volume) can be written",
        limits={"read_only_root": True},
    ),
    "noexec-tmp": Condition(text="no program in /tmp can be run", limits={"tmp": "noexec"}),
    "read-only-tmp": Condition(text="nobody can write in /tmp", limits={"tmp": "read-only"}),
    "tiny-tmp": Condition(text="16 MiB of /tmp", limits={"tmp_mib": 16}),
    "tiny-shm": Condition(text="1 MiB of shared memory", limits={"shm_mib": 1}),
    "few-pids": Condition(text="16 processes and threads", limits={"pids": 16}),
    "little-memory": Condition(text="64 MiB of memory", limits={"memory_mib": 64, "tmp_mib": 32}),
}


def limits_under(names: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Limits:
    """Return a sandbox's limits under the named conditions; the later one counts.

    Raises:
        UsageError: there is no such condition.
    """
    for name in names:
        if name not in CONDITIONS:
            raise UsageError(
                f"there is no condition {name!r}", cure=f"choose of {', '.join(CONDITIONS)}"
            )
        limits = replace(limits, **CONDITIONS[name].limits)
    return limits
