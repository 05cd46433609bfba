"""``sandbox diff RUN_A RUN_B``: what differs in pins, images, verdicts and times."""

from __future__ import annotations

import argparse
from pathlib import Path

from sandbox.commands.reporting import baseline, judged
from sandbox.errors import ExitCode, UsageError
from sandbox.evidence.compare import compare
from sandbox.report.difference import difference


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("before", type=Path, metavar="RUN_A", help="the run folder to compare with")
    parser.add_argument("after", type=Path, metavar="RUN_B", help="the run folder to look at")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="another baseline.toml")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Judge both with today's checks and print the difference; 1 when a verdict became worse."""
    known = baseline(arguments.baseline)
    for folder in (arguments.before, arguments.after):
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder", cure="give two run folders")
    found = compare(judged(arguments.before, known=known), judged(arguments.after, known=known))
    print(found.model_dump_json(indent=2) if arguments.json else difference(found), end="")
    return ExitCode.FAILED if found.regressions else ExitCode.OK
