"""The temporary files of one process: in one folder, removed by the next start if it was killed."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from sandbox.engine.workroom import PREFIX, own_prefix, remove_abandoned, workroom


@pytest.fixture
def above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_is_made_meanwhile_goes_with_the_room(above: Path) -> None:
    with workroom() as own:
        assert own.parent == above
        assert Path(tempfile.mkdtemp()).parent == own
        assert remove_abandoned(above) == ()
    assert list(above.iterdir()) == []
    assert tempfile.gettempdir() == str(above)


def test_only_the_room_of_a_process_that_is_proved_dead_goes(above: Path) -> None:
    with workroom() as own:
        _, _, pid, ticks, where, rest = own.name.split("-", 5)
        ended = subprocess.Popen(["true"])
        ended.wait()
        names = {
            "dead": f"{PREFIX}{ended.pid}-1-{where}-{rest}",
            "a job's": f"{PREFIX}{ended.pid}-1-{where}-job-{rest}",
            "a living job's": f"{own_prefix()}job-{rest}",
            "its number is used again": f"{PREFIX}{pid}-{int(ticks) + 1}-{where}-{rest}",
            "elsewhere": f"{PREFIX}{ended.pid}-1-{'0' * 12}-{rest}",
            "of another program": f"{PREFIX}something",
        }
        for name in names.values():
            (above / name / "file").mkdir(parents=True)
        gone = {path.name for path in remove_abandoned(above)}
        assert gone == {names["dead"], names["a job's"], names["its number is used again"]}
        assert {path.name for path in above.iterdir()} == {own.name, *names.values()} - gone
