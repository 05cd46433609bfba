"""What a run can make its sandboxes harder by, as fleets do: options of a run, not images."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox.engine.limits import DEFAULT_LIMITS, Limits
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import CouldNotFindOut, UsageError

YEAR_S = 365 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition: what it is, and what it changes.

    ``limits`` are the sandbox's. ``workdir`` is where below the image's workdir the task is, and
    ``link`` the symbolic link by whose name it is known there. ``bare``: nothing of the image's
    environment is left. ``ahead_s`` is how far the model's clock and the times of the task's files
    are ahead of the sandbox's own.
    """

    text: str
    limits: dict[str, Any] = field(default_factory=dict)
    workdir: str | None = None
    link: str | None = None
    bare: bool = False
    ahead_s: int = 0


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
    "odd-workdir": Condition(
        text="a workdir with spaces, quotes and letters beyond ASCII",
        workdir='it\'s a "wörk dir" $HOME 工作',
    ),
    "long-workdir": Condition(
        text="a workdir whose path has over 1000 letters", workdir="/".join(["d" * 200] * 5)
    ),
    "linked-workdir": Condition(
        text="a workdir behind a symbolic link", workdir="the real one", link="linked"
    ),
    "bare-environment": Condition(text="no variable of the image's is set", bare=True),
    "clock-ahead": Condition(
        text="a year ahead: the model's Date and the times in its replies, the task's files",
        ahead_s=YEAR_S,
    ),
    "clock-behind": Condition(text="the same a year back", ahead_s=-YEAR_S),
}
_MAKE = 'mkdir -p -- "$1" && { [ -z "$2" ] || ln -s -- "$1" "$2"; }'

# A workdir that is somebody else's keeps its time.
_SHIFT = 'w=$1; shift; touch -d "$w" . 2>/dev/null || :; [ $# = 0 ] || touch -d "$w" -- "$@"'


def limits_under(names: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Limits:
    """Return a sandbox's limits under the named conditions; the later one counts.

    Raises:
        UsageError: there is no such condition.
    """
    for condition in _chosen(names):
        limits = replace(limits, **condition.limits)
    return limits


def is_bare(names: Sequence[str]) -> bool:
    """Whether a sandbox is without the image's variables under the named conditions."""
    return any(condition.bare for condition in _chosen(names))


def ahead_of_the_sandbox(names: Sequence[str]) -> int:
    """How many seconds what the sandbox is told is ahead of its own clock; 0: it is not."""
    return next((one.ahead_s for one in _chosen(names) if one.ahead_s), 0)


def shift_times(
    sandbox: Sandbox, workdir: str, files: Sequence[str], names: Sequence[str], *, now: float
) -> None:
    """Give the task's files, and the workdir where that may be, the times of the conditions.

    Args:
        sandbox: a started one.
        workdir: an absolute path in it.
        files: paths relative to it.
        names: the conditions.
        now: seconds since the epoch.

    Raises:
        CouldNotFindOut: the image's ``touch`` does not do it.
    """
    ahead_s = ahead_of_the_sandbox(names)
    if not ahead_s:
        return
    when = f"@{int(now) + ahead_s}"
    ended = sandbox.exec(["sh", "-c", _SHIFT, "sh", when, *files], cwd=workdir, deadline_s=30)
    if ended.exit_code != 0:
        raise CouldNotFindOut(f"cannot set times in {workdir}: {ended.stderr.text[-300:]}")


def make_workdir(sandbox: Sandbox, workdir: str, names: Sequence[str]) -> str:
    """Make the workdir of the named conditions below the image's; return by which path it is known.

    Raises:
        CouldNotFindOut: it could not be made.
    """
    odd = next((one for one in _chosen(names) if one.workdir is not None), None)
    if odd is None or odd.workdir is None:
        return workdir
    made = posixpath.join(workdir, odd.workdir)
    link = posixpath.join(workdir, odd.link) if odd.link else ""
    ended = sandbox.exec(["sh", "-c", _MAKE, "sh", made, link], cwd="/", deadline_s=30)
    if ended.exit_code != 0:
        raise CouldNotFindOut(f"cannot make the workdir {made}: {ended.stderr.text[-300:]}")
    return link or made


def _chosen(names: Sequence[str]) -> Iterator[Condition]:
    for name in names:
        if name not in CONDITIONS:
            raise UsageError(
                f"there is no condition {name!r}", cure=f"choose of {', '.join(CONDITIONS)}"
            )
        yield CONDITIONS[name]
