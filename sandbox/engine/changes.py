"""What changed in a sandbox's file system since its start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from sandbox.engine.client import Engine
from sandbox.engine.layer import Unreadable, layer_changes
from sandbox.evidence.records import FileChange

KINDS: dict[int, Literal["modified", "added", "deleted"]] = {
    0: "modified",
    1: "added",
    2: "deleted",
}


def container_changes(
    engine: Engine, container_id: str, *, described: Mapping[str, Any] | None = None
) -> tuple[FileChange, ...]:
    """List what changed in a container's layer: from the layer where we may read it.

    ``described`` is the engine's description of the container, when it is known already.

    Raises what the SDK raises.
    """
    info, api = engine.info, engine.sdk.api
    if info.can_enter_namespaces and info.storage_driver == "overlay2":
        layers = _layers(described or api.inspect_container(container_id))
        if layers is not None:
            try:
                return layer_changes(*layers)
            except Unreadable:
                pass  # the engine knows its layers better
    return parse_changes(api.diff(container_id))


def _layers(found: Mapping[str, Any]) -> tuple[Path, list[Path]] | None:
    """Read the folders of a container's layers out of its inspection; None: it names none."""
    data = (found.get("GraphDriver") or {}).get("Data") or {}
    upper, lower = data.get("UpperDir"), data.get("LowerDir")
    if not upper or not lower:
        return None
    return Path(upper), [Path(one) for one in str(lower).split(":")]


def parse_changes(said: Iterable[Mapping[str, object]] | None) -> tuple[FileChange, ...]:
    """Read the engine's answer to "changes" (``Kind`` 0, 1, 2; null for none), by path.

    Folders count as modified with their content.
    """
    changes = [
        FileChange(path=str(change["Path"]), change=KINDS[int(str(change["Kind"]))])
        for change in said or ()
    ]
    return tuple(sorted(changes, key=lambda change: change.path))
