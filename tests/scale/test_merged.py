"""Shards that are merged give the reports of the whole run: byte for byte, ids and times apart."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

from sandbox.cli import main
from sandbox.conformance.estimate import Estimates
from sandbox.conformance.shard import Shard, sharded
from sandbox.evidence.costs import CellCost
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.tally import digest_of
from sandbox.report.details import unpack
from tests.scale.synthetic import make_run, synthetic_plan

CELLS, SHARDS = 110, 3
REPORTS = {
    "results.json", "junit.xml", "ctrf.json", "summary.md", "report.html", "timings.json"
}  # fmt: skip

_EPOCH = re.compile(rb"\b1[78]\d{8}(\.\d+)?\b")
_ROLLOUT = re.compile(rb"\br[0-9a-f]{32}\b")
_PACKED = re.compile(r'(<script type="text/plain" id="d\d+">)([^<]*)')
_INDEX = re.compile(r'(<script type="application/json" id="index">)([^<]*)')
_APART = (
    (r"\br[0-9a-f]{32}\b", "ROLLOUT"),
    (r"\b1[78]\d{8}(\.\d+)?\b", "SECONDS"),
    (r"\b1[78]\d{11}\b", "MILLISECONDS"),
    (r'"seconds":[\d.]+', '"seconds":S'),
    (r'"reportId": "[0-9a-f-]{36}"', '"reportId": "ID"'),
)


def normal(text: str, run_id: str) -> str:
    """Return a report without what is of one execution alone: ids, points in time, durations."""
    text = _PACKED.sub(lambda found: found[1] + json.dumps(_details(found[2])), text)
    text = _INDEX.sub(lambda found: found[1] + json.dumps(_index(json.loads(found[2]))), text)
    text = text.replace(run_id, "RUN")
    for pattern, name in _APART:
        text = re.sub(pattern, name, text)
    return text


def _details(packed: str) -> Any:
    if not packed:
        return ""
    data = unpack(packed)
    return {**data, "events": [{**event, "at": None} for event in data["events"]]}


def _index(index: dict[str, Any]) -> dict[str, Any]:
    return {**index, "cells": [cell[:-1] for cell in index["cells"]]}


def recorded_again(run: Path, number: int) -> None:
    """Give every cell the ids and times of another execution."""
    for cell in run.glob("cells/*/*/*"):
        for path in (one for one in cell.rglob("*") if one.is_file()):
            data = _ROLLOUT.sub(b"r%032x" % number, path.read_bytes())
            later = _EPOCH.sub(lambda found: b"%.7f" % (float(found[0]) + 3_600 * number), data)
            path.unlink()
            path.write_bytes(later)
        witness, exchanges = cell / "witness.json", cell / "exchanges.jsonl"
        if exchanges.exists():  # another rollout id is another request, so another digest
            lines = exchanges.read_bytes().splitlines()
            tally = [digest_of(Exchange.model_validate_json(line)) for line in lines]
            seen = json.loads(witness.read_text())
            witness.write_text(json.dumps({**seen, "exchange_tally": tally}))
        file = cell / "cell.json"
        record = json.loads(file.read_text())
        file.write_text(json.dumps({**record, "completed_at": record["completed_at"] + number}))


def quiet(*words: str) -> int:
    with contextlib.redirect_stdout(io.StringIO()):
        return main(list(words))


def test_shards_that_are_merged_give_the_reports_of_the_whole_run(tmp_path: Path) -> None:
    plan = synthetic_plan(CELLS)
    whole = tmp_path / "whole-run"
    make_run(whole, plan, plan, links=tmp_path / "links")
    costs = {cell.cell_id: CellCost(seconds=n % 17) for n, cell in enumerate(plan)}
    known, parts = Estimates(costs, {}), []
    for number in range(1, SHARDS + 1):
        cells = sharded(plan, Shard(number=number, count=SHARDS), seconds=known.seconds)
        assert abs(len(cells) - CELLS / SHARDS) < CELLS / SHARDS / 2
        parts.append(tmp_path / f"shard-{number}")
        make_run(parts[-1], plan, cells, links=tmp_path / f"links-{number}")
        recorded_again(parts[-1], number)
    merged = tmp_path / "merged-run"
    words = [str(part) for part in reversed(parts)]
    assert quiet("judge", str(whole)) == quiet("merge", *words, "--output", str(merged)) == 4
    found = {path.name for path in merged.iterdir() if path.is_file()} - {"run.json"}
    assert found == REPORTS
    merged_id = "+".join(part.name for part in reversed(parts))
    for name in sorted(REPORTS):
        text = (merged / name).read_text()
        before = (whole / name).read_text()
        assert normal(text, merged_id) == normal(before, "whole-run"), name
        if name not in ("summary.md", "junit.xml"):  # these have no times and no other ids
            assert text != before.replace("whole-run", merged_id), name


def test_merging_gives_recorded_files_a_second_name_and_changes_none(tmp_path: Path) -> None:
    plan = synthetic_plan(3)
    part = tmp_path / "part"
    make_run(part, plan, plan, links=tmp_path / "links")
    before = {path: path.read_bytes() for path in part.rglob("*") if path.is_file()}
    quiet("merge", str(part), "--output", str(tmp_path / "merged"))
    quiet("judge", str(tmp_path / "merged"))
    assert {path: path.read_bytes() for path in before} == before
    cell = Path("cells") / plan[0].cell_id / "exchanges.jsonl"
    assert (part / cell).samefile(tmp_path / "merged" / cell)
    assert not list(part.rglob("verdicts.json"))
