"""Run by a pinned Python: compiles the sources that a list names, alike on every machine.

Its own program, with nothing but the standard library: ``python bytecode_script.py LIST``, where
LIST is a JSON file of ``[name, source, target]``. What a compiler writes depends a little on what
its process compiled before (strings that are interned by then are marked so), hence each source is
compiled in a fork of its own. A source that is no Python for this version is left out.
"""

from __future__ import annotations

import gc
import json
import os
import py_compile
import sys
from pathlib import Path

_UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
_BROKEN = 70


def main(listed: str) -> int:
    """Compile everything; print the tag that file names carry, or fail as a whole."""
    gc.disable()
    running: set[int] = set()
    failed = False
    for name, source, target in json.loads(Path(listed).read_text("utf-8")):
        if len(running) >= (os.cpu_count() or 1):
            failed |= _ended(running)
        child = os.fork()
        if child == 0:
            os._exit(_compiled(name, source, target))
        running.add(child)
    while running:
        failed |= _ended(running)
    print(sys.implementation.cache_tag)
    return int(failed)


def _compiled(name: str, source: str, target: str) -> int:
    try:
        py_compile.compile(source, target, name, doraise=True, invalidation_mode=_UNCHECKED)
    except py_compile.PyCompileError as error:
        if isinstance(error.exc_value, SyntaxError | ValueError):
            return 0
        print(f"{name}: {error.exc_value!r}", file=sys.stderr, flush=True)
        return _BROKEN
    except OSError as error:
        print(f"{name}: {error!r}", file=sys.stderr, flush=True)
        return _BROKEN
    return 0


def _ended(running: set[int]) -> bool:
    pid, status = os.wait()
    running.discard(pid)
    return status != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
