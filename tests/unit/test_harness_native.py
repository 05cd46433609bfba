"""Native transcripts read line by line, whatever their length."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from sandbox.harnesses.native import json_lines

SIZE = 1 << 20


def test_a_long_line_is_not_there_twice_when_its_value_is_made(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(b'"' + SIZE * b"x" + b'"\n\n1\n')
    tracemalloc.start()
    try:
        found = [(number, len(str(value))) for number, value in json_lines(path)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [(1, SIZE), (3, 1)]
    assert peak < 2.5 * SIZE
