"""The contract's errors on the wire: an exception becomes a status and a body, and back again.

::

    {"error": {"type": "conflict", "during": "run", "message": "...", "cure": "...",
               "reason": "...", "details": ["..."]}}

``type`` is a name of ``ERRORS``; a client raises the same class that the server caught. From a
server that sends other bodies, the status alone tells.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationError

from sandbox.agents.contract import (
    ConflictError,
    ContractError,
    InvalidRequestError,
    NoRouteError,
    UnprocessableError,
)
from sandbox.agents.supervisor import SupervisionError
from sandbox.errors import (
    CacheUnusable,
    ContainerGone,
    CouldNotFindOut,
    EngineFailure,
    FetchError,
    InstallError,
    IntegrityError,
    NotFound,
    PrerequisiteMissing,
    SandboxError,
    Unsupported,
    UsageError,
)
from sandbox.evidence.records import Record

During = Literal["setup", "run", "close"]
"""Which of an agent's three duties failed; ``/run`` is a run."""

# The first class that fits an exception names it, so special classes come before their bases.
ERRORS: dict[str, tuple[type[SandboxError], int]] = {
    "conflict": (ConflictError, 409),
    "unprocessable": (UnprocessableError, 422),
    "invalid_request": (InvalidRequestError, 422),
    "no_route": (NoRouteError, 404),
    "contract_error": (ContractError, 400),
    "unsupported": (Unsupported, 422),
    "usage_error": (UsageError, 500),
    "cache_unusable": (CacheUnusable, 503),
    "prerequisite_missing": (PrerequisiteMissing, 503),
    "container_gone": (ContainerGone, 503),
    "not_found": (NotFound, 503),
    "engine_failure": (EngineFailure, 503),
    "integrity_error": (IntegrityError, 503),
    "install_error": (InstallError, 503),
    "fetch_error": (FetchError, 503),
    "supervision_error": (SupervisionError, 503),
    "could_not_find_out": (CouldNotFindOut, 503),
}
_BY_STATUS: dict[int, type[SandboxError]] = {
    400: ContractError,
    404: NoRouteError,
    405: NoRouteError,
    409: ConflictError,
    422: UnprocessableError,
}
_FAULT = "agent_fault"
_QUOTED = 500


class WireError(Record):
    """What went wrong; ``during`` is None for a request that belongs to none of the duties."""

    type: str
    message: str
    during: During | None = None
    cure: str | None = None
    reason: str | None = None
    details: tuple[str, ...] = ()


class ErrorBody(Record):
    """The body of every answer that is not a success."""

    error: WireError


class AgentFault(SandboxError):
    """The agent broke in a way that it has no name for; trying again cannot be counted on."""


def error_answer(error: Exception, during: During | None) -> tuple[int, ErrorBody]:
    """Turn what a handler raised into status and body."""
    for name, (kind, status) in ERRORS.items():
        if isinstance(error, kind):
            return status, ErrorBody(
                error=WireError(
                    type=name,
                    during=during,
                    message=error.message,
                    cure=error.cure,
                    reason=error.reason if isinstance(error, UnprocessableError) else None,
                    details=error.details if isinstance(error, InvalidRequestError) else (),
                )
            )
    said = error.message if isinstance(error, SandboxError) else f"{type(error).__name__}: {error}"
    return 500, ErrorBody(error=WireError(type=_FAULT, during=during, message=said))


def error_from(status: int, body: bytes, *, asked: str) -> SandboxError:
    """Turn an answer that is not a success back into the error that it stands for.

    Args:
        status: the HTTP status.
        body: the answer's body.
        asked: what was asked of whom, for messages about bodies that are not the contract's.
    """
    try:
        told = ErrorBody.model_validate_json(body, extra="ignore").error
    except ValidationError:
        return _by_status(status, body, asked)
    if told.type not in ERRORS:
        return AgentFault(told.message, cure=told.cure)
    kind = ERRORS[told.type][0]
    if kind is UnprocessableError:
        return UnprocessableError(told.message, reason=told.reason, cure=told.cure)
    if kind is InvalidRequestError:
        return InvalidRequestError(told.message, details=told.details, cure=told.cure)
    return kind(told.message, cure=told.cure)


def _by_status(status: int, body: bytes, asked: str) -> SandboxError:
    said = body[:_QUOTED].decode(errors="replace").strip() or "an empty body"
    message = f"{asked} was answered {status}: {said}"
    kind = _BY_STATUS.get(status)
    if kind is not None:
        return kind(message)
    if status in {502, 503, 504}:
        return CouldNotFindOut(message)
    return AgentFault(message, cure="see the agent server's own log")


def invalid(error: ValidationError, what: str) -> InvalidRequestError:
    """Say each fault of a body in a line of its own."""
    details = tuple(
        f"{'.'.join(str(part) for part in one['loc']) or 'the body'}: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False)
    )
    return InvalidRequestError(f"not a {what}: {'; '.join(details)}", details=details)
