"""Tracking from inside the sandbox, for engines whose control groups we cannot reach.

A command carries a tag in its environment. To end it, a script finds the processes with the
tag, and those without any tag that were not there before the command (they cleared their
environment). While another command runs, the latter cannot be told apart from that one's, and
nobody guesses: the tree then counts as not ended, and the sandbox has to be.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from sandbox.engine.observer import Observer
from sandbox.engine.tracker import ExecState, await_launch

TAG = "SANDBOX_EXEC"
INIT_AND_KEEPER = 2
HELPER_TAG: Mapping[str, str] = {TAG: "helper"}


class RunScript(Protocol):
    """Runs one of our scripts in the sandbox as ``user`` and gives what it printed."""

    def __call__(self, name: str, *arguments: str, user: str | None) -> str:
        """Run script ``name``; EngineFailure when it does not end well."""


class ScanTracker:
    """Tracks commands by a tag and by what is new."""

    def __init__(self, observer: Observer, run_script: RunScript) -> None:
        self._observer = observer
        self._run_script = run_script
        self._lock = threading.Lock()
        self._active: set[ScanTrack] = set()

    def track(self, user: str | None = None) -> ScanTrack:
        """Give a track for the next command, which will run as ``user``."""
        return ScanTrack(self._observer, self._run_script, self, user)

    def enter(self, track: ScanTrack) -> None:
        """Note that ``track`` runs, beside whatever else runs."""
        with self._lock:
            self._active.add(track)
            if len(self._active) > 1:
                for other in self._active:
                    other.alone = False

    def leave(self, track: ScanTrack) -> None:
        """Note that ``track`` ended."""
        with self._lock:
            self._active.discard(track)


class ScanTrack:
    """One tagged command."""

    def __init__(
        self, observer: Observer, run_script: RunScript, tracker: ScanTracker, user: str | None
    ) -> None:
        self._observer = observer
        self._run_script = run_script
        self._tracker = tracker
        self._user = user
        self._tag = secrets.token_hex(8)
        self._known = ""
        self.alone = True
        self.env: Mapping[str, str] = {TAG: self._tag}

    def prepare(self, until: float) -> bool:
        """Note which processes are there before the command."""
        self._tracker.enter(self)
        known = self._observer.processes()
        while len(known) < INIT_AND_KEEPER and time.monotonic() < until:
            known = self._observer.processes()  # else the keeper would pass for the command's
        self._known = " ".join(process.identity for process in known)
        return time.monotonic() < until

    def claim(self, ask: Callable[[], ExecState], give_up: float) -> None:
        """Wait for the launch: the tag comes with it."""
        await_launch(ask, give_up)

    def may_live(self) -> bool:
        """Tell whether something runs that was not there before the command."""
        known = self._known.split()
        return any(
            process.identity not in known and process.state not in {"Z", "X"}
            for process in self._observer.processes()
        )

    def kill(self) -> bool:
        """Kill what is the command's; False when something is left or unclear."""
        said = self._run_script(
            "kill", self._tag, "1" if self.alone else "0", self._known, user=self._user
        )
        return not said.strip()

    def release(self) -> None:
        """Note that the command ended."""
        self._tracker.leave(self)
