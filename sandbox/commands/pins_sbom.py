"""``sandbox pins sbom``: the bill of materials of everything that is locked."""

from __future__ import annotations

import argparse
import json

from sandbox.errors import ExitCode
from sandbox.evidence.folder import write_text
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.sbom import sbom


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print it; it is JSON in any case."""
    with RuntimeLibrary(arguments.pins) as library:
        text = json.dumps(sbom(library.pins, library.lock()), indent=2, sort_keys=True)
    if arguments.output:
        write_text(arguments.output, text + "\n")
    else:
        print(text)
    return ExitCode.OK
