"""Remove what killed runs left on an engine, and nothing of living ones or of other projects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import docker.errors

from sandbox.engine.bridge import remove_network
from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.engine.owner import (
    PREFIX,
    PROJECT_FILTER,
    Ownership,
    boot_id,
    machine,
    owner_is_alive,
    pid_namespace,
)
from sandbox.errors import EngineFailure

_MAX_PASSES = 5
_CONTAINER_DEADLINE_S = 10.0
_VOLUME_DEADLINE_S = 2.0
_PAUSE_S = 0.05
_FILTERS = {"label": [PROJECT_FILTER]}


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One container, network or volume with our labels."""

    kind: Literal["container", "network", "volume"]
    id: str
    name: str
    run_id: str


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Something that was left where it is, and why.

    ``owner_lives`` is True when that is the reason, False when nobody here can judge its owner or
    the engine would not remove it: then a person has to look.
    """

    item: Leftover
    reason: str
    owner_lives: bool


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """What a sweep removed and what it kept."""

    removed: tuple[Leftover, ...] = ()
    kept: tuple[Kept, ...] = ()

    @property
    def unsettled(self) -> tuple[Kept, ...]:
        """What a person has to look at."""
        return tuple(kept for kept in self.kept if not kept.owner_lives)


def sweep(engine: Engine, *, include_run: str | None = None) -> SweepReport:
    """Remove containers, then networks, then volumes whose owner is proved dead.

    Several sweeps may run at once, and a killed run's last request may still be under way in the
    engine: passes are made until one finds nothing to remove.

    Args:
        engine: where to look.
        include_run: the id of a run whose things go whoever owns them.

    Raises:
        EngineFailure: the engine does not answer.
    """
    removed: list[Leftover] = []
    kept: dict[str, Kept] = {}
    for _ in range(_MAX_PASSES):
        kept.clear()
        gone = _sweep_once(engine, include_run, kept)
        removed += gone
        if not gone:
            break
    return SweepReport(removed=tuple(removed), kept=tuple(kept.values()))


def _sweep_once(engine: Engine, include_run: str | None, kept: dict[str, Kept]) -> list[Leftover]:
    gone = []
    for item, labels in _ours(engine):
        stays = _why_it_stays(engine, item, labels, include_run)
        if stays is None:
            stays = _remove(engine, item)
        if stays is None:
            gone.append(item)
        else:
            kept[f"{item.kind} {item.id}"] = stays
    return gone


def _ours(engine: Engine) -> Iterator[tuple[Leftover, dict[str, str]]]:
    """Yield what carries our project label, in the order in which it can be removed."""
    api = engine.sdk.api
    with engine_errors("list what the project has on the engine"):
        found: list[tuple[Any, Any, Any, Any]] = [
            ("container", row["Id"], row["Names"][0].lstrip("/") if row["Names"] else "", row)
            for row in api.containers(all=True, filters=_FILTERS)
        ]
        found += [("network", n["Id"], n["Name"], n) for n in api.networks(filters=_FILTERS)]
        volumes = api.volumes(filters=_FILTERS)["Volumes"] or ()
        found += [("volume", row["Name"], row["Name"], row) for row in volumes]
    for kind, ident, name, row in found:
        labels = dict(row["Labels"] or {})
        run_id = labels.get(f"{PREFIX}run_id", "")
        yield Leftover(kind=kind, id=ident, name=name, run_id=run_id), labels


def _why_it_stays(
    engine: Engine, item: Leftover, labels: dict[str, str], include_run: str | None
) -> Kept | None:
    if include_run is not None and item.run_id == include_run:
        return None
    owner = Ownership.from_labels(labels)
    if owner is None:
        reason = "its labels do not say who its owner is"
    elif owner.machine != machine():
        reason = f"its owner ran on another machine, {owner.machine}"
    elif owner.boot_id != boot_id():
        if engine.info.is_local:
            return None
        # Machines made from one disk image can share a machine id; a remote engine may serve both.
        reason = "its owner ran on another boot, or on another machine with this machine's id"
    elif owner.pid_namespace != pid_namespace():
        reason = "its owner ran in another container of this machine"
    elif owner_is_alive(labels):
        living = f"its owner, process {owner.pid}, lives"
        return Kept(item=item, reason=living, owner_lives=True)
    else:
        return None
    return Kept(item=item, reason=reason, owner_lives=False)


def _remove(engine: Engine, item: Leftover) -> Kept | None:
    """Remove ``item``; gone already, or being removed by somebody else, is as good."""
    removers: dict[str, Callable[[Engine, str], None]] = {
        "container": _remove_container,
        "network": remove_network,
        "volume": _remove_volume,
    }
    try:
        with engine_errors(f"remove {item.kind} {item.name}"):
            removers[item.kind](engine, item.id)
    except EngineFailure as error:
        if not isinstance(error.__cause__, docker.errors.APIError):
            raise
        return Kept(item=item, reason=error.message, owner_lives=False)
    return None


def _remove_container(engine: Engine, container: str) -> None:
    """Remove a container; a dead run's last request may just be starting it."""
    api = engine.sdk.api
    _insist(lambda: api.remove_container(container, force=True, v=True), _CONTAINER_DEADLINE_S)


def _remove_volume(engine: Engine, volume: str) -> None:
    """Remove a volume; a container that uses it may be half removed by somebody else."""
    _insist(lambda: engine.sdk.api.remove_volume(volume, force=True), _VOLUME_DEADLINE_S)


def create_volume(engine: Engine, name: str, owner: Ownership) -> None:
    """Make an empty named volume with the labels of its owner; raises EngineFailure."""
    with engine_errors(f"create volume {name}"):
        engine.sdk.api.create_volume(name, labels=owner.labels())


def remove_volume(engine: Engine, name: str) -> None:
    """Remove a volume that nothing uses any more; fine when it is gone; raises EngineFailure."""
    with engine_errors(f"remove volume {name}"):
        _remove_volume(engine, name)


def _insist(remove: Callable[[], None], deadline_s: float) -> None:
    """Try until the thing is gone, by whose hand ever, or is in conflict at the deadline."""
    ends = time.monotonic() + deadline_s
    while True:
        try:
            remove()
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code != 409 or time.monotonic() >= ends:
                raise
            time.sleep(_PAUSE_S)
        else:
            return
