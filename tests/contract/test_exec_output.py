"""exec: output is bounded in memory, counted in full, and its ends are kept."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sandbox.engine.sandbox import Sandbox
from tests.contract.conftest import IMAGES
from tests.contract.kit import run, sh

pytestmark = pytest.mark.docker

MEASURE = """
import resource, sys
from sandbox.engine.client import Engine
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with Engine.connect() as engine:
    owner = Ownership.current(run_id=sys.argv[2])
    with Sandbox(engine, sys.argv[1], owner=owner) as box:
        box.exec(["true"], deadline_s=30)
        before = peak()
        result = box.exec(["dd", "if=/dev/zero", "bs=1M", "count=1024"], deadline_s=300)
        print(result.exit_code, result.stdout.total, len(result.stdout.data), peak() - before)
"""


@pytest.mark.parametrize("cap", [0, 1, 2, 9, 10, 11, 1000])
def test_head_and_tail_are_kept(box: Sandbox, cap: int) -> None:
    stream = run(box, "printf", "0123456789", cap_bytes=cap).stdout
    assert stream.total == 10
    assert stream.truncated == (cap < 10)
    if cap >= 10:
        assert (stream.head, stream.tail) == (b"0123456789", b"")
    else:
        assert len(stream.head) + len(stream.tail) == cap
        assert b"0123456789".startswith(stream.head)
        assert b"0123456789".endswith(stream.tail)


def test_each_stream_has_its_own_bound(box: Sandbox) -> None:
    script = "head -c 300000 /dev/zero; echo end; echo small >&2"
    result = sh(box, script, cap_bytes=1000)
    assert result.stdout.total == 300_004
    assert (len(result.stdout.head), len(result.stdout.tail)) == (500, 500)
    assert result.stdout.tail.endswith(b"\0end\n")
    assert (result.stderr.data, result.stderr.truncated) == (b"small\n", False)


def test_a_large_bound_keeps_everything(box: Sandbox) -> None:
    size = 5_000_000
    result = sh(box, f"head -c {size} /dev/zero; head -c {size} /dev/zero >&2", cap_bytes=size)
    assert result.stdout.data == result.stderr.data == bytes(size)


def test_text_says_how_much_is_missing(box: Sandbox) -> None:
    text = sh(box, "i=0; while [ $i -lt 99 ]; do printf 'é'; i=$((i+1)); done", cap_bytes=9)
    assert text.stdout.text == "éé\n[... 189 bytes left out ...]\néé"


@pytest.mark.parametrize("image", IMAGES[:1], indirect=True)
def test_a_gibibyte_costs_the_client_little(engine: object, image: str, owner: object) -> None:
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, image, "kit-memory"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    code, total, kept, growth_kib = map(int, measured.stdout.split())
    assert (code, total, kept) == (0, 1 << 30, 1 << 20)
    assert growth_kib < 64 * 1024
