"""The cells that `pins bump` and `pins diff` run with old and new pins, and what they answer."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.commands.folders import new_folder
from sandbox.commands.reporting import baseline
from sandbox.commands.selection import selected
from sandbox.conformance.compare import judged, run_both
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.prepare import prepare
from sandbox.conformance.printed import printed_version
from sandbox.conformance.ways import choose_way
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.engine.imagebuild.definition import arch_of
from sandbox.engine.images import image_definition
from sandbox.engine.owner import Ownership
from sandbox.errors import ExitCode, NothingSelected
from sandbox.evidence.difference import Difference
from sandbox.evidence.folder import write_text
from sandbox.evidence.records import Record
from sandbox.harnesses.registry import registered
from sandbox.progress import Progress
from sandbox.report.differencetext import difference_lines
from sandbox.runtimes.bump import Bump
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.workingcopy import WorkingCopy


class Sizes(Record):
    """A bundle's size in bytes, old and new; None: it is not pinned there."""

    harness: str
    platform: str
    old: int | None
    new: int | None


class Behaviour(Record):
    """What `pins bump` and `pins diff` answer with; ``written`` are the files that were changed."""

    bumps: tuple[Bump, ...]
    sizes: tuple[Sizes, ...]
    difference: Difference
    results: Path
    written: tuple[Path, ...] = ()


def cells_of(
    arguments: argparse.Namespace, engine: Engine, platforms: Mapping[str, Sequence[str]]
) -> tuple[CellSpec, ...]:
    """Return the selected cells of these harnesses on images of these platforms.

    Raises:
        NothingSelected: there is no such image for this engine.
    """
    options = argparse.Namespace(
        harness=list(platforms),
        image=arguments.image,
        scenario=arguments.scenario,
        profile=arguments.profile,
        cells=[],
        skip=[],
    )
    plan = tuple(
        cell
        for cell in selected(options)
        if platform_of(engine, cell.image) in platforms[cell.harness]
    )
    if not plan:
        wanted = sorted({one for each in platforms.values() for one in each})
        raise NothingSelected(
            f"no image of {', '.join(wanted)} is selected that this engine can run",
            cure="run it on a machine of that architecture, or select other images",
        )
    return plan


def platform_of(engine: Engine, image: str) -> str:
    """Return the platform word of an image on this engine."""
    found = image_definition(image)
    return found.platform(found.arch_on(arch_of(engine.info.architecture)))


def opened(copy: WorkingCopy, like: RuntimeLibrary, progress: Progress) -> RuntimeLibrary:
    """Open the pins of a working copy with the store and the npm of another library."""
    return RuntimeLibrary(copy.pins_path, progress=progress, store=like.store, npm=like.pinned_npm)


def said_version(
    engine: Engine, library: RuntimeLibrary, cell: CellSpec, progress: Progress
) -> str:
    """Return what the harness of a cell prints as its version there."""
    image = prepare(engine, library, [cell], progress, "copy")[cell.image]
    bundle = library.ensure_bundle(cell.harness, image.platform)
    owner = Ownership.current(run_id=f"pins-{secrets.token_hex(3)}")
    with progress.step(f"asking {cell.harness} {bundle.version} for its version"):
        return printed_version(engine, image, bundle, owner)


def compared(
    arguments: argparse.Namespace,
    engine: Engine,
    *,
    plan: tuple[CellSpec, ...],
    old: RuntimeLibrary,
    new: RuntimeLibrary,
    progress: Progress,
) -> tuple[Difference, Path]:
    """Run the cells with both and return what differs, and the folder of both runs."""
    known = baseline(arguments.baseline)
    run_id = f"pins-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    folder = new_folder(arguments.output or Path("results") / run_id)
    way = choose_way("auto")
    images = prepare(engine, old, plan, progress, way)
    prepare(engine, new, plan, progress, way)
    world = World(
        engine=engine,
        images=images,
        harnesses=registered().harnesses,
        library=old,
        run_id=run_id,
        folder=folder,
        progress=progress,
        way=way,
    )
    folders = run_both(plan, world, new, profile=arguments.profile, jobs=arguments.jobs)
    return judged(folders, baseline=known, today=dt.datetime.now(dt.UTC).date()), folder


def sizes(old: RuntimeLibrary, new: RuntimeLibrary, harnesses: Sequence[str]) -> tuple[Sizes, ...]:
    """Return the sizes of the bundles of these harnesses on both sides."""
    sides = [
        {(entry.harness, entry.platform): entry.size for entry in side.entries()}
        for side in (old, new)
    ]
    return tuple(
        Sizes(harness=name, platform=platform, old=sides[0].get(key), new=sides[1].get(key))
        for key in sorted(sides[0].keys() | sides[1].keys())
        for name, platform in [key]
        if name in harnesses
    )


def conclude(found: Behaviour, *, as_json: bool) -> ExitCode:
    """Print what was found, keep it beside the runs; 1 when one differs or fails, 4 unknown."""
    text = found.model_dump_json(indent=2)
    lines = "\n".join(_lines(found))
    write_text(found.results / "difference.json", text + "\n")
    write_text(found.results / "difference.txt", lines + "\n")
    print(json.dumps(json.loads(text), indent=2) if as_json else lines)
    if found.difference.unknown:
        return ExitCode.ERROR
    differs = found.difference.verdicts or found.difference.failing
    return ExitCode.FAILED if differs else ExitCode.OK


def _lines(found: Behaviour) -> list[str]:
    lines = []
    for bump in found.bumps:
        lines.append(f"{bump.harness} {bump.old} -> {bump.new} on {' '.join(bump.platforms)}")
        lines += [f"  stays: {platform} at {at}" for platform, at in bump.left.items()]
    lines += difference_lines(found.difference)
    lines += [f"size of {one.harness} on {one.platform}: {_size(one)}" for one in found.sizes]
    lines.append(f"results: {found.results}")
    if found.written:
        lines.append(f"written: {', '.join(map(str, found.written))}")
    elif found.bumps:
        lines.append("nothing was written; to keep the change: --write")
    return lines


def _size(one: Sizes) -> str:
    if one.old is None or one.new is None:
        return "only before" if one.new is None else "only now"
    change = one.new / one.old - 1
    return f"{one.old / 1e6:.1f} MB -> {one.new / 1e6:.1f} MB ({change:+.1%})"
