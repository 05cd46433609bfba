"""Where jobs are done: an engine with what is kept beside it, opened once in a process."""

from __future__ import annotations

import tempfile
import threading
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Self

from sandbox.conformance.cell import run_cell
from sandbox.conformance.cellpack import packed
from sandbox.conformance.configuration import pins_by_platform, scenario_digest
from sandbox.conformance.job import CellJob, refuse_other
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.secrets import host_canary
from sandbox.conformance.volumes import RuntimeVolumes
from sandbox.conformance.ways import run_volumes
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.engine.images import LoadedImage
from sandbox.engine.shipping import find_same
from sandbox.engine.sweep import sweep
from sandbox.engine.workroom import own_prefix, remove_abandoned
from sandbox.errors import NotFound
from sandbox.evidence.folder import cell_folder
from sandbox.harnesses.registry import Registered, registered
from sandbox.progress import PlainProgress
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeLibrary


class Workplace:
    """An engine, the runtimes and the adapters of one process; a context manager. Threads share it.

    Args:
        engine: a connected one; it is closed at the end.
        library: the runtimes; entered here.
        harnesses: the adapters.
        run_id: the run whose jobs are done here.
    """

    def __init__(
        self, engine: Engine, library: RuntimeCollection, harnesses: Registered, *, run_id: str
    ) -> None:
        self.engine = engine
        self.library = library
        self.harnesses = harnesses
        self.run_id = run_id
        self.cancel = threading.Event()
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._volumes: RuntimeVolumes | None = None
        self._images: dict[str, LoadedImage] = {}

    @classmethod
    def opened(cls, run_id: str) -> Self:
        """Return the workplace of this process: its engine, its packages, its cache.

        Raises:
            PrerequisiteMissing: no engine answers.
            UsageError: the pins are not valid.
        """
        known, quiet = registered(), PlainProgress(quiet=True)
        library = RuntimeCollection(
            RuntimeLibrary(progress=quiet), known.pins_files, progress=quiet
        )
        return cls(Engine.connect(), library, known, run_id=run_id)

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.enter_context(self.engine)
            sweep(self.engine)
            remove_abandoned(Path(tempfile.gettempdir()))
            entered.enter_context(self.library)
            entered.enter_context(host_canary())
            self._stack = entered.pop_all()
        return self

    def __exit__(self, *args: object) -> None:
        self._stack.close()

    @cached_property
    def pins(self) -> dict[str, str]:
        """Version and bundle by ``harness platform``, as a run's configuration has them."""
        return pins_by_platform(self.library.entries())

    def run(self, job: CellJob) -> bytes:
        """Do a job: run its cell and return the cell's folder, packed; nothing else is left.

        Raises:
            UsageError: pins or scenario are not those of the job.
            NotFound: the engine does not have the job's image.
            CacheUnusable, OSError: there is no room for the folder while it is made.
        """
        refuse_other(
            job,
            pin=self.pins.get(f"{job.spec.adapter} {job.image.platform}"),
            scenario=scenario_digest(SCENARIOS[job.spec.scenario]),
        )
        with tempfile.TemporaryDirectory(prefix=f"{own_prefix()}job-") as folder:
            run_cell(job.spec, self._world(job, Path(folder)))
            return packed(cell_folder(Path(folder), job.spec.cell_id))

    def _world(self, job: CellJob, folder: Path) -> World:
        return World(
            engine=self.engine,
            images={job.spec.image: self.image(job.image, job.image_content)},
            harnesses=self.harnesses.harnesses,
            library=self.library,
            run_id=job.run_id,
            folder=folder,
            progress=PlainProgress(quiet=True),
            isolation=job.isolation,
            way=job.way,
            volumes=self._run_volumes(job),
            conditions=job.conditions,
            retries=job.retries,
            cancel=self.cancel,
            earlier=job.earlier,
        )

    def image(self, image: LoadedImage, content: str) -> LoadedImage:
        """Return an image of the client's engine as this engine has it; asked once.

        Raises:
            NotFound: the engine does not have it.
        """
        if content not in self._images:
            found = find_same(self.engine, image, content)
            if found is None:
                raise NotFound(
                    f"the engine has no image {image.name} ({image.image_id})",
                    cure="it was there before: look at who removes images",
                )
            self._images[content] = found
        return self._images[content]

    def _run_volumes(self, job: CellJob) -> RuntimeVolumes | None:
        with self._lock:
            if self._volumes is None:
                volumes = run_volumes(self.engine, job.way, job.run_id)
                self._volumes = self._stack.enter_context(volumes)
            return self._volumes
