"""Record types that rooms hand to each other and that a cell folder holds: the sandbox's side.

Conversation and observations are in ``observations``, the model server's side in ``exchanges``.
Names of keys and values follow NeMo Gym's evidence vocabulary, so that its tools read our rows.
Times are seconds since the epoch (UTC) as floats, durations say their unit in their name, and a
fact nobody could observe is ``None`` or a ``Gap``, never a guess.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of all records: frozen, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Survivor(Record):
    """A process alive when it should not be; ``pid`` as seen inside the sandbox."""

    pid: int
    command: str


class CleanupReceipt(Record):
    """The supervisor's last word (``receipt.json``); see ``sandbox/agents/supervisor.sh``.

    ``launched`` is False when a stop won the race before the harness started. ``return_code`` is
    the harness's wait status (128 + n for signal n), None when there is none. ``timed_out``: the
    supervisor's own deadline expired. ``stopped``: somebody asked for the stop. ``ending_s``: from
    the deadline, or from when the stop was seen, until the last process was gone; None of an end by
    itself. ``duration_s``: of an end by itself the command's own time, else from the supervisor's
    start, with which the deadline begins, until the last process was gone.
    """

    cleanup_confirmed: bool
    launched: bool
    return_code: int | None
    timed_out: bool
    stopped: bool
    error: str | None
    survivors: tuple[Survivor, ...]
    hostname: str
    pid: int
    duration_s: float | None
    ending_s: float | None = None


class VersionCheck(Record):
    """Where and when an installed program was run and said its version.

    It holds for these bytes in this image, checked by this installer: ``installer_sha256`` is over
    its script, the arguments and the output that was compared with.
    """

    bundle_sha256: str
    image_id: str
    installer_sha256: str
    version_output: str
    checked_at: float
    sandbox: str


class InstallReceipt(Record):
    """The installer's last word (``install.json``).

    ``way``: unpacked in the sandbox, or a link to a tree that it sees read-only.
    ``version_checked`` says whether the program ran in this sandbox ("now"), or in one of the same
    image before it: then ``version_check`` says in which. A copy's program always runs.
    """

    harness: str
    version: str
    platform: str
    bundle_sha256: str
    prefix: str
    version_output: str
    already_installed: bool
    way: Literal["copy", "mount"] = "copy"
    version_checked: Literal["now", "earlier"] = "now"
    version_check: VersionCheck | None = None
    duration_s: float | None = None


class FileChange(Record):
    """One entry of the container's file-system diff."""

    path: str
    change: Literal["added", "modified", "deleted"]


EgressPhase = Literal["install", "start", "run", "exit"]
EgressSeen = Literal["names", "connections"]
"""What an egress log can hold: look-ups, with a count of what found no route; or connections too,
since every name has an address there, and every address answers."""
Settings = Literal["ours", "defaults"]
"""Whether an adapter keeps its harness quiet."""


class EgressEvent(Record):
    """What the harness or a tool tried to reach; no packet of it left the sandbox.

    ``dns``: ``name`` was looked up, for a ``record_type``. ``tcp``, ``udp``, ``icmp``: a connection
    or a datagram to ``port``. Its ``name`` is what the connection said, or else whose address it
    was, and ``named_by`` tells which: the SNI of a TLS ClientHello, the Host of an HTTP request, or
    a look-up before it. Without any of them ``name`` is the address. ``address`` is None when the
    name had been looked up. ``protocol`` is what a TCP connection turned out to carry.

    ``unrouted``: found no route, as what goes to bare addresses does; which is not known.
    ``malformed``: a message to the resolver that is no DNS query; ``name`` quotes its first octets
    in hexadecimal. ``left_out``: the log was full; ``name`` says how many events are not in it.

    ``count`` events of one ``phase`` that differ in time only are one line: ``at`` is the time of
    the first, ``last_at`` of the last. Early versions have a line for each, without a phase.
    """

    at: float
    kind: Literal["dns", "tcp", "udp", "icmp", "unrouted", "malformed", "left_out"] = "dns"
    name: str
    record_type: str = ""
    port: int | None = None
    protocol: Literal["tls", "http"] | None = None
    named_by: Literal["sni", "host", "dns"] | None = None
    address: str | None = None
    count: int = Field(default=1, ge=1)
    last_at: float | None = None
    phase: EgressPhase | None = None


class ResourceUse(Record):
    """Figures of the sandbox's cgroup; ``source`` is ``cgroup-v1`` or ``cgroup-v2``."""

    cpu_time_s: float | None
    peak_memory_mib: float | None
    oom_kills: int | None
    source: str
