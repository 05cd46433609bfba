"""What is tried in each phase of a real cell is in its egress log: by name, port, count and phase.

The planted harness looks a name up, begins TLS and HTTP, and dials a bare address twice, in its
installation, before the first model request, between two of them, and after the last.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from sandbox.conformance.cell import run_cell
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.prepare import prepare_images
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.egress import PHASES, cell_egress, way
from sandbox.evidence.folder import CellFiles, cell_folder, read_cell
from sandbox.evidence.judge import judge
from sandbox.evidence.records import EgressSeen
from sandbox.evidence.results import CellResult
from sandbox.progress import PlainProgress
from sandbox.runtimes.library import RuntimeLibrary
from tests.conformance.fake_harness import ENTRY, RUN, FakeHarness, FakeLibrary
from tests.hello import client_hello
from tests.probes import SHELL, dial, octal

pytestmark = pytest.mark.docker
IMAGES = {"alpine-3.23": "alpine", "debian-12": "debian"}
both_images = pytest.mark.parametrize("image", sorted(IMAGES))
HTTP = "GET / HTTP/1.1\\r\\nHost: http-{}.test\\r\\n\\r\\n"
ASK_BY_BASH = """\
ask() { # NUMBER
    place="${URL#http://}" size="$(wc -c <"ask-$1.json")"
    exec 4<>"/dev/tcp/$(printf %s "${place%%/*}" | tr : /)"
    printf '%s\\r\\n' "POST /${place#*/}/chat/completions HTTP/1.1" "host: ${place%%/*}" \\
        'content-type: application/json' 'x-session-id: fakesession' 'connection: close' \\
        "content-length: $size" '' >&4
    cat "ask-$1.json" >&4
    cat <&4 >"$1.reply"
    exec 4>&-
}
"""
TRY = '"$PREFIX/bin/try"'


def try_script(kind: str) -> str:
    """A program that tries everything in the phase that its argument names."""
    lines = [f"#!/usr/bin/env {SHELL[kind]}", 'case "$1" in']
    for phase in PHASES:
        hello = octal(client_hello(f"tls-{phase}.test"))
        lines += [
            f"{phase})",
            f"getent hosts dns-{phase}.test",
            dial(kind, f"tls-{phase}.test", 443, hello),
            dial(kind, f"http-{phase}.test", 80, HTTP.format(phase)),
            dial(kind, "192.0.2.7", 9000),
            dial(kind, "192.0.2.7", 9000),
            ";;",
        ]
    return "\n".join([*lines, "esac", ":", ""])


def run_script(kind: str) -> str:
    """The fake harness, which tries before its first request, after a reply, and at its end."""
    loop = "for number in $STEPS; do\n"
    asked = '    [ -e "tool-$number.sh" ] || break\n'
    first = f'    [ "$number" = 0 ] && {TRY} run >/dev/null\n'
    script = RUN.replace(loop, f"{TRY} start >/dev/null\n{loop}", 1)
    script = script.replace(asked, asked + first, 1) + f"{TRY} exit >/dev/null\n"
    if kind == "debian":
        begin, end = script.index("ask() {"), script.index('cd "$SESSION_DIR"')
        script = script[:begin] + ASK_BY_BASH + script[end:]
    return script


def ran(
    engine: Engine, folder: Path, image: str, egress: EgressSeen
) -> tuple[CellFiles, CellResult]:
    kind = IMAGES[image]
    quiet = PlainProgress(quiet=True)
    images = prepare_images(engine, [image], quiet)
    tries = '[ "${1-}" = --version ] && "${0%/*}/try" install >/dev/null\n'
    entry = ENTRY.replace("#!/bin/sh\n", f"#!/bin/sh\n{tries}").replace(
        "exec sh", f"exec {SHELL[kind]}"
    )
    library = FakeLibrary(
        folder, images[image].platform, entry=entry, programs={"try": try_script(kind)}
    )
    world = World(
        engine=engine,
        images=images,
        harnesses={"fake": FakeHarness(SCENARIOS["tool_success"], run=run_script(kind))},
        library=cast("RuntimeLibrary", library),
        run_id=f"egress-{uuid.uuid4().hex[:8]}",
        folder=folder,
        progress=quiet,
        egress=egress,
    )
    spec = CellSpec(harness="fake", image=image, scenario="tool_success")
    run_cell(spec, world)
    cell = cell_folder(folder, spec.cell_id)
    judged = judge(cell, baseline=Baseline(), today=dt.date(2026, 1, 1)).cells[0]
    return read_cell(cell), judged


def told(files: CellFiles) -> Counter[tuple[str, int | None, str, str | None]]:
    """Everything but the second record type of look-ups: host, port, way and phase, how often."""
    found: Counter[tuple[str, int | None, str, str | None]] = Counter()
    for one in files.egress or ():
        if one.kind != "dns" or one.record_type == "A":
            found[one.name, one.port, way(one), one.phase] += one.count
    return found


def looked_up(*prefixes: str) -> Counter[tuple[str, int | None, str, str | None]]:
    return Counter(
        {(f"{one}-{phase}.test", None, "DNS", phase): 1 for phase in PHASES for one in prefixes}
    )


@both_images
def test_connections_are_told_by_phase(engine: Engine, tmp_path: Path, image: str) -> None:
    files, result = ran(engine, tmp_path, image, "connections")
    expected = looked_up("dns", "tls", "http")
    for phase in PHASES:
        expected[f"tls-{phase}.test", 443, "TLS", phase] = 1
        expected[f"http-{phase}.test", 80, "HTTP", phase] = 1
        expected["192.0.2.7", 9000, "TCP", phase] = 2
    assert told(files) == expected
    assert (files.cell.egress_seen, files.cell.settings) == ("connections", "ours")
    table = cell_egress(files).tried or ()
    bare = next(one for one in table if one.name == "192.0.2.7")
    assert (bare.port, bare.counts) == (9000, dict.fromkeys(PHASES, 2))
    assert {v.check for v in result.non_passes} == {"egress_quiet"}


@both_images
def test_names_and_bare_addresses_are_told_by_phase(
    engine: Engine, tmp_path: Path, image: str
) -> None:
    files, result = ran(engine, tmp_path, image, "names")
    expected = looked_up("dns", "tls", "http")
    for phase in PHASES:
        expected["", None, "no route", phase] = 2
    assert told(files) == expected
    assert files.cell.egress_seen == "names"
    network = files.witness.network if files.witness else None
    assert network is not None
    assert network.without_route == 2 * len(PHASES)
    assert {v.check for v in result.non_passes} == {"egress_quiet"}
