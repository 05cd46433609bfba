"""The baseline: reviewed known failures, each with its reason; what no longer fails is stale.

::

    [[known]]
    cell = "codex/*/tool_failure"      # glob over cell ids
    check = "tool_status"              # exact check id
    reason = "what the evidence shows, and whose fault it is"
    link = "https://..."               # optional
    expires = 2027-06-30               # optional; after this day the failure counts again
    sometimes = true                   # optional; see below

An entry covers verdicts ``fail``, and the refusal of a cell that is ``unsupported`` (check
``cell_run``); it never covers ``error``, since an unknown cannot be a known failure. An entry with
``sometimes`` is of a failure that depends on timing within the harness: it is never stale, and its
reason says what decides.
"""

from __future__ import annotations

import datetime as dt
import difflib
import tomllib
from collections import Counter
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from pydantic import Field, ValidationError

from sandbox.errors import UsageError
from sandbox.evidence.folder import brief
from sandbox.evidence.records import Record
from sandbox.evidence.verdict import CELL_RUN


class KnownFailure(Record):
    """One entry of the baseline."""

    cell: str = Field(min_length=1)
    check: str = Field(min_length=1)
    reason: str = Field(min_length=10)
    link: str | None = None
    expires: dt.date | None = None
    sometimes: bool = False

    def __str__(self) -> str:
        """Name the entry by what it covers."""
        return f"{self.cell} {self.check}"

    def covers(self, cell_id: str, check: str) -> bool:
        """Whether the entry is about this check of this cell."""
        return check == self.check and fnmatchcase(cell_id, self.cell)

    def is_expired(self, today: dt.date) -> bool:
        """Whether the entry's last day is over."""
        return self.expires is not None and self.expires < today


class Baseline(Record):
    """All entries, in the order of the file."""

    known: tuple[KnownFailure, ...] = ()

    @cached_property
    def _by_check(self) -> dict[str, list[KnownFailure]]:
        """The entries by check: each verdict of each cell asks for its own."""
        found: dict[str, list[KnownFailure]] = {}
        for entry in self.known:
            found.setdefault(entry.check, []).append(entry)
        return found

    def entry_for(self, cell_id: str, check: str) -> KnownFailure | None:
        """Return the entry about this check of this cell.

        Raises:
            UsageError: two entries are about it, so their reasons contradict each other.
        """
        found = [entry for entry in self._by_check.get(check, ()) if entry.covers(cell_id, check)]
        if len(found) > 1:
            raise UsageError(
                f"two baseline entries cover {check} of {cell_id}: "
                f"{found[0].cell!r} and {found[1].cell!r}",
                cure="leave one of them, or make their globs disjoint",
            )
        return found[0] if found else None


def load_baseline(path: Path, *, checks: Collection[str]) -> Baseline:
    """Read and check a baseline file; ``checks`` are the ids that exist.

    Raises:
        UsageError: the file is missing, no TOML, has unknown keys or checks, or repeats an entry.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the baseline {path} cannot be read: {error}") from error
    return parse_baseline(text, checks=checks, name=str(path))


def parse_baseline(text: str, *, checks: Collection[str], name: str = "baseline") -> Baseline:
    """Read and check the text of a baseline; see ``load_baseline``."""
    try:
        baseline = Baseline.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {error}") from error
    except ValidationError as error:
        raise UsageError(f"{name}: {brief(error)}") from error
    _refuse_unknown_checks(baseline.known, [*checks, CELL_RUN], name)
    _refuse_repeats(baseline.known, name)
    return baseline


def _refuse_unknown_checks(
    entries: Sequence[KnownFailure], checks: Sequence[str], name: str
) -> None:
    for entry in entries:
        if entry.check not in checks:
            near = difflib.get_close_matches(entry.check, checks, n=1)
            raise UsageError(
                f"{name}: there is no check {entry.check!r} (entry for {entry.cell})",
                cure=f"did you mean {near[0]!r}?" if near else "see the ids: sandbox list",
            )


def _refuse_repeats(entries: Sequence[KnownFailure], name: str) -> None:
    seen = Counter((entry.cell, entry.check) for entry in entries)
    for (cell, check), times in seen.items():
        if times > 1:
            raise UsageError(
                f"{name}: {times} entries for {check} of {cell}", cure="leave one of them"
            )
