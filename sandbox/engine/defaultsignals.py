"""Run a program with every signal at its default: ``python defaultsignals.py PROGRAM [ARG ...]``.

A program inherits which signals are ignored, and so does everything that it starts: what an engine
ignores, each tool in each sandbox ignores. A background command of a shell ignores INT and QUIT,
nohup ignores HUP, and posix_spawn of some C libraries leaves the two signals ignored that they keep
for themselves (32 and 33), which their own sigaction function does not let anybody change: hence
the system call. It is a script of its own, not a module to import, because it has to run in the new
process, where a fork of a process with threads may not run Python.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

# rt_sigaction(2): the generic table of the kernel, and x86_64's own (asm/unistd_64.h)
_SYSTEM_CALLS = {"x86_64": 13, "aarch64": 134, "riscv64": 134}
_SIGNALS = range(1, 65)
_DEFAULT_ACTION = bytes(32)  # struct sigaction of the kernel: all zero is SIG_DFL without flags
_MASK_BYTES = 8


def _set_defaults() -> None:
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None:
        return  # an architecture that no pinned runtime is for
    system_call = ctypes.CDLL(None).syscall
    for signal in _SIGNALS:  # KILL and STOP refuse, and are never ignored
        system_call(number, signal, _DEFAULT_ACTION, None, _MASK_BYTES)


if __name__ == "__main__":
    _set_defaults()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the caller's own arguments
