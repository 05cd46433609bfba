"""``--scheduler``: the cells of a run on a Dask cluster, when its extra is installed."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from importlib.util import find_spec
from urllib.parse import urlsplit

from sandbox.conformance.estimate import Estimates
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.world import World
from sandbox.errors import PrerequisiteMissing, UsageError
from sandbox.evidence.cell import RunRecord
from sandbox.harnesses.registry import Registered

_LISTENER_S = 5.0


def expect_cluster(address: str, *, agent: str | None = None, package: str = "distributed") -> None:
    """See that a cluster can be used at all, before anything is made ready for it.

    Args:
        address: the scheduler's.
        agent: the URL of the agent server to test, if one is.
        package: what the extra brings.

    Raises:
        UsageError: it is no address; or an agent server works in sandboxes of one engine.
        PrerequisiteMissing: the extra is not installed, or nothing listens at the address.
    """
    if agent is not None:
        raise UsageError(
            "--agent-url names a server beside one engine, --scheduler workers with many",
            cure="leave one of them out",
        )
    if find_spec(package) is None:
        raise PrerequisiteMissing(
            f"--scheduler needs the Python package {package!r}, which is not installed",
            cure="install the extra, here and on the workers: pip install 'sandbox[dask]'",
        )
    _expect_listener(address)


def run_remotely(
    cells: Sequence[CellSpec],
    world: World,
    record: RunRecord,
    known: Registered,
    *,
    address: str,
    costs: Estimates,
) -> None:
    """Run the cells on a scheduler's workers; see ``run_on_cluster``."""
    from sandbox.conformance.cluster.run import Scheduler, run_on_cluster  # noqa: PLC0415 - an extra

    scheduler = Scheduler(address=address)
    run_on_cluster(
        cells, world, record=record, harnesses=known, scheduler=scheduler, estimates=costs
    )


def _expect_listener(address: str) -> None:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise UsageError(
            f"{address!r} is no address of a scheduler", cure="give one as tcp://HOST:8786"
        )
    try:
        socket.create_connection((host, port), timeout=_LISTENER_S).close()
    except OSError as error:
        raise PrerequisiteMissing(
            f"no Dask scheduler can be reached at {address}: {error}",
            cure="start one with: dask scheduler; or look at the address and the network",
        ) from error
