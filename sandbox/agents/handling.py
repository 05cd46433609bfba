"""How a handler of the agents room's applications reads, answers, and runs work that blocks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

import anyio
from pydantic import BaseModel, JsonValue, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sandbox.agents.contract import ContractError, InvalidRequestError, NoRouteError
from sandbox.agents.lifecycle import STOP_WAIT_S
from sandbox.agents.wire import During, error_answer, invalid
from sandbox.errors import SandboxError

MAX_BODY = 64 << 20
Model = TypeVar("Model", bound=BaseModel)
T = TypeVar("T")
Work = Callable[[], T]
Answer = BaseModel | dict[str, JsonValue]


async def answered(
    work: Callable[[], Coroutine[Any, Any, Answer]], during: During | None
) -> Response:
    """Answer with what the work gives, or with the error that it raises."""
    try:
        return json_answer(200, await work())
    except Exception as error:  # noqa: BLE001 - told to the client in the contract's form
        status, body = error_answer(error, during)
        return json_answer(status, body.model_dump(mode="json", exclude_none=True))


def json_answer(status: int, content: BaseModel | dict[str, Any]) -> Response:
    """Make an answer in JSON."""
    text = (
        content.model_dump_json(by_alias=True)
        if isinstance(content, BaseModel)
        else json.dumps(content)
    )
    return Response(text.encode(errors="replace"), status, media_type="application/json")


async def no_route(request: Request, error: Exception) -> Response:
    """Answer for a path or a method that there is none of."""
    assert isinstance(error, HTTPException)
    status, body = error_answer(
        NoRouteError(f"{request.method} {request.url.path}: {error.detail}"), None
    )
    status = status if error.status_code == 404 else error.status_code
    headers = dict(error.headers or {})
    response = json_answer(status, body.model_dump(mode="json", exclude_none=True))
    response.headers.update(headers)
    return response


async def body_of(request: Request) -> dict[str, JsonValue]:
    """Read the JSON object that a request carries; raises InvalidRequestError."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise InvalidRequestError(f"the body is longer than {MAX_BODY} bytes")
    try:
        said = json.loads(bytes(data))
    except ValueError as error:
        raise InvalidRequestError(f"the body is no JSON: {error}") from error
    if not isinstance(said, dict):
        raise InvalidRequestError("the body is no JSON object")
    return said


def parsed(
    model: type[Model], body: dict[str, JsonValue], *, more: Literal["forbid", "ignore"] = "forbid"
) -> Model:
    """Read a body as a model; raises InvalidRequestError with all its faults.

    ``more`` says what becomes of keys that the model does not have.
    """
    try:
        return model.model_validate(body, extra=None if more == "forbid" else more)
    except ValidationError as error:
        raise invalid(error, model.__name__) from error


# --- blocking work ----------------------------------------------------------------------------


async def in_thread(work: Work[T], give_up: Callable[[], None] | None = None) -> T:
    """Run blocking work in a thread of its own; told to give up, it is waited for."""
    ended = _started(work)
    try:
        return await asyncio.shield(asyncio.wrap_future(ended))
    except asyncio.CancelledError:
        if give_up is not None:
            give_up()
        await afterwards(quietly(lambda: ended.exception(STOP_WAIT_S)))
        raise


def _started(work: Work[T]) -> concurrent.futures.Future[T]:
    ended: concurrent.futures.Future[T] = concurrent.futures.Future()
    ended.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - carried over to the waiting task
            ended.set_exception(error)
        else:
            ended.set_result(result)

    threading.Thread(target=run, name="agent-hook", daemon=True).start()
    return ended


async def afterwards(work: Work[object]) -> None:
    """Do what must still be done in a task that is cancelled, for a limited time."""
    with anyio.move_on_after(2 * STOP_WAIT_S, shield=True):
        await asyncio.wrap_future(_started(work))


def quietly(work: Work[object]) -> Work[None]:
    """Drop the errors of work in a cancelled task: nobody could be told, and a close comes."""

    def run() -> None:
        with contextlib.suppress(SandboxError, ContractError, TimeoutError):
            work()

    return run


@asynccontextmanager
async def hung_up(request: Request, react: Callable[[], None]) -> AsyncIterator[None]:
    """While the block runs, call ``react`` when the client closes its connection."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        react()

    watching = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        watching.cancel()
