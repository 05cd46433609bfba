"""``sandbox matrix --github``: the harnesses and images that CI has to run, as a job matrix."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from sandbox.commands.selection import add_selection, selected
from sandbox.conformance.affected import PINS, Affected, affected, changed_pins, module_users
from sandbox.conformance.estimate import Estimates
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.shard import Shard
from sandbox.engine.imagebuild.definition import DerivedRecipe, image_definitions
from sandbox.errors import ExitCode, UsageError
from sandbox.evidence.costs import read_costs
from sandbox.harnesses.registry import GROUP, registered

_GIT_DEADLINE_S = 60.0
_NAMED = 5
_SHARD_S = 1800.0
"""Seconds of cells, one by one, that are worth a job: its set-up takes minutes."""
_ALL = Affected(harnesses=frozenset(), images=frozenset(), everything=("all",))
_ROOT = Path(__file__).resolve().parents[2]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_selection(parser)
    parser.add_argument(
        "--base",
        metavar="REF",
        help="only what the change since this commit touches (default: everything selected)",
    )
    parser.add_argument(
        "--shards",
        type=int,
        metavar="N",
        help="shards of all cells instead of a job for each harness and image, at most N: one for "
        f"each {_SHARD_S // 60:.0f} minutes that the cells take one by one",
    )
    parser.add_argument(
        "--timings",
        type=Path,
        metavar="FILE",
        help="the timings.json that the shards are cut by (conformance --shard --timings)",
    )
    parser.add_argument(
        "--github",
        action="store_true",
        help="print matrix=... and any=..., as GITHUB_OUTPUT takes them",
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print the matrix; an empty one is a result too."""
    touched = _ALL if not arguments.base else since(arguments.base, _ROOT)
    if arguments.base and touched.everything:
        more = len(touched.everything) - _NAMED
        names = ", ".join(touched.everything[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        print(f"everything may be touched by {names}", file=sys.stderr)
    cells = [cell for cell in selected(arguments) if touched.touches(cell.harness, cell.image)]
    pairs = list(dict.fromkeys((cell.harness, cell.image) for cell in cells))
    if arguments.shards is None:
        include = [{"harness": harness, "image": image} for harness, image in pairs]
    else:
        include = _shards(cells, arguments)
        if touched.everything:
            words = ""
        else:
            words = " ".join(f"'{harness}/{image}/*'" for harness, image in pairs)
        include = [{**one, "cells": words} for one in include]
    text = json.dumps({"include": include}, separators=(",", ":"))
    if arguments.github:
        print(f"matrix={text}\nany={'true' if include else 'false'}")
    else:
        print(text)
    return ExitCode.OK


def _shards(cells: Sequence[CellSpec], arguments: argparse.Namespace) -> list[dict[str, str]]:
    """Return the shards that are worth a job, at most as many as were asked for."""
    if arguments.shards < 1:
        raise UsageError(f"--shards {arguments.shards}: at least one")
    costs = {} if arguments.timings is None else read_costs(arguments.timings)
    known = Estimates(costs, registered().harnesses)
    worth = math.ceil(sum(map(known.seconds, cells)) / _SHARD_S)
    count = min(arguments.shards, len(cells), worth)
    return [{"shard": str(Shard(number=k, count=count))} for k in range(1, count + 1)]


def since(base: str, root: Path) -> Affected:
    """Return what the change since ``base`` touches; everything when git cannot tell."""
    names = _git(root, "diff", "--name-only", "--no-renames", "-z", f"{base}...HEAD")
    if names is None:
        return Affected(
            harnesses=frozenset(), images=frozenset(), everything=(f"a history without {base}",)
        )
    paths = [path for path in names.split("\0") if path]
    pinned, unclear = _pinned(base, root, [path for path in paths if path in PINS])
    modules = {point.name: point.module for point in entry_points(group=GROUP)}
    found = affected(
        paths,
        images={
            name: (one.recipe.base,) if isinstance(one.recipe, DerivedRecipe) else ()
            for name, one in image_definitions().items()
        },
        users=module_users(root, modules),
        pinned=pinned,
    )
    return found.model_copy(update={"everything": (*found.everything, *unclear)})


def _pinned(base: str, root: Path, paths: list[str]) -> tuple[frozenset[str], list[str]]:
    """Return the harnesses whose pins changed, and the pins files that cannot tell."""
    names, unclear = frozenset[str](), []
    fork = (_git(root, "merge-base", base, "HEAD") or base).strip()
    for path in paths:
        before, after = _git(root, "show", f"{fork}:{path}"), _git(root, "show", f"HEAD:{path}")
        found = None if before is None or after is None else changed_pins(before, after)
        if found is None:
            unclear.append(path)
        else:
            names |= found
    return names, unclear


def _git(root: Path, *words: str) -> str | None:
    ended = subprocess.run(
        ["git", "-C", str(root), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=_GIT_DEADLINE_S,
    )
    return ended.stdout if ended.returncode == 0 else None
