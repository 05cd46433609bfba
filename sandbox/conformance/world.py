"""What all cells of a run share: engine, images, runtimes, adapters, and where results go."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.agents.contract import Interface
from sandbox.agents.openapi import AgentCard
from sandbox.conformance.volumes import RuntimeVolumes
from sandbox.conformance.ways import Way
from sandbox.engine.client import Engine
from sandbox.engine.images import LoadedImage
from sandbox.engine.link import Wanted
from sandbox.evidence.cell import Refusal, ServerChoice
from sandbox.evidence.records import EgressSeen, Settings
from sandbox.harnesses.base import Capabilities, Harness
from sandbox.progress import Progress
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeLibrary


@dataclass(frozen=True, kw_only=True)
class RemoteAgent:
    """A server of the agent contract that somebody else runs.

    ``name`` stands for the harness in cell ids; ``card`` is what its OpenAPI document says of it;
    ``capabilities`` None: it declares nothing.
    """

    url: str
    name: str
    interface: Interface
    capabilities: Capabilities | None = None
    prefixed: bool = False
    card: AgentCard | None = None

    @property
    def tested(self) -> ServerChoice:
        """What a run's configuration says of it."""
        return ServerChoice(url=self.url, name=self.name, interface=self.interface)


@dataclass(frozen=True, kw_only=True)
class World:
    """Inputs of every cell; nothing here changes while cells run.

    ``remote`` works on all cells where there is one, else the harness's own adapter does.
    ``folder`` is the run's folder. ``retries`` is how often a cell is tried again whose engine
    failed; an outcome never is. ``isolation`` and ``egress`` are passed to the model link.
    ``settings`` tells whether the adapters keep their harnesses quiet. ``way`` is how
    runtimes get into sandboxes; ``volumes`` are what they are mounted from where the engine does
    not see this machine's files (``run_plan`` makes them). ``conditions`` are what sandboxes are
    made harder by (``conditions.CONDITIONS``). ``cancel`` is set when the run is to end early.
    ``earlier`` are attempts at the cells that were lost before this one.
    """

    engine: Engine
    images: Mapping[str, LoadedImage]
    harnesses: Mapping[str, Harness]
    library: RuntimeLibrary | RuntimeCollection
    run_id: str
    folder: Path
    progress: Progress
    remote: RemoteAgent | None = None
    isolation: Wanted = "auto"
    egress: EgressSeen = "names"
    settings: Settings = "ours"
    way: Way = "copy"
    volumes: RuntimeVolumes | None = None
    conditions: tuple[str, ...] = ()
    retries: int = 1
    earlier: tuple[Refusal, ...] = ()
    cancel: threading.Event = field(default_factory=threading.Event)
