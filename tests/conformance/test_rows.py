"""``pytest tests/conformance --run DIR``: an independent reader takes every row of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.rowreader import read_rows, refusals


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder: Path | None = metafunc.config.getoption("run_folder")
    if folder is None:
        absent = pytest.param(None, marks=pytest.mark.skip("give a run folder: --run DIR"))
        metafunc.parametrize("cell", [absent], ids=["no run"])
        return
    cells = sorted(path.parent for path in folder.rglob("cell.json"))
    metafunc.parametrize("cell", cells, ids=["/".join(cell.parts[-3:]) for cell in cells])


def test_rows(cell: Path) -> None:
    rows = read_rows(cell)
    if not rows:
        pytest.skip("it has no row: the judge says why")
    assert [reason for name, row in rows for reason in refusals(name, row)] == []
