"""Figures of a cell's sandbox at the end of each phase, taken from outside of it."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    CloseResponse,
    SeedRequest,
    SeedResponse,
)
from sandbox.agents.episode import AgentClient
from sandbox.agents.response import AgentResponse
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import SandboxError
from sandbox.evidence.cell import PhaseUse

_MIB = 1 << 20


def phase_use(sandbox: Sandbox, phase: str) -> PhaseUse | None:
    """Measure a sandbox; None where the host cannot see into it, or it is gone."""
    try:
        seen = sandbox.census()
        if seen is None:
            return None
        used = sandbox.resources()
    except SandboxError:
        return None
    return PhaseUse(
        phase=phase,
        cpu_time_s=used.cpu_time_s,
        peak_memory_mib=used.peak_memory_mib,
        disk_mib=None if seen.disk is None else round(seen.disk.bytes / _MIB, 3),
        inodes=None if seen.disk is None else seen.disk.inodes,
        processes=len(seen.processes),
        zombies=len(seen.zombies),
    )


class Metered:
    """An agent client that has the sandbox measured after each of its steps.

    Args:
        agent: who is asked.
        measure: is told the phase that has just ended.
    """

    def __init__(self, agent: AgentClient, measure: Callable[[str], None]) -> None:
        self._agent = agent
        self._measure = measure

    def seed(self, request: SeedRequest) -> SeedResponse:
        """Set a session up."""
        try:
            return self._agent.seed(request)
        finally:
            self._measure("seed")

    def activate(self, request: ActivateRequest) -> AgentResponse:
        """Run its one turn."""
        try:
            return self._agent.activate(request)
        finally:
            self._measure("activate")

    def close(self, request: CloseRequest) -> CloseResponse:
        """End it."""
        try:
            return self._agent.close(request)
        finally:
            self._measure("close")
