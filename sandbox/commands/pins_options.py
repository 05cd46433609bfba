"""The options of each `sandbox pins` action, apart from the actions: these import no engine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from sandbox.conformance.profiles import PROFILES

_COOLDOWN_DAYS = 7


def add_options(action: str, parser: argparse.ArgumentParser) -> None:
    """Add the options of one action; every one has ``--pins`` and ``--json``."""
    parser.add_argument("--pins", type=Path, metavar="FILE", help="this pins.toml alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    if action in _OWN:
        _OWN[action](parser)


def _lock(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "harness", nargs="*", metavar="HARNESS", help="only its entries (default: all)"
    )


def _verify(parser: argparse.ArgumentParser) -> None:
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument("--lock", action="store_true", help="only the lock, no cached byte")
    depth.add_argument(
        "--online", action="store_true", help="also ask the registries for each file's hash"
    )
    parser.add_argument("--all", action="store_true", help="name the good ones too")


def _outdated(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cooldown",
        type=float,
        default=_COOLDOWN_DAYS,
        metavar="DAYS",
        help=f"how old a release must be (default: {_COOLDOWN_DAYS})",
    )


def _sbom(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")


def _audit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="name every file, not only sums")


def _bump(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("harness", metavar="HARNESS")
    parser.add_argument(
        "version", nargs="?", metavar="VERSION", help="default: what `pins outdated` offers"
    )
    parser.add_argument(
        "--platform",
        action="append",
        default=[],
        metavar="GLOB",
        help="which pinned version to bump, where platforms are pinned apart",
    )
    _outdated(parser)
    _cells(parser)


def _diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=Path, metavar="BASE", help="the pins.toml to compare with")
    _cells(parser)


def _cells(parser: argparse.ArgumentParser) -> None:
    for axis in ("image", "scenario"):
        parser.add_argument(
            f"--{axis}", action="append", default=[], metavar="GLOB", help=f"only such {axis} names"
        )
    parser.add_argument(
        "--profile", choices=tuple(PROFILES), default="quick", help="whose scenarios (quick)"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="pairs of cells at a time")
    parser.add_argument("--output", type=Path, metavar="DIR", help="new folder for both runs")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="another baseline.toml")
    parser.add_argument(
        "--write", action="store_true", help="keep the change: pins, lock and sources of trees"
    )
    parser.add_argument(
        "--ensure-engine",
        action="store_true",
        help="as root with apt, install and start Docker when no engine answers",
    )


_OWN: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "lock": _lock,
    "verify": _verify,
    "outdated": _outdated,
    "bump": _bump,
    "diff": _diff,
    "sbom": _sbom,
    "audit": _audit,
}
