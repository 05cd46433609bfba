"""Runs the command line as its users do: as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
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
