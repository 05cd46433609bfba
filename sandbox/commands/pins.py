"""``sandbox pins ...``: what is pinned: listed, locked, verified, bumped, audited.

One file an action (``pins_*.py``), imported when it is asked for. Which exit code means what:
docs/pins.md.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Protocol, cast

from sandbox.commands.pins_options import add_options
from sandbox.errors import ExitCode

_ACTIONS = {
    "list": "harness, version, platforms, size, licence, libc floor and age of what is pinned",
    "lock": "resolve pins.toml and write pins.lock; of one harness only when it is named",
    "verify": "the lock, and every cached byte of it, offline; --online: what the registries serve",
    "outdated": "the newest versions that all wanted platforms have, after a cooldown",
    "bump": "another version of a harness, its behaviour beside that of the pinned one",
    "diff": "the behaviour of these pins beside that of other ones, as those of a base branch",
    "sbom": "bill of materials of everything that is locked (CycloneDX 1.6)",
    "audit": "signatures and provenance that the registries publish for what is locked",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in _ACTIONS.items():
        add_options(name, actions.add_parser(name, help=text, description=text))


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do the action."""
    module = importlib.import_module(f"sandbox.commands.pins_{arguments.action}")
    return cast("_Action", module).run(arguments)


class _Action(Protocol):
    """What an action's file offers."""

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Do it."""
