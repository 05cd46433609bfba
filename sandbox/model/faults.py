"""Faults: what a scripted model server does wrong on purpose, and on which asks.

An ask is a request to a model route that could be read as one; asks are numbered from 1 in the
order they arrive. Helper calls (without tools) and token counts have no number: only ``every``
reaches them. A fault decides how a reply travels or what its end says, never which step it is: the
step follows from the request's own history, so a retry after a fault gets the step that was due.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from sandbox.evidence.records import Record


class _Fault(Record):
    """On which asks a fault works: the numbers of ``at``, or every ask from ``since`` on."""

    at: tuple[PositiveInt, ...] | Literal["every"]
    since: PositiveInt = 1

    def hits(self, ask: int | None) -> bool:
        """Whether the fault works on ask number ``ask`` (None: a helper call)."""
        if self.at == "every":
            return ask is None or ask >= self.since
        return ask in self.at


class StatusFault(_Fault):
    """The reply is an HTTP error with the dialect's error body and the given headers."""

    kind: Literal["status"] = "status"
    status: Annotated[int, Field(ge=400, le=599)]
    message: str = "scripted fault"
    code: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)


class StallFault(_Fault):
    """The reply stops before its headers or in the stream.

    ``seconds`` None: until the client leaves or the server stops; otherwise it goes on after that
    long. ``after`` is the number of stream events sent before (None: half of them).
    """

    kind: Literal["stall"] = "stall"
    where: Literal["headers", "stream"] = "headers"
    seconds: PositiveFloat | None = None
    after: PositiveInt | None = None


class CutFault(_Fault):
    """The connection ends before the headers or in the stream.

    ``clean``: the HTTP message is ended properly, only the dialect's own end is missing.
    """

    kind: Literal["cut"] = "cut"
    where: Literal["headers", "stream"] = "stream"
    after: PositiveInt | None = None
    clean: bool = False


class MalformedFault(_Fault):
    """One event in the stream (or the whole body) is not JSON; nothing follows it."""

    kind: Literal["malformed"] = "malformed"
    after: PositiveInt | None = None


class StreamErrorFault(_Fault):
    """The stream starts with status 200, then says in the dialect's form that it failed."""

    kind: Literal["stream_error"] = "stream_error"
    message: str = "scripted fault"
    code: str = "server_error"
    after: PositiveInt | None = None


class LengthFault(_Fault):
    """The reply stops on the output limit: half of the text, or half of the call's arguments."""

    kind: Literal["length"] = "length"


class EmptyFault(_Fault):
    """The reply ends properly with no text and no tool call."""

    kind: Literal["empty"] = "empty"


Fault = Annotated[
    StatusFault
    | StallFault
    | CutFault
    | MalformedFault
    | StreamErrorFault
    | LengthFault
    | EmptyFault,
    Field(discriminator="kind"),
]


def fault_name(fault: Fault) -> str:
    """Name of a fault as an exchange records it, such as ``status_500`` or ``cut_stream``."""
    match fault:
        case StatusFault():
            return f"status_{fault.status}"
        case StallFault() | CutFault():
            return f"{fault.kind}_{fault.where}"
        case _:
            return fault.kind
