"""``sandbox diff RUN_A RUN_B``: what differs in pins, images, verdicts and times."""

from __future__ import annotations

import argparse
from pathlib import Path

from sandbox.commands.comparing import pairs
from sandbox.commands.reporting import baseline, judge_of
from sandbox.errors import ExitCode, UsageError
from sandbox.evidence.compare import Comparing, Comparison
from sandbox.evidence.judge import Judge, sources
from sandbox.report.difference import difference


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("before", type=Path, metavar="RUN_A", help="the run folder to compare with")
    parser.add_argument("after", type=Path, metavar="RUN_B", help="the run folder to look at")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="another baseline.toml")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Judge both with today's checks and print the difference; 1 when a verdict became worse."""
    judge = judge_of(baseline(arguments.baseline))
    for folder in (arguments.before, arguments.after):
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder", cure="give two run folders")
    found = compared(arguments.before, arguments.after, judge)
    print(found.model_dump_json(indent=2) if arguments.json else difference(found), end="")
    return ExitCode.FAILED if found.regressions else ExitCode.OK


def compared(before: Path, after: Path, judge: Judge) -> Comparison:
    """Compare two run folders; neither run is in memory as a whole."""
    old, new = sources(before), sources(after)
    found = Comparing()
    for pair in pairs(judge, old, new):
        found.add(pair)
    ids = [None if one.record is None else one.record.run_id for one in (old, new)]
    return found.end(*ids)
