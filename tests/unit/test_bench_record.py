"""What a bench keeps, compares and shows; how requests to the engine are named."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sandbox.conformance.cellbench import MOST_CALLS, POLLED, too_many
from sandbox.conformance.timing import DOCKER, Subject
from sandbox.engine.calls import call_kind
from sandbox.evidence.benches import (
    LIMIT,
    BenchRecord,
    CellProfile,
    Machine,
    Measure,
    Peer,
    ratio_changes,
)
from sandbox.report.benches import bench_tables, changes_table

MACHINE = Machine(cpus=2, memory_mib=4096, architecture="x86_64", kernel="6.1", load=0.1)
CELL = CellProfile(
    harness="codex",
    image="alpine",
    rounds=5,
    total_s=2.0,
    harness_s=0.7,
    phases={"resources": 0.5, "seed": 0.25},
    calls={"POST /containers/create": 1},
)


def measure(ours: float, *, operation: str = "start", part: str = "engine") -> Measure:
    subject = Subject(part=part, image="alpine", most={DOCKER: 1.0})
    return subject.measure(operation, [ours], {DOCKER: [0.5]}, limit=1.0)


def record(*measures: Measure) -> BenchRecord:
    return BenchRecord(
        started_at=0.0,
        machine=MACHINE,
        versions={"sandbox": "0.1.0"},
        peers=(Peer(name="harbor", missing="not installed"),),
        measures=measures,
        cells=(CELL,),
    )


def test_a_record_without_times_keeps_ratios_and_counts_only() -> None:
    size = Subject(part="memory", image="").measure("1 cell", [70.0], {}, limit=83.0, unit="MiB")
    kept = record(measure(1.0), size).without_times()
    time, memory = kept.measures
    assert (time.ours, time.theirs, time.ratios) == (None, {}, {DOCKER: 2.0})
    assert memory == size
    (cell,) = kept.cells
    assert (cell.total_s, cell.harness_s, cell.phases) == (None, None, {})
    assert cell.calls == CELL.calls
    assert BenchRecord.model_validate_json(kept.model_dump_json()) == kept


def test_the_ratios_of_two_benches_are_compared_one_by_one() -> None:
    gone, new = measure(1.0, operation="gone"), measure(1.0, operation="new")
    found = ratio_changes(record(measure(1.0), gone), record(measure(0.25), new))
    told = {(one.operation, one.beside): (one.before, one.after, one.times) for one in found}
    assert told["start", DOCKER] == (2.0, 0.5, 0.25)
    assert told["start", LIMIT] == (1.0, 0.25, 0.25)
    assert told["gone", DOCKER] == (2.0, None, None)
    assert told["new", DOCKER] == (None, 2.0, None)


def test_the_tables_say_what_is_missed_and_who_is_missing() -> None:
    console = Console(width=120, file=io.StringIO(), record=True)
    peer = measure(0.25, operation="exec true", part="peers")
    console.print(bench_tables(record(measure(1.0), peer)))
    console.print(changes_table(ratio_changes(record(measure(1.0)), record(measure(0.5)))))
    shown = console.export_text()
    for words in ("<= 1 missed", "not installed", "POST /containers/create", "x 0.50"):
        assert words in shown


@pytest.mark.parametrize("kind", [*MOST_CALLS, "POST /containers/{id}/wait"])
def test_one_request_more_than_a_cell_needs_is_too_many(kind: str) -> None:
    assert too_many({**MOST_CALLS, POLLED: 1000}) == {}
    assert too_many({kind: MOST_CALLS.get(kind, 0) + 1}) == {kind: MOST_CALLS.get(kind, 0) + 1}


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/v1.41/containers/create?name=x", "POST /containers/create"),
        ("POST", "/v1.41/containers/3f2a/start", "POST /containers/{id}/start"),
        ("GET", "/v1.41/containers/json?all=1", "GET /containers/json"),
        ("GET", "/v1.41/exec/77/json", "GET /exec/{id}/json"),
        ("PUT", "/containers/3f2a/archive?path=%2F", "PUT /containers/{id}/archive"),
        ("GET", "/v1.41/images/library/alpine:3/json", "GET /images/{name}/json"),
        ("GET", "/v1.41/images/json", "GET /images/json"),
        ("DELETE", "/v1.41/containers/3f2a?force=1", "DELETE /containers/{id}"),
        ("GET", "/v1.41/_ping", "GET /_ping"),
    ],
)
def test_requests_are_named_without_ids(method: str, path: str, kind: str) -> None:
    assert call_kind(method, f"http+docker://localhost{path}") == kind
