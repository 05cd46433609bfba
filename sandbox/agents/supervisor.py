"""Host side of ``supervisor.sh``: starts it, asks it to stop, and believes only its receipt.

What is concluded when there is no receipt although the supervisor is gone: ``--recover`` kills what
is left and writes one that carries an error. Is even that impossible (the container is gone, the
disk is full), then ``SupervisionError`` says so, and whether the command was ever launched is in
``launched``: the supervisor's note of that name is made by the command's own process, so without it
nothing ran, and None means that nobody can tell any more.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files

from pydantic import ValidationError

from sandbox.agents.ports import Finished, Place
from sandbox.engine.archive import PutFile
from sandbox.errors import (
    CommandLost,
    ContainerGone,
    CouldNotFindOut,
    EngineFailure,
    NotFound,
    SandboxError,
    Unsupported,
)
from sandbox.evidence.records import CleanupReceipt

SCRIPT = files("sandbox.agents").joinpath("supervisor.sh").read_text("ascii")
TAG_NAME = "SANDBOX_SESSION"
ARGUMENT_LIMIT = 128 * 1024  # Linux: MAX_ARG_STRLEN, the terminating zero included
ARGUMENTS_LIMIT = 2 * 1024 * 1024 - 64 * 1024  # a quarter of the usual 8 MiB stack, and some room
KILL_WAIT_S = 5.0  # as in the script
MARGIN_S = 15.0  # for a busy machine, before the engine kills the supervisor itself

_VARIABLE = "SUPERVISED_"
"""How the names of variables begin that hold the command's; arguments are for all to read."""
_REFUSED = 64  # before anything was launched
_STOP = """
: >"$1/stop" || exit 1
mkdir "$1/claim" 2>/dev/null && echo prevented || echo requested
"""


class SupervisionError(CouldNotFindOut):
    """The supervisor gave no account of the command.

    Args:
        launched: whether the command was started; None when that is not known either.
    """

    def __init__(
        self, message: str, *, launched: bool | None = None, cure: str | None = None
    ) -> None:
        super().__init__(message, cure=cure)
        self.launched = launched


class StopAnswer(Enum):
    """What asking for a stop achieved."""

    PREVENTED = "prevented"
    """The stop came first: the command is never launched."""
    REQUESTED = "requested"
    """The supervisor was first: it launches nothing any more, or stops what it launched."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """What is supervised; ``env`` is complete, nothing is inherited."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str


class Supervisor:
    """One supervised command in one private folder of a sandbox.

    Args:
        place: the sandbox.
        directory: absolute path of a folder that exists, is empty, and belongs to the user that
            commands run as.
        exclusive: the sandbox is this command's alone, so that every process which was not there
            before counts as its own.
        grace_s: between TERM and KILL, in seconds.
        margin_s: how much longer than that a stop may take on a busy machine, in seconds.
        shell: the sandbox's POSIX shell.
    """

    def __init__(
        self,
        place: Place,
        directory: str,
        *,
        exclusive: bool = False,
        grace_s: float = 5.0,
        margin_s: float = MARGIN_S,
        shell: Sequence[str] = ("sh",),
    ) -> None:
        self._place = place
        self._directory = directory
        self._exclusive = exclusive
        self._grace_s = grace_s
        self._margin_s = KILL_WAIT_S + margin_s
        self._script = (*shell, f"{directory}/supervisor.sh")
        self._tag = f"{TAG_NAME}={secrets.token_hex(16)}"

    @property
    def stop_wait_s(self) -> float:
        """How long a stop may take at most, in seconds."""
        return self._grace_s + self._margin_s

    def install(self) -> None:
        """Write the script into the folder.

        Raises:
            SupervisionError: it could not be written.
            ContainerGone: the sandbox has ended.
        """
        script = PutFile(path="supervisor.sh", data=SCRIPT.encode(), mode=0o400)
        try:
            self._place.put([script], self._directory)
        except ContainerGone:
            raise
        except EngineFailure as error:
            raise SupervisionError(
                f"cannot write the supervisor: {error.message}",
                launched=False,
                cure=f"is there space left in {self._directory}?",
            ) from error

    def run(self, command: Command, *, deadline_s: float) -> CleanupReceipt:
        """Run the command until it ends or its deadline or a stop ends it.

        Raises:
            Unsupported: the command cannot be handed over as arguments.
            SupervisionError: no receipt could be had.
            EngineFailure: the engine or the container is gone.
        """
        check_command(command)
        try:
            ended = self._place.exec(
                self._argv(command, deadline_s),
                cwd="/",
                env=_variables(command),
                deadline_s=deadline_s + self.stop_wait_s,
            )
        except CommandLost:  # the command killed all that it may, the supervisor with it
            return self.settle()
        return self._last_word(ended)

    def request_stop(self) -> StopAnswer:
        """Ask for the end of the command, from any thread, at any time.

        Raises:
            SupervisionError: the request could not be written down.
        """
        asked = self._place.exec(
            ["sh", "-c", _STOP, "sh", self._directory], cwd="/", deadline_s=self._margin_s
        )
        if asked.exit_code != 0:
            raise SupervisionError(f"cannot ask for a stop: {_said(asked)}")
        return StopAnswer(asked.stdout.text.strip())

    def receipt(self) -> CleanupReceipt | None:
        """Read the receipt; None when there is none (yet).

        Raises:
            SupervisionError: it is not one, or not complete.
        """
        try:
            data = self._place.read(f"{self._directory}/receipt.json")
        except NotFound:
            return None
        return parse_receipt(data)

    def settle(self) -> CleanupReceipt:
        """Make sure that nothing of the command runs any more, and return the receipt.

        For a supervisor that ended without one, or that never ran.

        Raises:
            SupervisionError: no receipt could be had.
        """
        receipt = self.receipt()
        if receipt is not None:
            return receipt
        argv = [*self._script, "--recover", *self._common()]
        ended = self._place.exec(argv, cwd="/", deadline_s=self.stop_wait_s, apart=True)
        receipt = self.receipt()
        if receipt is None:
            raise SupervisionError(
                f"no receipt in {self._directory}: {_said(ended)}", launched=self._was_launched()
            )
        return receipt

    def _argv(self, command: Command, deadline_s: float) -> list[str]:
        return [
            *(*self._script, *self._common()),
            *("--cwd", command.cwd, "--deadline", f"{deadline_s:.2f}"),
            *("--variables", str(len(command.env)), "--", *command.argv),
        ]

    def _common(self) -> list[str]:
        common = ["--dir", self._directory, "--tag", self._tag, "--grace", f"{self._grace_s:.2f}"]
        return [*common, "--exclusive"] if self._exclusive else common

    def _last_word(self, ended: Finished) -> CleanupReceipt:
        receipt = self.receipt()
        if receipt is None and ended.exit_code == _REFUSED:
            raise SupervisionError(f"the supervisor refused: {_said(ended)}", launched=False)
        return receipt or self.settle()

    def _was_launched(self) -> bool | None:
        try:
            return bool(self._place.read(f"{self._directory}/launched").strip())
        except NotFound:
            return False
        except SandboxError:
            return None


def parse_receipt(data: bytes) -> CleanupReceipt:
    """Read a receipt strictly; bytes of command names that are no UTF-8 become U+FFFD.

    Raises:
        SupervisionError: it is not one, or not complete.
    """
    try:
        return CleanupReceipt.model_validate_json(data.decode(errors="replace"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise SupervisionError(
            f"the receipt is not readable: {where}: {first['msg']}", launched=None
        ) from error


def _variables(command: Command) -> dict[str, str]:
    """Return the variables that carry the command's own to the script."""
    pairs = enumerate(command.env.items(), start=1)
    return {f"{_VARIABLE}{number}": f"{name}={value}" for number, (name, value) in pairs}


def check_command(command: Command) -> None:
    """Refuse what a command line, or the supervisor's own environment, cannot carry.

    Raises:
        Unsupported: an argument is too long, or a name or the command would be misread.
    """
    if not command.argv:
        raise Unsupported("there is no command to supervise")
    if "=" in command.argv[0]:
        raise Unsupported(f"the command's name has a '=': {command.argv[0]}")
    for name in command.env:
        if not re.fullmatch(r"[^=\0]+", name, re.DOTALL):
            raise Unsupported(f"not a name of an environment variable: {name!r}")
        if name == TAG_NAME:
            raise Unsupported(f"{TAG_NAME} is the supervisor's own variable")
    words = [*(f"{name}={text}" for name, text in _variables(command).items()), *command.argv]
    sizes = [len(word.encode(errors="surrogateescape")) + 1 for word in words]
    for word, size in zip(words, sizes, strict=True):
        if "\0" in word:
            raise Unsupported(f"an argument holds a zero byte: {word[:40]!r}")
        if size > ARGUMENT_LIMIT:
            raise Unsupported(
                f"an argument of {size} bytes is longer than the kernel's {ARGUMENT_LIMIT}: "
                f"{word[:40]!r}...",
                cure="hand long texts over in a file",
            )
    if sum(sizes) + 8 * len(words) > ARGUMENTS_LIMIT:
        raise Unsupported(
            f"arguments and environment of {sum(sizes)} bytes are longer than {ARGUMENTS_LIMIT}",
            cure="hand long texts over in files",
        )


def _said(ended: Finished) -> str:
    words = ended.stderr.text.strip() or ended.stdout.text.strip() or "it said nothing"
    how = "was stopped at the host's deadline" if ended.timed_out else f"exit {ended.exit_code}"
    return f"{how}; {words[-500:]}"
