"""What a run is asked to do: resumed, only what failed, sharded; and what is refused."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from sandbox.commands.conformance import configure
from sandbox.commands.request import make_room, missing, requested
from sandbox.conformance.configuration import scenario_digest
from sandbox.conformance.plan import cell_spec
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.errors import NothingSelected, UsageError
from sandbox.evidence.cell import Refusal, RunConfiguration, RunRecord, ServerChoice
from sandbox.evidence.configuration import conflicts, differences
from sandbox.evidence.folder import CellFiles, attempt_folder, cell_folder, write_run
from tests.broken.defects import with_witness
from tests.broken.goodcells import good, write

CELLS = tuple(f"codex/debian-12/{name}" for name in ("tool_success", "tool_failure", "retry_500"))
CONFIGURATION = RunConfiguration(
    profile="quick",
    plan=CELLS,
    tool_version="1",
    pins={"codex linux-x64-gnu": "1.0 sha256:a"},
    images={"debian-12": "sha256:b"},
    scenarios={"tool_success": "sha256:c"},
)


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configure(parser)
    return parser.parse_args(words)


def run_of(
    run: Path, *cells: CellFiles, configuration: RunConfiguration | None = CONFIGURATION
) -> Path:
    record = RunRecord(
        run_id="run1", profile="quick", cells=CELLS, started_at=1.0, configuration=configuration
    )
    write_run(run, record)
    for files in cells:
        write(cell_folder(run, files.cell.cell_id), files)
    return run


def broken_off() -> CellFiles:
    refusal = Refusal(kind="error", reason="the run was interrupted", cure="run the cell again")
    return CellFiles(cell=good("retry_500").cell.model_copy(update={"refusal": refusal}))


def failing() -> CellFiles:
    return with_witness(good("tool_failure"), session_dir_gone=False)


def test_a_resumed_run_has_the_old_plan_and_runs_what_is_missing(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", good("tool_success"), broken_off())
    request = requested(options("--resume", str(run)))
    assert (request.run_id, request.profile) == ("run1", "quick")
    assert tuple(cell.cell_id for cell in request.plan) == CELLS
    left = missing(run, request.cells)
    assert tuple(cell.cell_id for cell in left) == CELLS[1:]
    make_room(run, left)
    assert not cell_folder(run, CELLS[2]).exists()
    assert cell_folder(run, CELLS[0]).exists()
    record = request.record(CONFIGURATION)
    assert (record.run_id, record.started_at, record.completed_at) == ("run1", 1.0, None)


def test_an_unreadable_cell_is_missing(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", good("tool_success"))
    (cell_folder(run, CELLS[0]) / "cell.json").write_text("{")
    assert missing(run, [cell_spec(CELLS[0])])


def test_a_whole_run_is_not_resumed(tmp_path: Path) -> None:
    cells = (good("tool_success"), failing(), good("retry_500"))
    run = run_of(tmp_path / "run", *cells)
    with pytest.raises(NothingSelected, match="nothing is missing"):
        requested(options("--resume", str(run)))


def test_a_lost_repetition_is_missing(tmp_path: Path) -> None:
    twice = CONFIGURATION.model_copy(update={"repeat": 2})
    cells = (good("tool_success"), failing(), good("retry_500"))
    run = run_of(tmp_path / "run", *cells, configuration=twice)
    request = requested(options("--resume", str(run)))
    assert request.repeat == 2
    assert len(missing(attempt_folder(run, 2), request.cells)) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--profile", "full"], "profile: quick, now full"),
        (["--harness", "codex", "--image", "debian-12"], "cells: 2 more planned"),
        (["--repeat", "3"], "repeat: 1, now 3"),
        (["--isolation", "bridge"], "isolation: auto, now bridge"),
        (["--install", "copy"], "install: auto, now copy"),
        (["--shard", "1/2"], "shard: all, now 1/2"),
        (["--output", "x"], "keeps its own folder"),
    ],
)
def test_another_configuration_is_refused_with_the_difference(
    words: list[str], message: str, tmp_path: Path
) -> None:
    run = run_of(tmp_path / "run")
    with pytest.raises(UsageError, match=message):
        requested(options("--resume", str(run), *words))


AGENT = ServerChoice(url="http://127.0.0.1:8000", name="codex", interface="agent-session")


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        (None, {}, "agent url: none, now http://127.0.0.1:8000"),
        (AGENT, {"url": "http://127.0.0.1:9"}, "agent url: http://127.0.0.1:8000, now http:"),
        (AGENT, {"name": "mine"}, "agent name: codex, now mine"),
        (AGENT, {"interface": "legacy"}, "agent interface: agent-session, now legacy"),
        (AGENT, None, "agent name: codex, now none"),
    ],
    ids=["ours-before", "url", "name", "interface", "ours-now"],
)
def test_another_agent_server_is_refused_with_the_difference(
    before: ServerChoice | None, now: dict[str, str] | None, line: str, tmp_path: Path
) -> None:
    run = run_of(tmp_path / "run", configuration=CONFIGURATION.model_copy(update={"agent": before}))
    other = None if now is None else AGENT.model_copy(update=now)
    with pytest.raises(UsageError, match=line):
        requested(options("--resume", str(run)), other)
    same = requested(options("--resume", str(run)), before)
    assert len(same.cells) == len(CELLS)


def test_other_pins_images_and_scenarios_are_refused_with_the_difference(tmp_path: Path) -> None:
    request = requested(options("--resume", str(run_of(tmp_path / "run"))))
    now = CONFIGURATION.model_copy(
        update={
            "pins": {"codex linux-x64-gnu": "1.1 sha256:d"},
            "images": {},
            "scenarios": {"tool_success": "sha256:e"},
        }
    )
    with pytest.raises(UsageError) as caught:
        request.record(now)
    for line in (
        "pin codex linux-x64-gnu: 1.0 sha256:a, now 1.1 sha256:d",
        "image debian-12: sha256:b, now none",
        "scenario tool_success: sha256:c, now sha256:e",
    ):
        assert line in str(caught.value)


def test_a_run_without_configuration_and_no_run_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="says nothing of its configuration"):
        requested(options("--resume", str(run_of(tmp_path / "run", configuration=None))))
    with pytest.raises(UsageError, match="no run folder"):
        requested(options("--resume", str(tmp_path)))


def test_a_cell_that_there_is_no_longer_is_refused(tmp_path: Path) -> None:
    gone = CONFIGURATION.model_copy(update={"plan": ("codex/debian-12/once_upon",)})
    with pytest.raises(UsageError, match="there is no 'once_upon' any more"):
        requested(options("--resume", str(run_of(tmp_path / "run", configuration=gone))))


def test_only_what_failed_is_run_again(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", good("tool_success"), failing(), good("retry_500"))
    request = requested(options("--failed", str(run)))
    assert [cell.cell_id for cell in request.cells] == [CELLS[1]]
    assert request.resumed is None
    both = requested(options("--failed", str(run), "--scenario", "tool_*", "--harness", "codex"))
    assert [cell.cell_id for cell in both.cells] == [CELLS[1]]
    with pytest.raises(NothingSelected, match="none of the selected"):
        requested(options("--failed", str(run), "--scenario", "retry_500"))


def test_a_run_without_failures_has_nothing_to_run_again(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", good("tool_success"), good("tool_failure"), good("retry_500"))
    with pytest.raises(NothingSelected, match="passes or is known"):
        requested(options("--failed", str(run)))


def test_shards_are_balanced_by_an_earlier_run(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", good("tool_success"))
    words = ("--harness", "codex", "--image", "debian-12", "--timings", str(run))
    found = [requested(options(*words, "--shard", f"{k}/2")) for k in (1, 2)]
    assert [len(request.plan) for request in found] == [5, 5]
    names = [[cell.scenario for cell in request.cells] for request in found]
    assert sorted(names[0] + names[1]) == sorted({cell.scenario for cell in found[0].plan})
    assert len(requested(options(*words)).cells) == 5
    with pytest.raises(UsageError, match="holds no timings"):
        requested(options(*words[:-1], str(tmp_path), "--shard", "1/2"))


def test_parts_of_a_run_conflict_only_in_what_both_name() -> None:
    other = CONFIGURATION.model_copy(update={"plan": CELLS[:1], "images": {"alpine": "sha256:x"}})
    assert conflicts(CONFIGURATION, other) == ()
    one, two = (
        CONFIGURATION.model_copy(update={"agent": AGENT.model_copy(update={"url": url})})
        for url in ("http://a", "http://b")
    )
    assert conflicts(one, two) == ()
    assert conflicts(CONFIGURATION, two) == (
        "agent name: none, now codex",
        "agent interface: none, now agent-session",
    )
    wrong = CONFIGURATION.model_copy(update={"images": {"debian-12": "sha256:x"}})
    assert conflicts(CONFIGURATION, wrong) == ("image debian-12: sha256:b, now sha256:x",)
    turned = CONFIGURATION.model_copy(update={"plan": CELLS[::-1]})
    assert differences(CONFIGURATION, turned) == ("cells: planned in another order",)


def test_a_scenario_s_digest_is_stable_and_its_own() -> None:
    digests = {scenario_digest(scenario) for scenario in SCENARIOS.values()}
    assert len(digests) == len(SCENARIOS)
    assert digests == {scenario_digest(scenario) for scenario in SCENARIOS.values()}
