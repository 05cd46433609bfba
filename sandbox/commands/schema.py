"""``sandbox schema``: the published JSON Schemas, and the agent contract's OpenAPI document."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sandbox.agents.openapi import openapi_text
from sandbox.errors import ExitCode, UsageError
from sandbox.evidence.schemas import SCHEMAS, schema_text

OPENAPI = "agent-contract"
TEXTS: dict[str, tuple[str, Callable[[], str]]] = {
    **{f"{n}.schema.json": (text, partial(schema_text, n)) for n, (_, text) in SCHEMAS.items()},
    f"{OPENAPI}.openapi.json": ("the agent contract over HTTP (OpenAPI 3.1)", openapi_text),
}
"""Every published file by its name: what it is for, and its text."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="which to print (default: list them)"
    )
    parser.add_argument(
        "--write", type=Path, metavar="DIR", help="write all of them as files instead"
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print or write them."""
    if arguments.write is not None:
        for name, (_, text) in TEXTS.items():
            (arguments.write / name).write_text(text(), encoding="utf-8")
        return ExitCode.OK
    if arguments.name is None:
        for name, (what, _) in TEXTS.items():
            print(f"{name.partition('.')[0]:<16} {what}")
        return ExitCode.OK
    names = {name.partition(".")[0]: name for name in TEXTS}
    if arguments.name not in names:
        near = difflib.get_close_matches(arguments.name, names, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(
            f"there is no schema {arguments.name!r}", cure=f"{meant}there are: {', '.join(names)}"
        )
    print(TEXTS[names[arguments.name]][1](), end="")
    return ExitCode.OK
