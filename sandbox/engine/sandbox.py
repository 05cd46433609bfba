"""A sandbox: one running container of a task image, with start, exec, put, get and close."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from sandbox.engine.archive import Owner, PutFile
from sandbox.engine.census import Census, Mention
from sandbox.engine.changes import container_changes
from sandbox.engine.client import Engine
from sandbox.engine.command import Command, ExecResult
from sandbox.engine.facts import ImageFacts, parse_facts
from sandbox.engine.failure import engine_errors
from sandbox.engine.inside import Tracking
from sandbox.engine.keeper import Keeper, KeeperSpec, switch_reaper_off_unless_local
from sandbox.engine.limits import DEFAULT_LIMITS, Limits, Mounted
from sandbox.engine.owner import Ownership
from sandbox.engine.processes import ProcessInfo, of_the_task
from sandbox.engine.running import Running, is_root, variables_of
from sandbox.errors import ContainerGone, EngineFailure, Unsupported, UsageError
from sandbox.evidence.records import FileChange, ResourceUse

DEFAULT_CAP_BYTES = 1 << 20
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # the engine's


class Link(Protocol):
    """How a sandbox reaches the model server: what it adds to the container, and when."""

    def create_options(self) -> Mapping[str, Any]:
        """Give the create options of the container's network."""

    def attach(self, sandbox: Sandbox) -> None:
        """Connect the started sandbox."""


class Sandbox:
    """One container of a task image; a context manager that leaves nothing behind.

    Defaults: an init that reaps, no network, no new privileges, capabilities dropped as far as
    the image's user allows (``keeper.KeeperSpec``), limits of pids and memory, /tmp in memory
    and executable. Entrypoint, command and health check of the image are not used. Threads may
    share a sandbox. All methods but ``close`` raise ``UsageError`` before ``start``,
    ``ContainerGone`` when the container has ended (``Unsupported`` when that is because its image
    has no /bin/sh to keep it), ``EngineFailure`` when the engine fails.

    Args:
        engine: where it runs.
        image: reference or id of an image that the engine has; nothing is pulled.
        owner: whose it is; becomes labels.
        limits: what it may use.
        link: how it reaches the model server; without one it has no network at all.
        mounts: host files and folders to show read-only, and volumes.
        env: variables for all commands, beside the image's.
        user: user for all commands ("name", "uid", "uid:gid") instead of the image's.
        workdir: folder for all commands instead of the image's; made if it is missing.
        tracking: how commands are ended, see ``inside.choose``.
        channel: keep shells in the sandbox that start commands faster, see ``channel``; not
            done where the limits leave a task little room.
        bare: without the variables of the image, as if it set none.
    """

    def __init__(
        self,
        engine: Engine,
        image: str,
        *,
        owner: Ownership,
        limits: Limits = DEFAULT_LIMITS,
        link: Link | None = None,
        mounts: Sequence[Mounted] = (),
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        workdir: str | None = None,
        tracking: Tracking = "auto",
        channel: bool = True,
        bare: bool = False,
    ) -> None:
        self.name = f"{owner.project}-{secrets.token_hex(8)}"
        self.image = image
        self._engine = engine
        self._owner = owner
        self._limits = limits
        self._link = link
        self._mounts = tuple(mounts)
        self._env: dict[str, str | None] = dict(env or {})
        self._bare = bare
        self._user = user
        self._workdir = workdir
        self._tracking = tracking
        self._channel = channel and limits.leaves_room
        self._keeper: Keeper | None = None
        self._state: Running | None = None
        self._facts: ImageFacts | None = None
        self._described: Mapping[str, Any] | None = None
        self._dependents = ExitStack()
        self._life = threading.RLock()
        self._facts_lock = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        """Give the container's id."""
        return self._running.container

    @property
    def pid(self) -> int:
        """Give the host's pid of the sandbox's init; its namespaces are the sandbox's.

        Raises:
            Unsupported: the engine's processes are not on this machine.
        """
        if not self._engine.info.is_local:
            raise Unsupported(f"the processes of engine {self._engine.info.host} are elsewhere")
        return self._running.executor.expect_container()

    def start(self) -> None:
        """Create and start the container; when that fails, nothing is left behind.

        Raises:
            NotFound: the engine has no such image.
            EngineFailure: the engine refused or failed.
            UsageError: it was started before.
        """
        with self._life:
            if self._keeper is not None:
                raise UsageError(f"sandbox {self.name} was started before", cure="make a new one")
            try:
                config = self._image_config()
                folder = self._workdir or str(config.get("WorkingDir") or "/")
                self._keeper = self._make_keeper(folder)
                self._keeper.launch()
                self._state = Running.assemble(
                    self._engine,
                    self._keeper.container_id,
                    config,
                    user=self._user or "",
                    workdir=self._workdir,
                    tracking=self._tracking,
                    path=self._path(config) if self._channel else None,
                )
                self._attach()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Kill and remove the container; at once, and as often as wanted.

        Raises:
            EngineFailure: the engine did not remove it; calling again tries again.
        """
        with self._life:
            if self._state is not None:
                self._state.executor.close()
            self._state = None
            try:
                self._dependents.close()
            finally:
                if self._keeper is not None:
                    self._keeper.discard()

    def before_removal(self, remove: Callable[[], None]) -> None:
        """Call ``remove`` in ``close``, before the container goes: for what depends on it."""
        self._dependents.callback(remove)

    def exec(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes | None = None,
        cap_bytes: int = DEFAULT_CAP_BYTES,
        cancel: threading.Event | None = None,
        apart: bool = False,
    ) -> ExecResult:
        """Run a command to its end, its deadline or its cancellation.

        At the deadline (host's monotonic clock, from this call on), on cancellation and when
        this call is interrupted, all its descendants are killed, whatever they did to escape,
        and no others. After a natural end, processes it left in the background live on.

        Args:
            argv: the words of the command; no shell looks at them.
            deadline_s: how long it may take.
            cwd: absolute folder to run in; the sandbox's workdir by default.
            env: variables to add; values may hold anything but NUL.
            user: "name", "uid" or "uid:gid"; the sandbox's user by default.
            stdin: what it reads, then end of file; without it the input is empty.
            cap_bytes: how much of each stream is kept: its first and its last half of this.
            cancel: set it from another thread to end the command within about 0.1 s.
            apart: let the engine launch it, never a kept shell: for what may end other processes
                of its user, whose end would then leave nobody to tell how the command ended.

        Returns:
            How it ended. A command that fails, or that exists but cannot be run, is a value;
            its words never change what is raised.

        Raises:
            NotFound: there is no such command, folder or user.
            UsageError: see ``Command``; a word longer than 128 KiB, for one.
            ContainerGone: the container ended before or while the command ran.
            CommandLost: the kept shell that ran the command was ended. What ran of the command was
                ended too, and it is not run again.
            EngineFailure: the engine failed or went away.
        """
        command = Command(
            argv=argv,
            deadline_s=deadline_s,
            cwd=cwd,
            env=env or {},
            user=user,
            stdin=None if stdin is None else (stdin,),
            cancel=cancel,
        )
        return self._running.executor.exec(command, cap_bytes, apart=apart)

    def put(
        self, files: Sequence[PutFile] | Path, dest: str, *, owner: Owner | None = None
    ) -> None:
        """Put files into folder ``dest``, which is made with its parents if it is missing.

        Modes, symbolic links and (from the host) modification times are kept. Data is sent as
        it is read, so size costs no memory. Destinations in memory (/tmp) need ``tar`` in the
        image, but for a few small files where the host sees the sandbox (see ``copyin``).

        Args:
            files: files one by one; or a host folder, whose content is put; or a host file.
            dest: absolute path of a folder.
            owner: whose they become; the sandbox's user by default. Only root's sandbox can
                give them to others in memory.

        Raises:
            UsageError: a host file cannot be read, or ``dest`` is relative or no folder.
            EngineFailure: it cannot be written there.
            Unsupported: ``dest`` is in memory and the image has no ``tar``.
        """
        running = self._running
        running.transfer.put(files, dest, self._user_ids() if owner is None else owner)

    def get(self, path: str, dest: Path) -> tuple[str, ...]:
        """Copy a file or tree to the host, as ``dest``, which must not exist.

        Nothing is written outside of ``dest``; see ``unpack`` for what is not kept. Symbolic
        links on the way to ``path`` are followed.

        Returns:
            Names of what was left out: links out of the tree, devices, pipes.

        Raises:
            NotFound: there is nothing at ``path``.
            UsageError: ``dest`` exists, or ``path`` is relative or "/".
            CouldNotFindOut: the copy cannot be written.
            Unsupported: ``path`` is in memory and the image has no ``tar``.
        """
        return self._running.transfer.get(path, dest)

    def read(self, path: str, *, limit: int = DEFAULT_CAP_BYTES) -> bytes:
        """Read a whole file.

        Raises:
            NotFound: there is no file at ``path``.
            CouldNotFindOut: it has more than ``limit`` bytes.
        """
        return self._running.transfer.read(path, limit)

    def facts(self) -> ImageFacts:
        """Say what the image is to a command; found out at the first call, then kept."""
        running = self._running
        with self._facts_lock:
            if self._facts is None:
                text = running.executor.script("facts", user=None, cwd=None)
                self._facts = parse_facts(text, image_env=running.image_env)
            return self._facts

    def processes(self) -> tuple[ProcessInfo, ...]:
        """List what runs in the sandbox beside its init and its keeper; no zombies."""
        seen = self._running.executor.inside.observer.processes()
        if not seen:
            self._running.executor.expect_container()
        return of_the_task(seen)

    def diff(self) -> tuple[FileChange, ...]:
        """List what changed in the container's layer; not what lies in memory or on mounts."""
        try:
            with engine_errors(f"list the changes in {self.name}", missing=ContainerGone):
                return container_changes(self._engine, self.id, described=self._described)
        except EngineFailure:
            self._running.executor.expect_container()  # Podman has no layer once it has ended
            raise

    def resources(self) -> ResourceUse:
        """Say what was used since the start."""
        return self._running.executor.inside.observer.use()

    def census(self) -> Census | None:
        """Count processes, zombies and disk; None where the host cannot see into the sandbox."""
        return self._running.executor.inside.observer.census()

    def mentions(self, words: Sequence[str]) -> frozenset[Mention]:
        """Find processes with one of the words in their arguments or environment."""
        return self._running.executor.inside.observer.mentions(words)

    def inspected(self) -> str:
        """Give the engine's whole description of the container, as JSON."""
        with engine_errors(f"inspect {self.name}", missing=ContainerGone):
            self._described = self._engine.sdk.api.inspect_container(self.id)
            return json.dumps(self._described)

    @property
    def _running(self) -> Running:
        if self._state is None:
            raise UsageError(f"sandbox {self.name} is not started, or is closed")
        return self._state

    def _attach(self) -> None:
        """Connect the link; when that fails since the container has ended, say why it did."""
        if self._link is None:
            return
        try:
            self._link.attach(self)
        except EngineFailure:
            self._running.executor.expect_container_stays()
            raise

    def _image_config(self) -> Mapping[str, Any]:
        switch_reaper_off_unless_local(self._engine)
        with engine_errors(f"find image {self.image}"):
            found = self._engine.sdk.api.inspect_image(self.image)
        config: Mapping[str, Any] = found.get("Config") or {}
        if self._user is None:
            self._user = str(config.get("User") or "")
        if self._bare:
            names = [line.partition("=")[0] for line in config.get("Env") or ()]
            path = {"PATH": DEFAULT_PATH} if "PATH" in names else {}
            self._env = {**dict.fromkeys(names), **path, **self._env}
            return {**config, "Env": []}
        return config

    def _path(self, config: Mapping[str, Any]) -> str:
        return str({"PATH": DEFAULT_PATH, **variables_of(config), **self._env}["PATH"])

    def _make_keeper(self, task_folder: str) -> Keeper:
        network = {} if self._link is None else {"network": self._link.create_options()}
        spec = KeeperSpec(
            image=self.image,
            name=self.name,
            labels=self._owner.labels(),
            limits=self._limits,
            as_root=is_root(self._user or ""),
            env=self._env,
            workdir=self._workdir,
            task_folder=task_folder,
            mounts=self._mounts,
            **network,
        )
        return Keeper(self._engine, spec)

    def _user_ids(self) -> Owner:
        known = self._running.owner()
        if known is not None:
            return known
        facts = self.facts()
        return Owner(uid=facts.uid, gid=facts.gid)
