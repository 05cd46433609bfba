"""From a session and an activation to a launch: context, files, and the way to stop it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from sandbox.agents.contract import ActivateRequest, ContractError, UnprocessableError
from sandbox.agents.ports import Place
from sandbox.agents.setup import Prepared
from sandbox.agents.supervisor import Supervisor
from sandbox.agents.watching import watching
from sandbox.engine.archive import PutFile
from sandbox.errors import SandboxError
from sandbox.harnesses.base import LaunchContext, LaunchPlan


def launch_context(ready: Prepared, request: ActivateRequest, *, rollout_id: str) -> LaunchContext:
    """Tell the adapter what it may know of the activation.

    Raises:
        UnprocessableError: no harness can be launched with that: a blank prompt, a bad URL.
    """
    try:
        return LaunchContext(
            prefix=ready.prefix,
            session_dir=ready.harness_folder,
            workdir=ready.workdir,
            base_url=request.endpoint.base_url,
            api_key=request.endpoint.api_key,
            model=request.endpoint.model,
            prompt=request.input,
            deadline_s=request.deadline_s,
            task_env=ready.task_env,
            platform=ready.platform,
            rollout_id=rollout_id,
        )
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnprocessableError(f"the activation cannot work: {where}: {first['msg']}") from error


def write_plan(place: Place, ready: Prepared, plan: LaunchPlan) -> None:
    """Write the planned files.

    Raises:
        ContractError: the adapter plans files outside the session's folder.
    """
    base = f"{ready.folder}/"
    outside = [file.path for file in plan.files if not file.path.startswith(base)]
    if outside:
        raise ContractError(
            f"the adapter plans files outside the session folder {ready.folder}: "
            f"{', '.join(outside)}",
            cure="plan files below session_dir only",
        )
    files = [
        PutFile(path=file.path.removeprefix(base), data=file.data, mode=file.mode)
        for file in plan.files
    ]
    if files:
        place.put(files, ready.folder)


@contextmanager
def stopping(supervisor: Supervisor, cancel: threading.Event) -> Iterator[None]:
    """Ask for a stop when ``cancel`` is set, until it is heard or the block ends.

    The host's own deadline for the supervisor covers an ask that cannot be made.
    """

    def ask() -> bool:
        try:
            supervisor.request_stop()
        except SandboxError:
            return False
        return True

    with watching(cancel, ask, name="agent-stop"):
        yield
