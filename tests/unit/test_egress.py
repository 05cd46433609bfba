"""What harnesses phone home to: the adapter without quieting settings, look-ups by phase."""

import json
import tomllib
from dataclasses import replace

import pytest

from sandbox.evidence.cell import Refusal
from sandbox.evidence.egress import CellEgress, cell_egress, markdown
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.records import EgressEvent
from sandbox.harnesses.base import LaunchContext
from sandbox.harnesses.loud import Loud, loud_file, loud_text
from sandbox.harnesses.registry import registered
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


def test_look_ups_are_counted_by_phase() -> None:
    files = good()
    cell = files.cell.model_copy(update={"phases": {"sandbox": 1.0, "seed": 2.0}})
    files = replace(files, cell=cell)
    assert files.exchanges
    first, last = files.exchanges[0].started_at, files.exchanges[-1].completed_at
    begun = files.cell.started_at
    # The recorded requests begin later than the seed's three seconds, or the phases overlap.
    late = [one.model_copy(update={"started_at": one.started_at + 9, "completed_at":
            one.completed_at + 9}) for one in files.exchanges]  # fmt: skip
    files = replace(files, exchanges=tuple(late))
    seen = asked(files, begun, begun + 4, first + 9, last + 9, last + 10)
    (name,) = cell_egress(seen, "ours").names or ()
    assert name.counts == {"install": 1, "start": 1, "run": 2, "exit": 1}
    assert name.total == 5


def test_what_could_not_be_seen_is_no_silence() -> None:
    files = good()
    unseen = cell_egress(replace(files, egress=None), "ours")
    refused = files.cell.model_copy(update={"refusal": Refusal(kind="unsupported", reason="no sh")})
    assert unseen.names is None
    assert cell_egress(replace(files, cell=refused), "ours").reason == "no sh"
    silent = cell_egress(asked(files), "defaults")
    assert silent.names == ()
    said = markdown([unseen, silent])
    assert "| none | not seen: this link does not log look-ups | - |" in said


def test_the_table_has_ours_beside_the_defaults() -> None:
    loud = cell_egress(asked(good(), good().cell.started_at), "defaults")
    quiet = CellEgress(harness=loud.harness, image=loud.image, settings="ours", names=())
    rows = markdown([quiet, loud]).splitlines()
    assert rows[2].startswith("| codex | debian-12 | home.example | - | 1 (")
