"""The option that makes sandboxes harder, shared by ``conformance`` and ``preflight``."""

from __future__ import annotations

import argparse

from sandbox.conformance.conditions import CONDITIONS


def add_conditions(parser: argparse.ArgumentParser) -> None:
    """Add it; it can be given several times."""
    parser.add_argument(
        "--condition",
        action="append",
        default=[],
        choices=tuple(CONDITIONS),
        help="make every sandbox harder: "
        + "; ".join(f"{name}: {item.text}" for name, item in CONDITIONS.items()),
    )
