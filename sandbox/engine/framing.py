"""What is said to a kept shell and what it answers; channel.sh tells the other half.

A request is one call of its function ``run`` with quoted words. The answer comes on the command's
own streams, between lines that carry the request's id: 128 random bits that the command is not
told, and could use for nothing but to misreport itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from sandbox.engine.output import Sink
from sandbox.errors import EngineFailure

MAX_STATUS_DIGITS = 3
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHELLS_OWN = re.compile(  # what some sh sets, or does not hand on as it was
    r"_|CDPATH|DIRSTACK|ENV|EUID|FUNCNAME|GROUPS|HIST.*|IFS|LINENO|OLDPWD|OPT.*|POSIXLY_CORRECT"
    r"|PPID|PS[0-9]|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|UID|BASH.*|sandbox_channel_.*"
)


def carries(names: Mapping[str, object]) -> bool:
    """Tell whether every sh hands variables with these names on unchanged."""
    return all(_NAME.fullmatch(name) and not _SHELLS_OWN.fullmatch(name) for name in names)


def request(
    ident: str, argv: Sequence[str], *, folder: str, env: Mapping[str, str] | None = None
) -> bytes:
    """Give the text that makes a kept shell run a command."""
    variables = [f"{name}={value}" for name, value in (env or {}).items()]
    words = ["run", ident, folder, *variables, "--", *argv]
    line = " ".join(shlex.quote(word) for word in words)
    return line.encode("utf-8", "surrogateescape") + b"\n"


class _End:
    """Passes one stream on until the line "ID STATUS"; what follows is passed on too."""

    def __init__(self, ident: str, sink: Sink) -> None:
        self._mark = f"{ident} ".encode()
        self._sink = sink
        self._held = bytearray()
        self.status: int | None = None

    def feed(self, data: bytes | memoryview) -> None:
        if self.status is not None:
            self._sink(memoryview(data))
            return
        self._held += data
        at = self._held.find(self._mark)
        if at < 0:
            self._pass_on(max(0, len(self._held) - len(self._mark) + 1))
            return
        self._pass_on(at)
        line, newline, rest = self._held[len(self._mark) :].partition(b"\n")
        if len(line) > MAX_STATUS_DIGITS or (newline and not line.isdigit()):
            raise EngineFailure(f"the kept shell's answer is broken: {bytes(line[:40])!r}")
        if newline:
            self.status = int(line)
            self._held.clear()
            if rest:
                self._sink(memoryview(bytes(rest)))

    def flush(self) -> None:
        """Pass on what was held back, since nothing follows."""
        self._pass_on(len(self._held))

    def _pass_on(self, size: int) -> None:
        if size:
            self._sink(memoryview(bytes(self._held[:size])))
            del self._held[:size]


class Reply:
    """The answer to one request, taken from the two streams in any chunks.

    Attributes:
        began: the command runs or ran, or could have; before this nothing was passed on.
        refused: it did not run, and will not.
    """

    def __init__(self, ident: str, *, stdout: Sink, stderr: Sink) -> None:
        self._answers = {f"{ident} yes\n".encode(): True, f"{ident} no\n".encode(): False}
        self._opening = bytearray()
        self._out, self._err = _End(ident, stdout), _End(ident, stderr)
        self.began = False
        self.refused = False

    def out(self, data: memoryview) -> None:
        """Take the next bytes of the shell's standard output.

        Raises:
            EngineFailure: they are no answer.
        """
        if self.began or self.refused:
            self._out.feed(data)
            return
        self._opening += data
        for answer, yes in self._answers.items():
            if self._opening.startswith(answer):
                self.began, self.refused = yes, not yes
                self._out.feed(bytes(self._opening[len(answer) :]))
                return
        if not any(answer.startswith(bytes(self._opening)) for answer in self._answers):
            raise EngineFailure(f"the kept shell says {bytes(self._opening[:80])!r}")

    def err(self, data: memoryview) -> None:
        """Take the next bytes of the shell's standard error."""
        self._err.feed(data)

    def complete(self) -> bool:
        """Tell whether the command has ended and both its streams were taken."""
        return None not in (self._out.status, self._err.status)

    @property
    def status(self) -> int | None:
        """Give what the command ended with."""
        return self._out.status

    def flush(self) -> None:
        """Pass on what was held back, since the command was ended."""
        self._out.flush()
        self._err.flush()
