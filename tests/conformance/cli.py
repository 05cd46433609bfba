"""Runs the command line as its users do: as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

ARGV = (sys.executable, "-m", "sandbox")
DEADLINE_S = 600


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def sandbox(
    *words: str, env: Mapping[str, str] | None = None, prefix: tuple[str, ...] = ()
) -> Ended:
    ended = subprocess.run(
        [*prefix, *ARGV, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", **(env or {})},
        timeout=DEADLINE_S,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*ARGV, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@dataclass(frozen=True)
class Served:
    """A ``sandbox serve`` process, and where it listens."""

    process: subprocess.Popen[str]
    url: str

    def end(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def serving(*words: str, env: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Serve while the block runs; it ends well, or the test fails."""
    with subprocess.Popen(
        [*ARGV, "serve", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    ) as process:
        try:
            assert process.stdout is not None
            served = Served(process, process.stdout.readline().strip())
            yield served
            assert served.end() == 0
        finally:
            process.kill()
