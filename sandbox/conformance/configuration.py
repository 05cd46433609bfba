"""What decides a run's results, gathered before its first cell (``RunConfiguration``)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from importlib.metadata import version

from sandbox.conformance.plan import CellSpec
from sandbox.conformance.scenario import Scenario
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.engine.images import LoadedImage
from sandbox.evidence.cell import RunConfiguration, ServerChoice
from sandbox.runtimes.reports import RuntimeEntry

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Where a function is in memory: part of its repr, and another one in each process."""


def configuration(
    plan: Sequence[CellSpec],
    *,
    profile: str,
    repeat: int,
    isolation: str,
    install: str,
    conditions: tuple[str, ...],
    images: Mapping[str, LoadedImage],
    runtimes: Iterable[RuntimeEntry],
    agent: ServerChoice | None = None,
) -> RunConfiguration:
    """Return the configuration of a run of this plan.

    ``images`` are the loaded ones of the cells at hand, ``runtimes`` every locked bundle,
    ``agent`` the server that is tested, if one is.
    """
    shown = {cell.image for cell in plan} & set(images)
    used = {f"{cell.adapter} {images[cell.image].platform}" for cell in plan if cell.image in shown}
    pins = pins_by_platform(runtimes)
    return RunConfiguration(
        profile=profile,
        plan=tuple(cell.cell_id for cell in plan),
        repeat=repeat,
        isolation=isolation,
        install=install,
        conditions=conditions,
        tool_version=version("sandbox"),
        pins={name: pins[name] for name in sorted(used & set(pins))},
        images={name: images[name].image_id for name in sorted(shown)},
        scenarios={
            name: scenario_digest(SCENARIOS[name])
            for name in sorted({cell.scenario for cell in plan})
        },
        agent=agent,
    )


def pins_by_platform(runtimes: Iterable[RuntimeEntry]) -> dict[str, str]:
    """Return version and bundle of locked runtimes by ``harness platform``."""
    return {
        f"{one.harness} {one.platform}": f"{one.version} sha256:{one.sha256}" for one in runtimes
    }


def scenario_digest(scenario: Scenario) -> str:
    """Return a digest of what a scenario runs and expects: its data, and its script as a value."""
    data = {
        field.name: repr(getattr(scenario, field.name))
        for field in fields(scenario)
        if not callable(getattr(scenario, field.name))
    }
    text = repr((sorted(data.items()), scenario.script("rollout")))
    steady = _ADDRESS.sub("", text)
    return f"sha256:{hashlib.sha256(steady.encode()).hexdigest()}"
