"""What a supervised agent holds of one session, and what a runner beside it may keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandbox.agents.contract import SeedRequest
from sandbox.agents.outcome import Outcome
from sandbox.agents.ports import OwnedPlace, Place
from sandbox.agents.setup import Prepared
from sandbox.agents.supervisor import Supervisor
from sandbox.evidence.observations import Observations
from sandbox.evidence.records import CleanupReceipt, InstallReceipt
from sandbox.harnesses.base import LaunchPlan


@dataclass(kw_only=True)
class Session:
    """Everything that one agent session has, from the first step of its setup to its close."""

    request: SeedRequest
    place: Place
    owned: OwnedPlace | None
    sandbox_id: str | None = None
    folder: str | None = None
    prepared: Prepared | None = None
    supervisor: Supervisor | None = None
    plan: LaunchPlan | None = None
    receipt: CleanupReceipt | None = None
    outcome: Outcome | None = None
    observations: Observations | None = None
    error: str | None = None
    released: bool = False

    def evidence(self, native: Path) -> SessionEvidence:
        """Return what may be kept of it; ``native`` is the host folder of its native evidence."""
        ready = self.prepared
        return SessionEvidence(
            sandbox_id=self.sandbox_id,
            folder=self.folder,
            workdir=None if ready is None else ready.workdir,
            task_home=None if ready is None else ready.task_home,
            install=None if ready is None else ready.install,
            receipt=self.receipt,
            outcome=self.outcome,
            native=native,
        )


@dataclass(frozen=True, kw_only=True)
class SessionEvidence:
    """What an in-process runner may keep of a session; None: not known (yet)."""

    sandbox_id: str | None
    folder: str | None
    workdir: str | None
    task_home: str | None
    install: InstallReceipt | None
    receipt: CleanupReceipt | None
    outcome: Outcome | None
    native: Path
