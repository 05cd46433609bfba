"""``sandbox pins ...``: what is pinned: listed, locked, verified, bumped, audited.

One file an action (``pins_*.py``), imported when it is asked for. Which exit code means what:
docs/pins.md.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Protocol, cast

from sandbox.errors import ExitCode

_ACTIONS = {
    "list": "harness, version, platforms, size, licence, libc floor and age of what is pinned",
    "lock": "resolve pins.toml and write pins.lock; of one harness only when it is named",
    "verify": "the lock, and every cached byte of it, offline; --online: what the registries serve",
    "outdated": "the newest versions that all wanted platforms have, after a cooldown",
    "sbom": "bill of materials of everything that is locked (CycloneDX 1.6)",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--pins", type=Path, metavar="FILE", help="another pins.toml")
        action.add_argument("--json", action="store_true", help="print JSON")
        _module(name).configure(action)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do the action."""
    return _module(arguments.action).run(arguments)


class _Action(Protocol):
    """What an action's file offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the action's own options."""

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Do it."""


def _module(name: str) -> _Action:
    return cast("_Action", importlib.import_module(f"sandbox.commands.pins_{name}"))
