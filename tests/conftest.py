"""Fixtures of all tests: the engine, and nothing left of ours on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from sandbox.engine.client import Engine
from sandbox.engine.owner import PROJECT_FILTER, owner_is_alive
from sandbox.errors import PrerequisiteMissing

SWEEP_PATIENCE_S = 60.0

# `make test` looks at fewer examples than a search for new faults would:
# HYPOTHESIS_PROFILE=search make test-unit
settings.register_profile("suite", max_examples=10, deadline=None)
settings.register_profile("search", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills",
        type=int,
        default=2,
        metavar="N",
        help="how often a run is killed at a random moment (make kill-runner: 50)",
    )
    parser.addoption(
        "--kill-seed", type=int, metavar="SEED", help="the seed of these moments (default: another)"
    )
    parser.addoption(
        "--slow-faults",
        action="store_true",
        help="also faults whose end takes half a minute (make faults)",
    )
    parser.addoption(
        "--at-once",
        default="",
        metavar="OPTIONS",
        help="what to run twice, one by one and 16 at once, as options of conformance: "
        "'--harness pi --scenario tool_*' (make at-once)",
    )
    parser.addoption(
        "--run",
        dest="run_folder",
        type=Path,
        metavar="DIR",
        help="judge this run: one item for each cell and check (tests/conformance)",
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests measured: their properties of the name ``figure``, in order."""
    reports = [one for found in terminalreporter.stats.values() for one in found]
    said = [
        str(text)
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, text in report.user_properties
        if name == "figure"
    ]
    if said:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(said))
    faults = sorted(
        (row for report in reports for row in _faults_of(report)), key=lambda row: -row[2]
    )
    if faults:
        terminalreporter.section("faults: how each ended, and how long after it")
        for name, how, seconds in faults:
            terminalreporter.write_line(f"{seconds:6.1f} s  {name}: {how}")
        longest = f"longest from a fault to a typed end: {faults[0][2]:.1f} s ({faults[0][0]})"
        terminalreporter.write_line(longest)


def _faults_of(report: Any) -> list[tuple[str, str, float]]:
    if getattr(report, "when", None) != "call":
        return []
    return [tuple(value) for name, value in report.user_properties if name == "fault"]


@dataclass
class FaultClock:
    """Times one fault: from when it strikes until its typed end."""

    name: str
    record: Callable[[str, object], None]
    struck: float | None = None

    def strikes(self, fault: Callable[[], object] = lambda: None) -> object:
        """Note the moment, and let the fault happen."""
        self.struck = time.monotonic()
        return fault()

    def ended(self, how: str) -> None:
        """Record how long it took to end, if it struck."""
        if self.struck is not None:
            self.record("fault", [self.name, how, round(time.monotonic() - self.struck, 2)])
            self.struck = None


@pytest.fixture
def fault(request: pytest.FixtureRequest, record_property: Callable[..., None]) -> FaultClock:
    """Give a clock for the fault that the test is about, named after the test."""
    return FaultClock(request.node.name.removeprefix("test_").replace("_", " "), record_property)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Give the engine; without one, tests that need it are skipped here and fail in CI.

    At the end no container, network or volume of ours may be there that was not there before.
    What another living process owns belongs to a run beside this one.
    """
    try:
        connected = Engine.connect()
    except PrerequisiteMissing as error:
        if os.environ.get("CI") or os.environ.get("SANDBOX_REQUIRE_ENGINE"):
            raise
        pytest.skip(str(error))
    with connected:
        before = set(leftovers(connected))
        yield connected
        # a test in another process may be about to sweep what it has killed
        until = time.monotonic() + SWEEP_PATIENCE_S
        while (left := sorted(set(leftovers(connected)) - before)) and time.monotonic() < until:
            time.sleep(0.5)
    assert left == [], f"the tests left on the engine: {left}"


def leftovers(engine: Engine) -> list[str]:
    """Name what carries our label and is ours or of a dead owner."""
    api, ours = engine.sdk.api, {"label": [PROJECT_FILTER]}
    containers = [(one["Names"][0], one) for one in api.containers(all=True, filters=ours)]
    networks = [(one["Name"], one) for one in api.networks(filters=ours)]
    volumes = [(one["Name"], one) for one in api.volumes(filters=ours)["Volumes"] or ()]
    found = [*containers, *networks, *volumes]
    return [name for name, one in found if not _of_another(one["Labels"] or {})]


def _of_another(labels: dict[str, str]) -> bool:
    return labels.get("sandbox.pid") != str(os.getpid()) and owner_is_alive(labels)
