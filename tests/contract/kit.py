"""What the kit's tests say often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sandbox.engine.command import ExecResult
from sandbox.engine.sandbox import Sandbox


def run(box: Sandbox, *argv: str, deadline_s: float = 20.0, **options: Any) -> ExecResult:
    return box.exec(argv, deadline_s=deadline_s, **options)


def sh(box: Sandbox, script: str, *arguments: str, **options: Any) -> ExecResult:
    return run(box, "sh", "-c", script, "sh", *arguments, **options)


def said(result: ExecResult) -> str:
    """Give the standard output of a command that must have succeeded."""
    assert result.exit_code == 0, (result.exit_code, result.stdout.text, result.stderr.text)
    return result.stdout.text


def cancelled(box: Sandbox, script: str, *arguments: str, at: str, **options: Any) -> ExecResult:
    """Run a script and cancel it as soon as a process has the word ``at``."""
    cancel = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(sh, box, script, *arguments, cancel=cancel, **options)
        try:
            assert until(lambda: running.done() or alive(box, at))
        finally:
            cancel.set()
        return running.result()


def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Wait for something that another process brings about."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(box: Sandbox, marker: str) -> bool:
    """Tell whether a process runs in the sandbox whose command line has the word ``marker``."""
    return any(marker in process.argv for process in box.processes())
