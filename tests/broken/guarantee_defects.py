"""Planted defects of the guarantees: files, secrets, the dead, late ends, packets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sandbox.evidence.cell import NetworkCounters, SecretSeen
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.records import FileChange, Survivor
from tests.broken.defects import Defect, with_receipt, with_witness
from tests.broken.goodcells import HOME, good

TOUCHED = {
    "a program in PATH": ("/usr/local/bin/node", "added", "a folder of PATH"),
    "a dotfile in HOME": (f"{HOME}/.npmrc", "added", "the task's HOME"),
    "a profile file": ("/etc/profile.d/harness.sh", "added", "a profile file"),
    "the package database": ("/var/lib/dpkg/status", "modified", "the package database"),
    "a library": ("/usr/lib/libssl.so.3", "deleted", "libraries"),
    "a user": ("/etc/passwd", "modified", "users"),
    "somewhere else": ("/opt/harness", "added", "the image"),
}
SEEN: dict[str, dict[str, Any]] = {
    "the key in a transcript": {"place": "native", "where": "log.txt"},
    "the key in the captured requests": {"place": "records", "where": "exchanges.jsonl"},
    "the key in a process list": {"place": "process arguments", "where": "node"},
    "the key in the container": {"place": "container", "where": "docker inspect"},
    "a variable of the host": {
        "secret": "host environment",
        "place": "process environment",
        "where": "sh",
    },
}


def touching(path: str, change: str) -> CellFiles:
    files = good()
    more = FileChange.model_validate({"path": path, "change": change})
    return replace(files, footprint=(*(files.footprint or ()), more))


def seeing(**seen: str) -> CellFiles:
    one = SecretSeen.model_validate({"secret": "model key", **seen})
    return with_witness(good(), secrets=(one,))


GUARANTEE_DEFECTS = (
    *(
        Defect(
            check="footprint_expected",
            name=name,
            files=lambda path=path, change=change: touching(path, change),  # type: ignore[misc]
        )
        for name, (path, change, _) in TOUCHED.items()
    ),
    Defect(
        check="footprint_expected", name="not looked", files=lambda: replace(good(), footprint=None)
    ),
    *(
        Defect(
            check="secrets_kept",
            name=name,
            files=lambda seen=seen: seeing(**seen),  # type: ignore[misc]
        )
        for name, seen in SEEN.items()
    ),
    Defect(
        check="secrets_kept", name="not looked", files=lambda: with_witness(good(), secrets=None)
    ),
    Defect(
        check="no_zombies",
        name="one is not buried",
        files=lambda: with_witness(good(), zombies=(Survivor(pid=9, command="[sh]"),)),
    ),
    Defect(
        check="stopped_in_time",
        name="it took minutes",
        files=lambda: with_receipt(good("run_timeout"), ending_s=180.0),
    ),
    Defect(
        check="stopped_in_time",
        name="nobody measured",
        files=lambda: with_receipt(good("run_timeout"), ending_s=None),
    ),
    Defect(
        check="nothing_sent_out",
        name="packets on another interface",
        files=lambda: with_witness(good(), network=NetworkCounters(sent={"lo": 9, "eth0": 3})),
    ),
    Defect(
        check="nothing_sent_out",
        name="not looked",
        files=lambda: with_witness(good(), network=None),
    ),
)
