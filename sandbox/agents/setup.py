"""Setting a session up in a sandbox: refuse what cannot work, make the folder, install.

Order matters: everything that can be refused is refused before anything is fetched, and nothing is
written in the sandbox before it is known where.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import cast, get_args

from sandbox.agents.contract import ConflictError, SeedRequest, ToolAccess, UnprocessableError
from sandbox.agents.look import Look, look_at
from sandbox.agents.overlap import choose_root
from sandbox.agents.ports import LockedNeeds, Place, Runtimes
from sandbox.engine.facts import ImageFacts
from sandbox.errors import CouldNotFindOut, InstallError, Unsupported
from sandbox.evidence.records import InstallReceipt, Record
from sandbox.harnesses.base import Harness, Platform
from sandbox.runtimes.reports import Bundle

ROOTS = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - each is checked, and the folder is private
PREFIX = "sandbox-"
_MAKE = """
umask 077 && mkdir -- "$1" && mkdir -- "$1/run" "$1/harness"
"""
_REMOVE = """
rm -rf -- "$1" 2>/dev/null || { chmod -R u+rwx -- "$1"; rm -rf -- "$1"; }
[ ! -e "$1" ]
"""


class Prepared(Record):
    """A session folder that is ready for a launch."""

    folder: str
    workdir: str
    task_env: dict[str, str]
    task_home: str
    platform: Platform
    install: InstallReceipt

    @property
    def prefix(self) -> str:
        """Where the runtime is."""
        return f"{self.folder}/runtime"

    @property
    def run_folder(self) -> str:
        """What the supervisor has."""
        return f"{self.folder}/run"

    @property
    def harness_folder(self) -> str:
        """What the harness has."""
        return f"{self.folder}/harness"


class Setup:
    """The steps of one session's setup.

    Args:
        harness: the adapter.
        runtimes: where its bundle comes from.
        cancel: set when the session is closed meanwhile.
        made: is told the folder as soon as it exists, so that a failure leaves nothing behind.
    """

    def __init__(
        self,
        *,
        harness: Harness,
        runtimes: Runtimes,
        cancel: threading.Event,
        made: Callable[[str], None],
        roots: Sequence[str] = ROOTS,
    ) -> None:
        self._harness = harness
        self._runtimes = runtimes
        self._cancel = cancel
        self._made = made
        self._roots = roots

    def prepare(self, request: SeedRequest, place: Place) -> Prepared:
        """Do all steps.

        Raises:
            UnprocessableError: this harness cannot work in this sandbox, with reason and cure.
            ConflictError: the session was closed meanwhile.
            SandboxError: what broke.
        """
        refuse_tools(request.tool_accesses, self._harness.name)
        facts = place.facts()
        platform = refuse_image(facts, self._harness)
        refuse_libraries(facts, self._harness, platform, self._runtimes)
        self._go_on(request)
        workdir = facts.workdir
        if request.sandbox_access is not None:
            workdir = request.sandbox_access.workdir
        look = look_at(place, [workdir, facts.home, *self._roots])
        find_root(look, need_kib=0)
        self._go_on(request)
        bundle = self._bundle(platform)
        self._go_on(request)
        room = self._runtimes.room(bundle)
        root = find_root(look, need_kib=room // 1024 + 1)  # and what a session takes besides
        folder = make_folder(place, root, self._made)
        self._go_on(request)
        return Prepared(
            folder=folder,
            workdir=workdir,
            task_env={**facts.env, "PATH": facts.path, "HOME": facts.home},
            task_home=facts.home,
            platform=platform,
            install=self._install(place, bundle, f"{folder}/runtime"),
        )

    def _bundle(self, platform: Platform) -> Bundle:
        with _unprocessable():
            return self._runtimes.bundle(self._harness.name, platform)

    def _install(self, place: Place, bundle: Bundle, prefix: str) -> InstallReceipt:
        receipt = self._runtimes.install(place, bundle, prefix)
        if receipt.version != bundle.version or receipt.version_output != bundle.version_output:
            raise InstallError(
                f"{bundle.harness} in {place.name} says {receipt.version_output!r}, "
                f"the pin says {bundle.version_output!r} ({bundle.version})"
            )
        return receipt

    def _go_on(self, request: SeedRequest) -> None:
        if self._cancel.is_set():
            raise ConflictError(
                f"agent session {request.agent_session_id} was closed during its setup"
            )


@contextmanager
def _unprocessable() -> Iterator[None]:
    """Turn what cannot work into the contract's answer to it."""
    try:
        yield
    except Unsupported as error:
        raise UnprocessableError(error.message, cure=error.cure) from error


def refuse_tools(accesses: Sequence[ToolAccess], harness: str) -> None:
    """Refuse tools that must be there: a supervised harness has its own only."""
    required = [access.name for access in accesses if access.required]
    if required:
        raise UnprocessableError(
            f"{harness} cannot be given the tools {', '.join(required)}",
            cure="mark them as not required, or use an agent that takes tools",
        )


def refuse_image(facts: ImageFacts, harness: Harness) -> Platform:
    """Return the image's platform, or refuse the image."""
    if facts.platform not in get_args(Platform):
        raise UnprocessableError(
            f"no platform fits the image: libc {facts.libc}, architecture {facts.architecture}",
            cure=f"use an image of one of {', '.join(get_args(Platform))}",
        )
    platform = cast("Platform", facts.platform)
    missing = [tool for tool in ("env", "setsid", "sleep", "tr", "sed") if tool not in facts.tools]
    if harness.capabilities.on(platform).needs_bash and "bash" not in facts.tools:
        missing.append("bash")
    if missing:
        raise UnprocessableError(
            f"{harness.name} cannot run here: the image has no {', '.join(missing)}",
            cure=f"add {', '.join(missing)} to the image",
        )
    return platform


def refuse_libraries(
    facts: ImageFacts, harness: Harness, platform: Platform, runtimes: LockedNeeds
) -> None:
    """Refuse an image that lacks what the lock says the runtime's files ask for."""
    with _unprocessable():
        found = runtimes.refusals(harness.name, platform, facts)
    if found:
        raise UnprocessableError(
            f"{harness.name} cannot run here: {'; '.join(one.reason for one in found)}",
            cure="; ".join(dict.fromkeys(one.cure for one in found)),
        )


def find_root(look: Look, *, need_kib: int) -> str:
    """Return the folder for private files, out of a look at workdir, HOME and the candidates."""
    workdir, home, *candidates = look.folders
    root = choose_root(
        candidates, workdir=workdir, home=home, mounts=look.mounts, need_kib=need_kib
    )
    return str(root.resolved)


def make_folder(place: Place, root: str, made: Callable[[str], None]) -> str:
    """Make a private folder below ``root`` that nobody could have guessed."""
    folder = str(PurePosixPath(root) / f"{PREFIX}{secrets.token_hex(8)}")
    made(folder)
    ended = place.exec(["sh", "-c", _MAKE, "sh", folder], deadline_s=30, cwd="/")
    if ended.exit_code != 0:
        raise CouldNotFindOut(
            f"cannot make the session folder {folder} in {place.name}: "
            f"{ended.stderr.text.strip()[-500:]}"
        )
    return folder


def remove_folder(place: Place, folder: str) -> None:
    """Remove a session folder, whatever modes the harness left in it.

    Raises:
        CouldNotFindOut: something of it is still there.
    """
    ended = place.exec(["sh", "-c", _REMOVE, "sh", folder], deadline_s=120, cwd="/")
    if ended.exit_code != 0:
        raise CouldNotFindOut(
            f"cannot remove the session folder {folder} of {place.name}: "
            f"{ended.stderr.text.strip()[-500:]}",
            cure="close again, or remove the sandbox",
        )
