"""What a run needs of a cluster; Dask's is in ``dask``, tests give their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sandbox.conformance.job import CellJob


@dataclass(frozen=True, kw_only=True)
class Member:
    """A worker as the scheduler knows it.

    ``slots`` is how many cells it takes at a time, 0 when it declares none; ``beat`` changes with
    every sign of life.
    """

    name: str
    slots: int
    beat: float


class Cluster(Protocol):
    """Workers by address. Every call has a deadline of its own."""

    async def members(self) -> Mapping[str, Member]:
        """Return the workers that the scheduler has now.

        Raises:
            ClusterLost: it is gone.
        """

    async def admit(self, worker: str, name: str) -> None:
        """Make a worker ready for the run, or find that it must not work on it.

        Raises:
            SandboxError: why not.
        """

    async def run(self, worker: str, job: CellJob, *, number: int) -> bytes:
        """Do a job at a worker and return the packed cell folder; cancelling it forgets it.

        Raises:
            SandboxError: the worker could not do it.
        """

    async def cancel(self) -> None:
        """Ask all workers to end the cells that they run."""

    async def finish(self) -> None:
        """Have all workers leave nothing of the run on their engines."""
