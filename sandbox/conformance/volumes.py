"""Runtimes as volumes of an engine that does not see this machine's files.

There is one volume for each bundle that a run uses, with the labels of the process that made it,
so that a sweep removes what a killed run left. It is filled by a sandbox that lives for that alone:
the bundle's tar is put in, and the installer verifies and unpacks it there as it does in a cell.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from sandbox.engine.client import Engine
from sandbox.engine.limits import VolumeMount
from sandbox.engine.owner import PROJECT, Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.engine.sweep import create_volume, remove_volume
from sandbox.errors import SandboxError
from sandbox.runtimes.install import install
from sandbox.runtimes.reports import Bundle

TREE = "runtime"
"""The folder of a volume that is the unpacked bundle."""
_FILLED_AT = "/var/lib/sandbox-runtime"


@dataclass
class RuntimeVolumes:
    """The volumes of one run; a context manager that leaves none. Threads may share it.

    Attributes:
        engine: where they are.
        run_id: whose they are.
    """

    engine: Engine
    run_id: str
    _made: list[str] = field(default_factory=list)
    _filled: dict[str, str] = field(default_factory=dict)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        errors = []
        for name in self._made:
            try:
                remove_volume(self.engine, name)
            except SandboxError as error:
                errors.append(error)
        self._made.clear()
        self._filled.clear()
        if errors and kind is None:
            raise errors[0]

    def ensure(self, bundle: Bundle, image: str) -> str:
        """Return the volume that holds ``bundle``, filling it in a sandbox of ``image`` if need be.

        Concurrent callers share one filling; what could not be filled is tried by the next.

        Raises:
            IntegrityError: what arrived is not the bundle.
            InstallError: the image cannot unpack it, or not run it.
            Unsupported: the image has no sh.
            EngineFailure: the engine refused or failed.
        """
        with self._locks.setdefault(bundle.sha256, threading.Lock()):
            if bundle.sha256 not in self._filled:
                self._filled[bundle.sha256] = self._fill(bundle, image)
            return self._filled[bundle.sha256]

    def _fill(self, bundle: Bundle, image: str) -> str:
        name = f"{PROJECT}-runtime-{bundle.sha256[:16]}-{secrets.token_hex(8)}"
        owner = Ownership.current(run_id=self.run_id, cell_id="runtimes")
        mount = VolumeMount(volume=name, target=_FILLED_AT, writable=True)
        self._made.append(name)
        try:
            create_volume(self.engine, name, owner)
            with Sandbox(self.engine, image, owner=owner, mounts=[mount], user="0:0") as box:
                install(box, bundle, f"{_FILLED_AT}/{TREE}")
        except BaseException:
            with suppress(SandboxError):  # the first error is the one to tell
                remove_volume(self.engine, name)
                self._made.remove(name)
            raise
        return name
