"""``sandbox matrix --github``: the harnesses and images that CI has to run, as a job matrix."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from sandbox.commands.selection import add_selection, selected
from sandbox.conformance.affected import PINS, Affected, affected, changed_pins, module_users
from sandbox.engine.imagebuild.definition import DerivedRecipe, image_definitions
from sandbox.errors import ExitCode
from sandbox.harnesses.registry import GROUP

_GIT_DEADLINE_S = 60.0
_NAMED = 5
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
    pairs = dict.fromkeys((cell.harness, cell.image) for cell in selected(arguments))
    include = [
        {"harness": harness, "image": image}
        for harness, image in pairs
        if touched.touches(harness, image)
    ]
    text = json.dumps({"include": include}, separators=(",", ":"))
    if arguments.github:
        print(f"matrix={text}\nany={'true' if include else 'false'}")
    else:
        print(text)
    return ExitCode.OK


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
