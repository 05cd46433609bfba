"""Running a package client: a deadline, no questions asked, bytes seen in the folder it fills."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.errors import FetchError, PrerequisiteMissing
from sandbox.progress import Step

_TAIL = 8000
_POLL_S = 0.1


def run_client(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    deadline_s: float,
    cwd: Path | None = None,
    watch: Path | None = None,
    step: Step | None = None,
) -> tuple[int, str, str]:
    """Run ``argv`` to its end and return its exit code, standard output and the end of its errors.

    Args:
        argv: the client and its arguments.
        env: its whole environment.
        deadline_s: after so many seconds it is killed.
        cwd: where it runs.
        watch: the folder it downloads into; its growing size is told to ``step`` in bytes.
        step: who is told.

    Raises:
        PrerequisiteMissing: there is no such program.
        FetchError: it did not end in time (retryable).
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        except OSError as error:
            raise PrerequisiteMissing(
                f"cannot start {argv[0]}: {error.strerror}", cure="install it, or put it on PATH"
            ) from error
        with process:
            try:
                _wait(process, deadline_s, watch, step)
            finally:
                process.kill()
        return process.returncode, _text(out.fileno()), _text(err.fileno())[-_TAIL:].strip()


def _wait(
    process: subprocess.Popen[bytes], deadline_s: float, watch: Path | None, step: Step | None
) -> None:
    deadline = time.monotonic() + deadline_s
    seen = 0
    while time.monotonic() < deadline:
        try:
            process.wait(_POLL_S if watch and step else deadline_s)
        except subprocess.TimeoutExpired:
            pass
        else:
            return
        if watch and step:
            now = max(seen, _folder_size(watch))
            step.advance(now - seen)
            seen = now
    raise FetchError(
        f"{Path(str(process.args[0])).name} did not end within {deadline_s:.0f} s"  # type: ignore[index]
        f" and was stopped; it had fetched {seen} bytes",
        cure="check the network and the mirror that the client is set up with",
        retryable=True,
    )


def _folder_size(folder: Path) -> int:
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118 hot loop
            except FileNotFoundError:  # the client moved it meanwhile
                continue
    return total


def _text(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as stream:
        return stream.read().decode(errors="replace")
