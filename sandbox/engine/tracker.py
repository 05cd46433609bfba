"""Which processes belong to a command, so that all of them can be ended, and no others."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox.engine import cgroup
from sandbox.engine.launching import Newcomers, Turn
from sandbox.engine.owner import start_ticks
from sandbox.errors import ContainerGone, EngineFailure

POLL_S = 0.002
ASK_EVERY = 8
ASK_SELDOM = 50


@dataclass(frozen=True, kw_only=True)
class ExecState:
    """What the engine says of an exec; ``pid`` is the host's, 0 before and without a start."""

    running: bool
    exit_code: int | None
    pid: int

    @property
    def decided(self) -> bool:
        """Tell whether it runs, or will never run again."""
        return self.pid > 0 or (not self.running and self.exit_code is not None)


def await_launch(
    ask: Callable[[], ExecState],
    give_up: float,
    *,
    arrived: Callable[[], bool] = lambda: False,
    every: int = ASK_EVERY,
) -> None:
    """Wait until the engine has launched a command, or will not launch it.

    Args:
        ask: the engine's answer about the command.
        give_up: when to wait no longer, monotonic.
        arrived: a cheap sign, looked at each ``POLL_S``, that it is time to ask.
        every: after so many looks the engine is asked without a sign.

    Raises:
        EngineFailure: nothing was decided by then.
    """
    for turn in itertools.count(1):
        if (arrived() or turn % every == 0) and ask().decided:
            return
        if time.monotonic() > give_up:
            raise EngineFailure("the engine neither starts a command nor says why")
        time.sleep(POLL_S)


class Track(Protocol):
    """One command, from before its launch until after its end."""

    env: Mapping[str, str]

    def prepare(self, until: float) -> bool:
        """Get ready for the launch; False when monotonic time ``until`` passes before."""

    def claim(self, ask: Callable[[], ExecState], give_up: float) -> None:
        """Follow the launch that was just asked for until it is decided.

        Raises:
            EngineFailure: it is not by monotonic time ``give_up``.
        """

    def may_live(self) -> bool:
        """Tell whether a process of the command may still run; False only when none surely does."""

    def kill(self) -> bool:
        """End the command's whole process tree; False when that cannot be made sure."""

    def release(self) -> None:
        """Let go; the command has ended, processes it left behind live on."""


class Tracker(Protocol):
    """Makes the tracks of one sandbox's commands."""

    def track(self, user: str | None = None) -> Track:
        """Give a track for the next command, which will run as ``user``."""


class CgroupTracker:
    """Tracks commands by a control group each, below the container's own.

    The engine starts a command in the container's group. Everything that appears there during
    a launch and is neither old nor in another command's group belongs to the command and is
    moved into its group, where its later descendants are born, whatever they do to their
    session, parent, environment or signals. Launches in one sandbox follow one another, since
    two at once could not be told apart; commands run side by side.
    """

    def __init__(self, hierarchy: cgroup.Hierarchy, root: Path) -> None:
        self._hierarchy = hierarchy
        self._root = root
        self._launching = Turn(root)
        self._name = f"exec-{secrets.token_hex(4)}"  # others may track in the same container
        self._numbers = itertools.count(1)
        self._used: list[Path] = []
        self._used_lock = threading.Lock()

    def track(self, user: str | None = None) -> CgroupTrack:  # noqa: ARG002 - same for all users
        """Give a track for the next command."""
        place = self._root / f"{self._name}-{next(self._numbers)}"
        return CgroupTrack(self._hierarchy, self._root, place, self._launching, self._retire)

    def _retire(self, place: Path) -> None:
        """Remove an ended command's group, and those whose last processes have gone since.

        A group with processes stays, so that no later command claims them.
        """
        with self._used_lock:
            self._used = [old for old in [*self._used, place] if not cgroup.remove_group(old)]


class CgroupTrack:
    """One command's control group."""

    env: Mapping[str, str] = {}

    def __init__(
        self,
        hierarchy: cgroup.Hierarchy,
        root: Path,
        place: Path,
        launching: Turn,
        retire: Callable[[Path], None],
    ) -> None:
        self._hierarchy = hierarchy
        self._root = root
        self._place = place
        self._launching = launching
        self._holds = False
        self._retire = retire
        self._newcomers = Newcomers(self._loose, lambda pid: cgroup.move(pid, place))

    def prepare(self, until: float) -> bool:
        """Wait for the sandbox's other launches, make the group and note what is there."""
        try:
            self._holds = self._launching.take(until)
            if not self._holds:
                return False
            self._place.mkdir()
        except FileNotFoundError as error:
            raise ContainerGone(f"the container's control group is gone: {error}") from error
        except OSError as error:
            raise EngineFailure(f"cannot make a control group: {error}") from error
        self._newcomers.begin()
        return True

    def claim(
        self,
        ask: Callable[[], ExecState],
        give_up: float,
        *,
        is_it: Callable[[int], bool] | None = None,
    ) -> None:
        """Move what the launch brings into the group, until the engine has launched it.

        ``is_it`` tells by a host pid whether that is the command, and no longer the runtime that
        is to become it: the engine is asked seldom before.
        """

        def arrived() -> bool:
            came = self._newcomers.take()
            return came if is_it is None else any(map(is_it, self.members()))

        await_launch(
            ask, give_up, arrived=arrived, every=ASK_EVERY if is_it is None else ASK_SELDOM
        )
        self._newcomers.take_all()
        self._let_launch()

    def members(self) -> list[int]:
        """List the host pids of what runs of the command."""
        return cgroup.pids_in(self._place)

    def may_live(self) -> bool:
        """Tell whether the group has members."""
        return bool(self.members())

    def kill(self) -> bool:
        """Kill the group's members until it is empty."""
        return cgroup.kill_group(self._hierarchy, self._place)

    def release(self) -> None:
        """Give the group up."""
        self._let_launch()
        self._retire(self._place)

    def _loose(self) -> set[tuple[int, int | None]]:
        return {(pid, start_ticks(pid)) for pid in cgroup.pids_in(self._root)}

    def _let_launch(self) -> None:
        if self._holds:
            self._holds = False
            self._launching.give_back()


class SandboxTracker:
    """Tracks nothing: the only way to end a command surely is to end its sandbox."""

    def track(self, user: str | None = None) -> SandboxTrack:  # noqa: ARG002 - same for all users
        """Give a track for the next command."""
        return SandboxTrack()


class SandboxTrack:
    """A command that only its sandbox's end can end."""

    env: Mapping[str, str] = {}

    def prepare(self, until: float) -> bool:
        """Need nothing."""
        return time.monotonic() < until

    def claim(self, ask: Callable[[], ExecState], give_up: float) -> None:
        """Follow nothing."""

    def may_live(self) -> bool:
        """Say that nobody can tell."""
        return True

    def kill(self) -> bool:
        """Say that this is not possible here."""
        return False

    def release(self) -> None:
        """Hold nothing."""
