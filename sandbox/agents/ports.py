"""What the agents room needs from a sandbox, so that tests can hand in a fake one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Output(Protocol):
    """One captured stream."""

    @property
    def text(self) -> str:
        """The kept bytes as text."""


class Finished(Protocol):
    """A command that ended: its status, or that the engine ended it."""

    @property
    def exit_code(self) -> int | None:
        """None when the engine stopped it."""

    @property
    def stdout(self) -> Output:
        """What it wrote."""

    @property
    def stderr(self) -> Output:
        """What it complained about."""

    @property
    def timed_out(self) -> bool:
        """Whether the host's deadline ended it."""


class SupervisedPlace(Protocol):
    """A running sandbox, as the supervisor's host side sees it."""

    def exec(self, argv: Sequence[str], *, cwd: str, deadline_s: float) -> Finished:
        """Run a command as the task's user."""

    def put_bytes(self, files: Mapping[str, bytes], *, mode: int) -> None:
        """Write files (absolute path to content), owned by the task's user."""

    def read(self, path: str) -> bytes:
        """Read a small file; raises NotFound."""


class AgentPlace(SupervisedPlace, Protocol):
    """A running sandbox, as an agent session sees it."""

    @property
    def id(self) -> str:
        """The engine's id of the sandbox."""

    def get(self, path: str, dest: Path) -> None:
        """Copy a file or tree to the host; raises NotFound."""
