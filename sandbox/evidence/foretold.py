"""A run's cells beside what its preflight foretold: ``preflight.json`` of the run's folder.

The predictions are made and written before the first cell. A cell that was refused proves
``cannot``, and only for the reason that was foretold; one that was run disproves it. That a harness
works is proved by a graded ``tool_success``; cells of other scenarios only show that the seed did
not refuse the image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from sandbox.errors import CouldNotFindOut
from sandbox.evidence.folder import CellFiles, brief, write_text
from sandbox.evidence.preflight import (
    Forecast,
    ImagePreflight,
    Outcome,
    PreflightReport,
    Proof,
    Proven,
)
from sandbox.evidence.records import Record
from sandbox.evidence.rows import SuccessRow

FILE = "preflight.json"
PROVING = "tool_success"
"""The scenario whose success proves that a harness works in an image."""

_Kind = Literal["cells", "refusals", "disagreeing", "undecided", "unforetold"]
_T = TypeVar("_T")

TOLD = 200
"""Cells of a kind that are named; the rest is counted."""


class Ended(NamedTuple):
    """What one recorded cell proves: all that the comparison needs of it."""

    cell_id: str
    harness: str
    image: str
    proof: Proof


class Disagreement(Record):
    """A cell that did not end as was foretold."""

    cell_id: str
    foretold: Outcome
    ended: Proven
    reason: str


class Foretold(Record):
    """Predictions and cells of one run side by side.

    ``forecasts`` counts pairs of harness and image; ``cells`` those with a prediction that were
    recorded; ``refusals`` the refused ones among them that agree, ``disagreeing`` those that do
    not. ``undecided`` cells prove nothing, since the engine failed or the run was interrupted.
    ``unforetold`` are refused cells that nothing was foretold of. Of each kind the first ``TOLD``
    are named. Each execution of a repeated cell counts.
    """

    forecasts: int
    cells: int
    refusals: int
    disagreeing: int
    undecided: int
    unforetold: int
    disagreements: tuple[Disagreement, ...] = ()
    undecided_cells: tuple[str, ...] = ()
    unforetold_cells: tuple[str, ...] = ()


def ended(files: CellFiles) -> Ended:
    """Return what a recorded cell brings to the comparison."""
    cell = files.cell
    return Ended(cell.cell_id, cell.harness.partition("+")[0], cell.image, proof_of(files))


def proof_of(files: CellFiles) -> Proof:
    """Say what a cell proves.

    ``works``: the episode was graded and the verifier found what the tools had to leave (of other
    scenarios than ``tool_success``: it was run). ``cannot``: the seed refused it. ``undecided``:
    the engine failed under it, or it was interrupted. Everything else is ``failed``, an expired
    deadline too.
    """
    refusal = files.cell.refusal
    if refusal is not None:
        outcome: Proven = "cannot" if refusal.kind == "unsupported" else "undecided"
        return Proof(outcome=outcome, reason=refusal.reason)
    if files.cell.scenario != PROVING:
        return Proof(outcome="works")
    if files.receipt is not None and files.receipt.timed_out:
        calls = len(files.exchanges or ())
        reason = f"the agent's deadline expired after {calls} model request(s)"
        return Proof(outcome="failed", reason=reason)
    if isinstance(files.row, SuccessRow):
        done = files.row.reward == 1
        return Proof(outcome="works" if done else "failed", reason="" if done else "graded 0")
    return Proof(outcome="failed", reason=files.row.failure_message if files.row else "no row")


class Comparison:
    """Holds cells against the report as they come; its size does not depend on their number."""

    def __init__(self, report: PreflightReport) -> None:
        self._known = {
            (forecast.harness, image.name): forecast
            for image in report.images
            for forecast in image.forecasts
        }
        self._counts: Counter[_Kind] = Counter()
        self._wrong: list[Disagreement] = []
        self._undecided: list[str] = []
        self._unforetold: list[str] = []

    def add(self, cell: Ended) -> None:
        """Take one execution of a cell."""
        forecast, proof = self._known.get((cell.harness, cell.image)), cell.proof
        if forecast is None or forecast.outcome == "unknown":
            if proof.outcome == "cannot":
                self._count("unforetold", self._unforetold, cell.cell_id)
            return
        self._counts["cells"] += 1
        if proof.outcome == "undecided":
            self._count("undecided", self._undecided, cell.cell_id)
        elif (why := _against(forecast, proof)) is not None:
            wrong = Disagreement(
                cell_id=cell.cell_id, foretold=forecast.outcome, ended=proof.outcome, reason=why
            )
            self._count("disagreeing", self._wrong, wrong)
        elif proof.outcome == "cannot":
            self._counts["refusals"] += 1

    def end(self) -> Foretold:
        """Return the result, when all cells were added."""
        return Foretold(
            forecasts=len(self._known),
            cells=self._counts["cells"],
            refusals=self._counts["refusals"],
            disagreeing=self._counts["disagreeing"],
            undecided=self._counts["undecided"],
            unforetold=self._counts["unforetold"],
            disagreements=tuple(self._wrong),
            undecided_cells=tuple(self._undecided),
            unforetold_cells=tuple(self._unforetold),
        )

    def _count(self, kind: _Kind, named: list[_T], one: _T) -> None:
        self._counts[kind] += 1
        if len(named) < TOLD:
            named.append(one)


def compare(report: PreflightReport, cells: Iterable[Ended]) -> Foretold:
    """Hold what every recorded cell proves against the report."""
    comparison = Comparison(report)
    for cell in cells:
        comparison.add(cell)
    return comparison.end()


def _against(forecast: Forecast, proof: Proof) -> str | None:
    """Say what is wrong with a prediction; None when nothing is."""
    if forecast.model_copy(update={"proof": proof}).agrees is False:
        return proof.reason or "it was run, and not refused"
    if proof.outcome == "cannot" and proof.reason != forecast.reason:
        return f"refused for another reason: {proof.reason} (foretold: {forecast.reason})"
    return None


def write_preflight(run: Path, report: PreflightReport) -> None:
    """Write the predictions into the run's folder by one rename."""
    write_text(run / FILE, report.model_dump_json(indent=2) + "\n")


def read_preflight(run: Path) -> PreflightReport | None:
    """Read the predictions of a run; None where it made none.

    Raises:
        CouldNotFindOut: the file is not a report of this version.
    """
    try:
        data = (run / FILE).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return PreflightReport.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise CouldNotFindOut(
            f"{run / FILE} is not a preflight report: {brief(error)}",
            cure="remove it to judge the cells without it, or run again",
        ) from error


def united(reports: Iterable[PreflightReport]) -> PreflightReport | None:
    """Bring the predictions of a run's parts together, image by image; None when there are none."""
    found = list(reports)
    if not found:
        return None
    images: dict[str, ImagePreflight] = {}
    for report in found:
        for image in report.images:
            before = images.get(image.name)
            more = () if before is None else before.forecasts
            names = {one.harness for one in more}
            new = tuple(one for one in image.forecasts if one.harness not in names)
            images[image.name] = image.model_copy(update={"forecasts": (*more, *new)})
    return found[0].model_copy(
        update={
            "images": tuple(images.values()),
            "seconds": round(sum(one.seconds for one in found), 3),
        }
    )
