"""The witness: looks at the sandbox from outside the harness, and believes no word of it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sandbox.engine.counters import without_route
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import EngineFailure, NotFound, SandboxError
from sandbox.evidence.cell import NetworkCounters, VerifierResult, WitnessRecord
from sandbox.evidence.exchanges import ScriptReport, ToolExpectation, ToolWitness
from sandbox.evidence.records import Survivor
from sandbox.model.script import Script
from sandbox.model.server import ModelServer

_LOOK_DEADLINE_S = 30.0
_SENT = 9
"""The column of sent packets in /proc/net/dev."""
_LOOK = r"""
for device in /sys/class/net/*; do [ ! -e "$device" ] || printf '%s\n' "${device##*/}"; done
printf '\0'
[ -n "$2" ] && { [ -e "$2" ] || [ -L "$2" ]; } && printf present || printf gone
printf '\0'
cd -- "$1" && find . ! -type d
printf '\0'
printf '%s' "$HOME"
printf '\0'
cat /proc/net/dev
printf '\0'
cat /proc/net/snmp /proc/net/snmp6 2>/dev/null
:
"""
_Seen = TypeVar("_Seen")


class Witness:
    """Watches one cell: tools by what they leave, processes, files, the network, the model.

    Args:
        sandbox: the running sandbox.
        script: what the model says, and what each of its tool calls must leave.
        workdir: the task's workdir.
        home: the task's HOME, for names that begin with ``~/``.
        home_note: names the file that the command with this marker writes its HOME to.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        script: Script,
        *,
        workdir: str,
        home: str,
        home_note: Callable[[str], str],
    ) -> None:
        self._sandbox = sandbox
        self._script = script
        self._workdir = workdir
        self._home = home
        self._home_note = home_note
        self._errors: list[str] = []

    def file_text(self, name: str) -> str | None:
        """Return the text of a file below the workdir or HOME; None when it is not there."""
        base = self._home if name.startswith("~/") else self._workdir
        try:
            data = self._sandbox.read(posixpath.join(base, name.removeprefix("~/")))
        except NotFound:
            return None
        return data.decode(errors="replace")

    def grade(self, expected: Mapping[str, str]) -> VerifierResult:
        """Verify the task: 1.0 when each named file holds its text, else 0.0, with what differs."""
        wrong = [name for name, text in expected.items() if self.file_text(name) != text]
        if wrong:
            return VerifierResult(reward=0.0, detail=f"not as wanted: {', '.join(wrong)}")
        return VerifierResult(reward=1.0, detail=f"{len(expected)} file(s) as wanted")

    def observe(
        self,
        server: ModelServer | None,
        *,
        session_dir: str | None,
        verifier: VerifierResult | None,
    ) -> WitnessRecord:
        """Look at everything once, after the agent session was closed.

        What cannot be seen stays None, with the reason in ``errors``.
        """
        look = self._try("the sandbox", lambda: self._look(session_dir))
        survivors = self._try("its processes", self._survivors)
        asked = {} if server is None else server.tool_requests()
        return WitnessRecord(
            tools=self._try("the tools", lambda: self._tools(asked)) or (),
            script=_report(server),
            exchange_tally=None if server is None else server.tally(),
            survivors=survivors,
            session_dir_gone=None if look is None or session_dir is None else look[1] == "gone",
            workdir_files=None if look is None else _lines(look[2]),
            network_interfaces=None if look is None else _lines(look[0]),
            task_home=None if look is None else look[3],
            verifier=verifier,
            resources=self._try("its resources", self._sandbox.resources),
            zombies=self._try("the dead", self._zombies),
            network=None if look is None else network_counters(look[4], look[5]),
            errors=tuple(self._errors),
        )

    def _look(self, session_dir: str | None) -> Sequence[str]:
        ended = self._sandbox.exec(
            ["sh", "-c", _LOOK, "sh", self._workdir, session_dir or ""],
            deadline_s=_LOOK_DEADLINE_S,
        )
        parts = ended.stdout.text.split("\0")
        if ended.exit_code != 0 or len(parts) != 6:
            raise EngineFailure(f"looking around ended with {ended.exit_code}: {ended.stderr.text}")
        return parts

    def _survivors(self) -> tuple[Survivor, ...]:
        return tuple(
            Survivor(pid=process.pid, command=" ".join(process.argv))
            for process in self._sandbox.processes()
        )

    def _zombies(self) -> tuple[Survivor, ...] | None:
        seen = self._sandbox.census()
        if seen is None:
            return None
        return tuple(Survivor(pid=one.pid, command=" ".join(one.argv)) for one in seen.zombies)

    def _tools(self, asked: Mapping[str, str]) -> tuple[ToolWitness, ...]:
        return tuple(self._tool(expected, asked) for expected in self._script.expectations())

    def _tool(self, expected: ToolExpectation, asked: Mapping[str, str]) -> ToolWitness:
        found = self.file_text(expected.marker) if expected.marker else None
        return ToolWitness(
            expected=expected,
            requested=expected.tool_call_id in asked,
            tool_name=asked.get(expected.tool_call_id),
            marker_found=found is not None and (not expected.runs or found == expected.marker_text),
            home_seen=self.file_text(self._home_note(expected.marker)) if expected.runs else None,
        )

    def _try(self, what: str, look: Callable[[], _Seen]) -> _Seen | None:
        try:
            return look()
        except SandboxError as error:
            self._errors.append(f"cannot see {what}: {error.message}")
            return None


def network_counters(devices: str, counts: str) -> NetworkCounters:
    """Read /proc/net/dev, and /proc/net/snmp with /proc/net/snmp6 (proc(5))."""
    sent = {}
    for line in devices.splitlines():
        name, colon, numbers = line.partition(":")
        if colon and len(numbers.split()) > _SENT:
            sent[name.strip()] = int(numbers.split()[_SENT])
    return NetworkCounters(sent=sent, without_route=without_route(counts))


def _report(server: ModelServer | None) -> ScriptReport | None:
    return None if server is None else server.report()


def _lines(text: str) -> tuple[str, ...]:
    return tuple(sorted(line.removeprefix("./") for line in text.splitlines() if line))
