"""The ``sandbox`` command: finds the command's file, runs it, turns errors into messages.

Command files are imported only when they are asked for, so that ``sandbox --help`` imports
neither docker nor pydantic.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Protocol, cast

from sandbox.errors import ExitCode, SandboxError

COMMANDS = {
    "conformance": "run the selected cells, judge them, print the table, write the reports",
    "list": "list the cells that a selection holds",
    "judge": "judge an earlier run again with today's checks; needs no engine",
    "show": "the story of one cell: exchanges, tool calls, processes, files, verdicts",
    "figures": "what the cells of a run used and left: CPU, memory, disk, processes, files",
    "diff": "what differs between two runs: pins, images, verdicts, times",
    "merge": "bring the shards of a run together and judge the whole",
    "export": "trajectories of a run for other programs (ATIF)",
    "matrix": "the harnesses and images that CI has to run after a change",
    "doctor": "what this machine has and lacks, with cures",
    "prepare": "engine, images and runtimes, so that later commands start at once",
    "pins": "list, lock, verify, bump and audit what is pinned",
    "runtimes": "fetch the pinned runtimes onto this machine",
    "preflight": "what an image is and which harnesses will work in it, in about a second",
    "images": "list, build, lock and inspect task images",
    "cache": "list what the cache folder holds; remove what nobody needs",
    "egress": "what each harness phones home to, with our settings and with its defaults",
    "report": "what recorded cells tried to reach: a table for each harness (--egress)",
    "serve": "serve a harness's adapter, or another agent, by the agent contract",
    "schema": "print the JSON Schema of a record, or the OpenAPI document of the agent contract",
    "sweep": "remove containers, networks and volumes that dead runs left",
    "bench": "measure us beside the docker CLI and others, as ratios",
}

_EPILOG = """\
exit codes: 0 all pass or known; 1 a check failed or a baseline entry is stale; 2 usage;
3 nothing selected; 4 could not find out; 5 a prerequisite is missing; 130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (DESIGN.md section 8)."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        arguments = _parse(words)
        if arguments.command is None:
            _parser().print_help()
            return ExitCode.USAGE
        return int(_module(arguments.command).run(arguments))
    except KeyboardInterrupt:
        print("sandbox: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except SandboxError as error:
        if debug:
            traceback.print_exc()
        print(f"sandbox: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the last place where an error can be told
        traceback.print_exc()
        print(
            f"sandbox: a fault of this program: {type(error).__name__}: {error}\n"
            "  what to do: report the lines above",
            file=sys.stderr,
        )
        return ExitCode.ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sandbox",
        description="Does this coding-agent harness install, behave and tell the truth in this "
        "image?",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks of known errors too")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def _parse(words: list[str]) -> argparse.Namespace:
    """Parse in two steps, so that only the wanted command's file is imported."""
    if not words or words[0] not in COMMANDS:
        return _parser().parse_args(words)
    name = words[0]
    parser = argparse.ArgumentParser(prog=f"sandbox {name}", description=COMMANDS[name])
    parser.set_defaults(command=name)
    _module(name).configure(parser)
    return parser.parse_args(words[1:])


class _Command(Protocol):
    """What a command's file offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Do it."""


def _module(name: str) -> _Command:
    return cast("_Command", importlib.import_module(f"sandbox.commands.{name}"))
