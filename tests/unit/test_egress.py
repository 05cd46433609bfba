"""What harnesses phone home to: the adapter without quieting settings, look-ups by phase."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.cli import main
from sandbox.evidence.cell import Refusal
from sandbox.evidence.egress import (
    CellEgress,
    Moments,
    cell_egress,
    counted,
    destination,
    moments_of,
    phase_at,
    way,
)
from sandbox.evidence.folder import CellFiles, cell_folder, write_cell
from sandbox.evidence.records import EgressEvent
from sandbox.harnesses.base import LaunchContext
from sandbox.harnesses.loud import Loud, loud_file, loud_text
from sandbox.harnesses.registry import registered
from sandbox.report.egress import egress_page
from tests.broken.goodcells import good

HARNESSES = registered().harnesses
CONTEXT = LaunchContext(
    prefix="/p",
    session_dir="/s",
    workdir="/w",
    base_url="http://127.0.0.1:1/v1",
    api_key="sk-1",
    model="m",
    prompt="go",
    deadline_s=60,
    task_env={"PATH": "/bin", "HOME": "/root", "TASK_DISABLE_X": "1"},
    platform="linux-x64-gnu",
    rollout_id="r1",
)


@pytest.mark.parametrize("name", sorted(set(HARNESSES) - {"hermes"}))
def test_every_adapter_has_something_to_take_away(name: str) -> None:
    """Else the defaults would be measured as ours. Hermes has nothing to switch off."""
    quiet, loud = HARNESSES[name].plan(CONTEXT), Loud(HARNESSES[name]).plan(CONTEXT)
    assert loud != quiet
    assert loud.argv == quiet.argv
    assert loud.env.keys() <= quiet.env.keys()
    assert [file.path for file in loud.files] == [file.path for file in quiet.files]
    assert any("127.0.0.1:1" in text for text in (*loud.env.values(), *map(text_of, loud.files)))


def text_of(file: object) -> str:
    return bytes(getattr(file, "data", b"")).decode(errors="replace")


def test_the_tasks_own_variables_stay() -> None:
    loud = Loud(HARNESSES["claude-code"]).plan(CONTEXT)
    assert "DISABLE_TELEMETRY" not in loud.env


def test_keys_are_taken_out_of_json_and_toml_and_nothing_else() -> None:
    told = {"a": {"telemetry": {"enabled": False}, "b": 1}, "autoupdate": False}
    assert json.loads(loud_text(json.dumps(told))) == {"a": {"b": 1}}
    assert tomllib.loads(loud_file("/x.toml", b"a = 1\n[analytics]\nb = 2\n").decode()) == {"a": 1}
    for text in ("plain", "{no json", '{"a": 1}'):
        assert loud_text(text) == text
    assert loud_file("/x/run.sh", b"telemetry=1") == b"telemetry=1"


def asked(files: CellFiles, *times: float) -> CellFiles:
    events = tuple(EgressEvent(at=at, name="home.example", record_type="A") for at in times)
    return replace(files, egress=events)


MOMENTS = Moments(seeded=10.0, asked=20.0, told=30.0, over=40.0)


@pytest.mark.parametrize(
    ("at", "moments", "phase"),
    [
        (5.0, MOMENTS, "install"),
        (10.0, MOMENTS, "install"),
        (15.0, MOMENTS, "start"),
        (20.0, MOMENTS, "start"),
        (25.0, MOMENTS, "run"),
        (30.0, MOMENTS, "run"),
        (35.0, MOMENTS, "exit"),
        (45.0, MOMENTS, "exit"),
        (45.0, MOMENTS.model_copy(update={"seeded": None}), "install"),
        (35.0, MOMENTS.model_copy(update={"asked": None, "told": None}), "start"),
        (45.0, MOMENTS.model_copy(update={"asked": None, "told": None}), "exit"),
        (45.0, Moments(seeded=10.0, asked=None, told=None), "start"),
    ],
)
def test_every_moment_is_of_one_phase(at: float, moments: Moments, phase: str) -> None:
    assert phase_at(at, moments) == phase


def test_a_verifiers_own_requests_are_no_phase_of_the_agents() -> None:
    one = good().exchanges
    assert one
    mine, judge = one[0], one[0].model_copy(update={"caller": "verifier", "completed_at": 9e9})
    assert moments_of([mine, judge], seeded=1.0, over=None) == Moments(
        seeded=1.0, asked=mine.started_at, told=mine.completed_at
    )


def tried(at: float, **more: object) -> EgressEvent:
    return EgressEvent.model_validate({"at": at, "name": "h.test", **more})


def test_what_differs_in_time_alone_is_one_line() -> None:
    tls = {"kind": "tcp", "port": 443, "protocol": "tls", "named_by": "sni"}
    events = [
        tried(27.0, **tls),
        tried(5.0, record_type="A"),
        tried(21.0, **tls),
        tried(22.0, **tls, address="192.0.2.1"),
        tried(23.0, **{**tls, "port": 80}),
        tried(31.0, **tls, count=4),
    ]
    assert [
        (one.at, one.last_at, one.kind, one.port, one.address, one.count, one.phase)
        for one in counted(events, MOMENTS)
    ] == [
        (5.0, 5.0, "dns", None, None, 1, "install"),
        (21.0, 27.0, "tcp", 443, None, 2, "run"),
        (22.0, 22.0, "tcp", 443, "192.0.2.1", 1, "run"),
        (23.0, 23.0, "tcp", 80, None, 1, "run"),
        (31.0, 31.0, "tcp", 443, None, 4, "exit"),
    ]


@given(st.lists(st.tuples(st.floats(0, 50), st.sampled_from(["a.test", "b.test"]))))
def test_counting_loses_nothing_and_counts_once(found: list[tuple[float, str]]) -> None:
    events = [EgressEvent(at=at, name=name) for at, name in found]
    once = counted(events, MOMENTS)
    assert sum(one.count for one in once) == len(events)
    assert counted(once, Moments(seeded=None, asked=None, told=None)) == once
    assert len({(one.name, one.phase) for one in once}) == len(once)


def test_lines_of_early_versions_are_counted_by_the_durations() -> None:
    files = good()
    cell = files.cell.model_copy(update={"phases": {"resources": 1.0, "seed": 2.0}})
    files = replace(files, cell=cell)
    assert files.exchanges
    first, last = files.exchanges[0].started_at, files.exchanges[-1].completed_at
    begun = files.cell.started_at
    # The recorded requests begin later than the seed's three seconds, or the phases overlap.
    late = [one.model_copy(update={"started_at": one.started_at + 9, "completed_at":
            one.completed_at + 9}) for one in files.exchanges]  # fmt: skip
    files = replace(files, exchanges=tuple(late))
    seen = asked(files, begun, begun + 4, first + 9.1, last + 9, last + 10)
    (name,) = cell_egress(seen).tried or ()
    assert name.counts == {"install": 1, "start": 1, "run": 2, "exit": 1}
    assert (name.name, name.port, name.how, name.total) == ("home.example", None, "DNS", 5)


@pytest.mark.parametrize(
    ("event", "how", "where"),
    [
        (tried(1, record_type="A"), "DNS", "h.test"),
        (tried(1, kind="tcp", port=443, protocol="tls"), "TLS", "h.test:443"),
        (tried(1, kind="tcp", port=80, protocol="http"), "HTTP", "h.test:80"),
        (tried(1, kind="tcp", port=22), "TCP", "h.test:22"),
        (tried(1, kind="udp", port=53, name="2001:db8::1"), "UDP", "[2001:db8::1]:53"),
        (tried(1, kind="unrouted", name=""), "no route", "a bare address"),
        (tried(1, kind="left_out"), "LEFT OUT", "h.test"),
    ],
)
def test_ways_and_places_have_names(event: EgressEvent, how: str, where: str) -> None:
    assert (way(event), destination(event)) == (how, where)


def ours(files: CellFiles, **cell: object) -> CellEgress:
    return cell_egress(replace(files, cell=files.cell.model_copy(update=cell)))


def test_what_could_not_be_seen_is_no_silence() -> None:
    unseen = ours(replace(good(), egress=None))
    refusal = Refusal(kind="unsupported", reason="no sh")
    assert unseen.tried is None
    assert ours(good(), refusal=refusal).reason == "no sh"
    silent = ours(asked(good()), settings="defaults")
    assert silent.tried == ()
    said = egress_page([unseen, silent])
    assert "not seen (this link does not log look-ups) with our settings, nothing with" in said
    loud = ours(asked(good(), 1.0), settings="defaults")
    assert "| not seen (this link does not log look-ups) | 1 (" in egress_page([unseen, loud])


def test_a_turn_that_failed_is_no_silence_either() -> None:
    failed = ours(good("model_error"))
    assert failed.failed is not None
    said = egress_page([failed])
    assert f"A turn with our settings failed ({failed.failed})" in said
    assert "not run with its defaults" in said


def test_the_table_has_ours_beside_the_defaults() -> None:
    late = good().cell.completed_at
    loud = ours(asked(good(), late, late), settings="defaults")
    quiet = ours(asked(good()), egress_seen="names")
    twice = egress_page([quiet, loud, loud])
    assert "\n## codex 1.2.3 on debian-12\n\nNames were unknown in these runs" in twice
    assert twice.splitlines()[-1] == "| home.example | - | DNS | - | 4 (exit 4) |"


def run_of(folder: Path, files: CellFiles) -> None:
    write_cell(cell_folder(folder, files.cell.cell_id), files)


def test_the_report_of_kept_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loud = asked(good(), good().cell.completed_at)
    run_of(tmp_path / "ours", asked(good()))
    run_of(
        tmp_path / "defaults",
        replace(loud, cell=loud.cell.model_copy(update={"settings": "defaults"})),
    )
    assert main(["report", "--egress", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("| home.example | - | DNS | - | 1 (exit 1) |\n")
    assert main(["report", "--egress", "--json", str(tmp_path / "ours")]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["settings"], told["tried"]) == ("ours", [])
    assert main(["report", "--egress", str(tmp_path / "nothing")]) == 3
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(tmp_path)])


def test_the_page_in_docs_is_what_the_command_prints_today() -> None:
    page = (Path(__file__).parents[2] / "docs" / "egress.md").read_text()
    assert page.startswith(egress_page([]))
    named = {line.split()[1] for line in page.splitlines() if line.startswith("## ")}
    assert named == set(HARNESSES)
    assert "failed" not in page.removeprefix(egress_page([]))


def test_an_egress_log_of_an_early_version_is_read() -> None:
    line = '{"at": 1.5, "kind": "dns", "name": "models.dev", "record_type": "A"}'
    event = EgressEvent.model_validate_json(line)
    assert (event.count, event.phase, event.port) == (1, None, None)
