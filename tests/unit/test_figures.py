"""Guarantees of every run: how changes are sorted, what the host counts, what is told."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.conformance.secrets import SecretWatch, host_canary
from sandbox.conformance.witness import network_counters
from sandbox.engine.census import Mention, disk_use, mentions
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.cell import EngineRecord, NetworkCounters
from sandbox.evidence.celltexts import CellTexts
from sandbox.evidence.figures import figures_of, figures_table
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.footprint import counts, sorted_changes
from sandbox.evidence.judge import judge
from sandbox.evidence.records import FileChange
from tests.broken.goodcells import HOME, SESSION_DIR, good, write
from tests.broken.guarantee_defects import TOUCHED, touching


def changed(*paths: str, scenario: str = "tool_success") -> CellFiles:
    found = tuple(FileChange(path=path, change="added") for path in paths)
    return replace(good(scenario), footprint=found)


def test_each_change_belongs_to_somebody() -> None:
    parents = tuple(FileChange(path=p, change="modified") for p in ("/usr", "/usr/sbin", "/work"))
    files = changed("/usr/sbin/docker-init", "/work/a", f"{SESSION_DIR}/x", "/var/tmp/y", "/opt/z")
    files = replace(files, footprint=(*parents, *(files.footprint or ())))
    found = {one.path: one.owner for one in sorted_changes(files)}
    assert found == {
        "/usr/sbin/docker-init": "engine",
        "/work/a": "task",
        f"{SESSION_DIR}/x": "private",
        "/var/tmp/y": "temporary",
        "/opt/z": "unexpected",
    }
    assert counts(sorted_changes(files))["unexpected"] == 1


@pytest.mark.parametrize(("product", "owner"), [("podman", "engine"), ("docker", "unexpected")])
def test_only_podman_touches_etc_itself(product: str, owner: str) -> None:
    files = replace(good(), footprint=(FileChange(path="/etc", change="modified"),))
    engine = EngineRecord(version="1", api_version="1", product=product)
    files = replace(files, cell=files.cell.model_copy(update={"engine": engine}))
    assert [one.owner for one in sorted_changes(files)] == [owner]


def test_only_what_the_script_writes_in_home_is_the_tasks() -> None:
    files = changed(f"{HOME}/home-note.txt", f"{HOME}/.cache", scenario="home_write")
    assert [one.owner for one in sorted_changes(files)] == ["task", "unexpected"]


@pytest.mark.parametrize(("path", "change", "touches"), TOUCHED.values(), ids=list(TOUCHED))
def test_an_unexpected_change_says_what_it_touches(path: str, change: str, touches: str) -> None:
    assert sorted_changes(touching(path, change))[-1].touches == touches


def test_counters_are_read() -> None:
    devices = (
        "Inter-|   Receive |  Transmit\n face |bytes packets errs drop fifo frame compressed "
        "multicast|bytes packets errs drop fifo colls carrier compressed\n"
        "    lo:  900 9 0 0 0 0 0 0 900 9 0 0 0 0 0 0\n  eth0: 1 1 0 0 0 0 0 0 70 7 0 0 0 0 0 0\n"
    )
    counted = "Ip: OutRequests OutNoRoutes\nIp: 0 4\nIcmp: A B\nIcmp: 1 2\n"
    assert network_counters(devices, counted + "Ip6OutNoRoutes \t2\n") == NetworkCounters(
        sent={"lo": 9, "eth0": 7}, without_route=6
    )
    assert network_counters(devices, "").without_route is None


def test_words_are_found_in_arguments_and_environments(tmp_path: Path) -> None:
    for pid, line, environ in (
        (7, b"/bin/sh\0-c\0echo sk-1\0", b"A=b\0"),
        (8, b"/usr/bin/node\0", b"KEY=sk-1\0"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(line)
        (tmp_path / str(pid) / "environ").write_bytes(environ)
    assert mentions([7, 8, 9], ["sk-1", "other"], proc=tmp_path) == {
        Mention(word="sk-1", place="process arguments", program="sh"),
        Mention(word="sk-1", place="process environment", program="node"),
    }


def test_the_layer_is_measured(tmp_path: Path) -> None:
    upper, proc = tmp_path / "diff", tmp_path / "proc" / "7"
    (upper / "a").mkdir(parents=True)
    (upper / "a" / "b").write_bytes(b"x" * 9000)
    proc.mkdir(parents=True)
    row = f"1 2 0:1 / / rw - overlay overlay rw,lowerdir=/l,upperdir={upper},workdir=/w\n"
    (proc / "mountinfo").write_text(row)
    used = disk_use(7, proc=tmp_path / "proc")
    assert used is not None
    assert used.inodes == 2
    assert used.bytes >= 9000
    (proc / "mountinfo").write_text("1 2 0:1 / / rw - ext4 /dev/sda1 rw\n")
    assert disk_use(7, proc=tmp_path / "proc") is None


def test_secrets_are_found_in_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * ((1 << 20) - 3) + b"sk-canary" + b"y")
    with host_canary():
        watch = SecretWatch("sk-canary")
    files = good()
    cell = files.cell.model_copy(update={"workdir": "/sk-canary"})
    found = watch.all_seen(replace(files, cell=cell), tmp_path, CellTexts())
    assert [(one.secret, one.place, one.where) for one in found] == [
        ("model key", "native", "log"),
        ("model key", "records", "cell.json"),
    ]
    assert SecretWatch("sk-other").all_seen(files, tmp_path, CellTexts()) == ()


def test_a_cell_of_an_early_version_is_not_asked_for_what_nobody_looked_for(tmp_path: Path) -> None:
    files = good("run_timeout")
    assert files.witness is not None
    assert files.receipt is not None
    early = replace(
        files,
        cell=files.cell.model_copy(update={"deadline_s": None}),
        receipt=files.receipt.model_copy(update={"ending_s": None}),
        witness=files.witness.model_copy(
            update={"secrets": None, "zombies": None, "network": None, "use": ()}
        ),
    )
    folder = write(tmp_path / "cell", early)
    (cell,) = judge(folder, baseline=Baseline(), today=dt.date(2027, 1, 1)).cells
    assert cell.non_passes == ()


def test_figures_are_told_for_each_harness() -> None:
    natural, stopped = good(), good("run_timeout")
    table = figures_table([figures_of(natural), figures_of(stopped)])
    (row,) = (line for line in table.splitlines() if line.startswith("| codex"))
    assert row == ("| codex | debian-12 | 2 | 2.0 | 149 | 2.5 | 12 | 0 | 0 | - | 0.1 | 0 | 0 |")
    assert figures_of(natural).cpu_by_phase == {"seed": 0.5, "activate": 1.5}
