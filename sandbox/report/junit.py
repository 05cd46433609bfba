"""``junit.xml``: one suite for each harness and image, one case for each check of a cell.

A failure is a failure, "could not find out" is an error; what the baseline knows and what does not
apply is skipped, with the reason as message. A cell that ran only after the engine had failed has a
passing case ``cell_run`` with a ``flakyError`` in it (Maven Surefire's form). A stale baseline
entry is a failed case of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from sandbox.evidence.results import CellResult, RunOutcome, StaleEntry, split_id
from sandbox.evidence.verdict import Status, Verdict

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPACES = {ord(space): f"&#{ord(space)};" for space in "\t\n\r"}
"""In an attribute these would be read as plain spaces."""
_COUNTED = {"tests": "", "failures": "failure", "errors": "error", "skipped": "skipped"}
"""What suites count, and the element in a case that makes it count."""


@dataclass(frozen=True)
class JunitPiece:
    """The cases of one cell, with how many there are of each kind."""

    text: str
    counts: Counter[str]


@dataclass(frozen=True)
class _Case:
    """One case; ``result`` is the element in it: its name, its message and perhaps its type."""

    name: str
    classname: str
    result: tuple[str, str, str | None] | None = None

    def __str__(self) -> str:
        head = f"<testcase name={_quoted(self.name)} classname={_quoted(self.classname)}"
        if self.result is None:
            return f"{head}/>"
        tag, message, kind = self.result
        more = "" if kind is None else f" type={_quoted(kind)}"
        return f"{head}><{tag} message={_quoted(message)}{more}/></testcase>"


def junit_piece(cell: CellResult) -> JunitPiece:
    """Return the cases of a cell."""
    classname = ".".join(split_id(cell.cell_id))
    return _piece([_Case(one.check, classname, _result(one)) for one in cell.verdicts])


def stale_piece(run: RunOutcome) -> JunitPiece:
    """Return the cases of the stale baseline entries, which are a suite of their own."""
    return _piece([_stale(entry) for entry in run.stale])


def _piece(cases: Iterable[_Case]) -> JunitPiece:
    found = list(cases)
    tags = Counter(case.result[0] for case in found if case.result is not None)
    counts = Counter({name: tags[tag] for name, tag in _COUNTED.items() if tag})
    counts["tests"] = len(found)
    return JunitPiece("\n".join(map(str, found)), counts)


def junit_head(run: RunOutcome, counts: Counter[str]) -> str:
    """Return the beginning of the file."""
    name = _quoted(f"conformance {run.run_id}")
    numbers = _numbers(counts)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name={name} {numbers}>\n'


JUNIT_END = "</testsuites>\n"
SUITE_END = "</testsuite>\n"


def suite_head(name: str, counts: Counter[str]) -> str:
    """Return the beginning of a suite: of a harness and image, or of the baseline."""
    return f"<testsuite name={_quoted(name)} {_numbers(counts)}>\n"


def _numbers(counts: Counter[str]) -> str:
    return " ".join(f'{name}="{counts[name]}"' for name in _COUNTED) + ' time="0"'


def _result(verdict: Verdict) -> tuple[str, str, str | None] | None:
    reason = f"{verdict.flaky}: {verdict.reason}" if verdict.flaky else verdict.reason
    if verdict.known is not None:
        return "skipped", f"known: {verdict.known} ({reason})", None
    if verdict.status is Status.FAIL:
        return "failure", reason, verdict.tier.value
    if verdict.status is Status.ERROR:
        return "error", reason, verdict.tier.value
    if verdict.status is Status.NOT_APPLICABLE:
        return "skipped", f"not applicable: {reason}", None
    return None if verdict.flaky is None else ("flakyError", reason, verdict.tier.value)


def _stale(entry: StaleEntry) -> _Case:
    near = f"; near miss: {entry.near}" if entry.near else ""
    message = f"the failure is gone: {entry.reason}{near}"
    return _Case(f"{entry.cell} {entry.check}", "baseline", ("failure", message, "stale"))


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    """Return an attribute's value; what XML 1.0 cannot hold is replaced.

    The cells of a run say few different things.
    """
    return f'"{escape(_NOT_XML.sub(chr(0xFFFD), text)).translate(_SPACES)}"'
