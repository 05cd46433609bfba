"""The options that select cells, shared by ``conformance`` and ``list``."""

from __future__ import annotations

import argparse

from sandbox.conformance.imagenames import read_image_words
from sandbox.conformance.plan import LEGACY, LEGACY_HARNESSES, Axes, CellSpec, Selection, make_plan
from sandbox.conformance.profiles import PROFILES
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.engine.imagebuild.definition import image_definitions
from sandbox.engine.limits import DEFAULT_LIMITS
from sandbox.errors import NothingSelected, UsageError
from sandbox.harnesses.registry import Registered, registered

DEFAULT_PROFILE = "quick"


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the filters: one glob option an axis, whole cell ids, and the profile."""
    for axis in ("harness", "scenario"):
        parser.add_argument(
            f"--{axis}", action="append", default=[], metavar="GLOB", help=f"only such {axis} names"
        )
    parser.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="IMAGE",
        help="a glob of defined names, 'all', an image reference (name:tag, name@digest), or a "
        "file with one of these a line (default: the default images)",
    )
    parser.add_argument(
        "--skip", action="append", default=[], metavar="GLOB", help="not such cells"
    )
    parser.add_argument(
        "--profile",
        choices=tuple(PROFILES),
        help="; ".join(f"{profile.name}: {profile.text}" for profile in PROFILES.values())
        + f" (default: {DEFAULT_PROFILE})",
    )
    parser.add_argument(
        "cells", nargs="*", metavar="CELL", help="cell ids or globs, as codex/alpine-*/tool_success"
    )


def is_selective(arguments: argparse.Namespace) -> bool:
    """Whether any filter or profile was given."""
    axes = (arguments.harness, arguments.image, arguments.scenario, arguments.skip, arguments.cells)
    return arguments.profile is not None or any(axes)


def selected(arguments: argparse.Namespace, *, only: str | None = None) -> tuple[CellSpec, ...]:
    """Return the plan that the options ask for; ``only``: the one harness there is.

    Raises:
        UsageError: an unknown name, a file of images that cannot be read, or the adapter of a
            harness that is asked for is broken: a run that left it out would look whole.
        PrerequisiteMissing: an image is named whose base is not locked.
        NothingSelected: the filters leave no cell.
    """
    if only is not None:
        return _plan(arguments, (only,), tuple(arguments.harness))
    plan, broken = planned(arguments)
    for name, error in broken.items():
        raise UsageError(
            error.message, cure=f"{error.cure}, or leave its cells out: --skip '{name}/*'"
        )
    return plan


def planned(
    arguments: argparse.Namespace, harnesses: Registered | None = None
) -> tuple[tuple[CellSpec, ...], dict[str, UsageError]]:
    """Return the plan without the cells of broken adapters, and those adapters' errors.

    Args:
        arguments: the parsed options.
        harnesses: the adapters; those of the installed packages by default.

    Raises:
        UsageError: an unknown name, or nothing but cells of broken adapters is asked for.
        NothingSelected: the filters leave no cell.
    """
    known = harnesses or registered()
    names = (*known.names, *_both_ways(arguments, known))
    plan = _plan(arguments, names, _harnesses(arguments))
    broken = {
        cell.harness: known.broken[cell.adapter] for cell in plan if cell.adapter in known.broken
    }
    sound = tuple(cell for cell in plan if cell.harness not in broken)
    if not sound:
        raise next(iter(broken.values()))
    return sound, broken


def _both_ways(arguments: argparse.Namespace, known: Registered) -> tuple[str, ...]:
    """Return the harnesses that are asked by ``/run`` too: in the full profile, or when named."""
    words = (*arguments.harness, *arguments.cells)
    wanted = arguments.profile == "full" or any(LEGACY in word for word in words)
    there = (name for name in LEGACY_HARNESSES if name.removesuffix(LEGACY) in known.names)
    return tuple(there) if wanted else ()


def _plan(
    arguments: argparse.Namespace, harnesses: tuple[str, ...], globs: tuple[str, ...]
) -> tuple[CellSpec, ...]:
    profile = arguments.profile or DEFAULT_PROFILE
    scenarios = tuple(
        scenario.name for scenario in SCENARIOS.values() if profile in scenario.profiles
    )
    images = read_image_words(arguments.image, image_definitions())
    if arguments.cells and not arguments.image:
        images = images.model_copy(update={"globs": ()})
    axes = Axes(
        harnesses=harnesses,
        images=images.known,
        scenarios=scenarios,
    )
    plan = make_plan(
        axes,
        Selection(
            harnesses=globs,
            images=images.globs,
            scenarios=tuple(arguments.scenario),
            cells=tuple(arguments.cells),
            skip=tuple(arguments.skip),
        ),
    )
    kept = tuple(cell for cell in plan if not (cell.legacy and _needs_a_session(cell)))
    if not kept:
        raise NothingSelected("the selected scenarios make no sense by /run", cure="sandbox list")
    return kept


def _needs_a_session(cell: CellSpec) -> bool:
    """Whether a scenario makes no sense by ``/run``.

    It goes on after a close, has another session beside it, or is cancelled: nobody gets the answer
    of a run that was hung up. It limits the sandbox, which the agent makes by ``/run``. Or its
    verifier breaks: a run that was not verified answers with an error and no evidence.
    """
    scenario = SCENARIOS[cell.scenario]
    expected = scenario.expectation
    return (
        scenario.companion is not None
        or bool(expected.reactivated)
        or expected.stopped
        or scenario.limits != DEFAULT_LIMITS
        or expected.failure_stage == "verification"
    )


def _harnesses(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the harness globs: those that were named, else the profile's own."""
    if arguments.harness or arguments.cells:
        return tuple(arguments.harness)
    return PROFILES[arguments.profile or DEFAULT_PROFILE].harnesses
