"""What a command imports before it does anything: the seconds of a start are imports."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broken.goodcells import good, write

SERVERS = {"starlette", "uvicorn", "anyio", "asyncio", "ssl"}
ENGINE = {"docker", "testcontainers", "requests", "urllib3", "dns", "dissect", "tenacity", "httpx"}
REPORTS = {"rich", "junitparser"}
MAIN = (
    "import sys; from sandbox.cli import main\n"
    "try: main(sys.argv[1:])\n"
    "except SystemExit: pass\n"
    "print('modules:', *sys.modules)"
)


def imported(*words: str) -> set[str]:
    """Name the modules that are there when a command has ended."""
    argv = [sys.executable, "-c", MAIN, *words]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    modules = ended.stdout.rpartition("modules:")[2].split()
    assert "sandbox.cli" in modules, ended.stderr
    return set(modules)


def test_the_help_imports_nothing_but_the_names_of_the_commands() -> None:
    found = imported("--help")
    assert {name for name in found if name.split(".")[0] == "sandbox"} == {
        "sandbox",
        "sandbox.cli",
        "sandbox.errors",
    }
    assert not {"pydantic", *SERVERS, *ENGINE, *REPORTS} & found


def test_a_list_needs_neither_an_engine_nor_a_server_nor_a_report() -> None:
    assert not {*SERVERS, *ENGINE, *REPORTS} & imported("list")


def test_a_judge_needs_neither_an_engine_nor_a_server(tmp_path: Path) -> None:
    folder = write(tmp_path / "cell", good())
    found = imported("judge", str(folder))
    assert (folder / "report.html").is_file()
    assert not {*SERVERS, *ENGINE, "sandbox.conformance.scenarios"} & found


@pytest.mark.parametrize("name", sorted({*SERVERS, *ENGINE, *REPORTS}))
def test_what_must_not_be_imported_is_there(name: str) -> None:
    assert importlib.util.find_spec(name) is not None
