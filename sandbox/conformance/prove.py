"""Puts a preflight's predictions to the proof: one cell of ``tool_success`` for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandbox.conformance.plan import CellSpec
from sandbox.evidence.folder import cell_folder, read_cell
from sandbox.evidence.preflight import ImagePreflight, PreflightReport, Proof
from sandbox.evidence.rows import SuccessRow

SCENARIO = "tool_success"


def plan_of(report: PreflightReport) -> tuple[CellSpec, ...]:
    """Return the cells that prove the report's predictions."""
    return tuple(
        CellSpec(harness=forecast.harness, image=image.name, scenario=SCENARIO)
        for image in report.images
        for forecast in image.forecasts
    )


def with_proofs(report: PreflightReport, run: Path) -> PreflightReport:
    """Return the report with how each cell of the run folder ended."""
    proofs = {cell.cell_id: proof_of(cell_folder(run, cell.cell_id)) for cell in plan_of(report)}
    return report.model_copy(
        update={"images": tuple(_proven(image, proofs) for image in report.images)}
    )


def proof_of(folder: Path) -> Proof | None:
    """Say how a cell ended; None when it was not run.

    ``works`` means that the episode was graded and the verifier found what the tools had to leave;
    ``cannot`` that the seed refused it; ``undecided`` that its deadline expired; everything else is
    ``failed``.

    Raises:
        CouldNotFindOut: its record cannot be read.
    """
    if not folder.is_dir():
        return None
    files = read_cell(folder)
    refusal = files.cell.refusal
    if refusal is not None:
        outcome = "cannot" if refusal.kind == "unsupported" else "failed"
        return Proof(outcome=outcome, reason=refusal.reason)
    if files.receipt is not None and files.receipt.timed_out:
        return Proof(outcome="undecided", reason="the agent's deadline expired")
    if isinstance(files.row, SuccessRow):
        done = files.row.reward == 1
        return Proof(outcome="works" if done else "failed", reason="" if done else "graded 0")
    return Proof(outcome="failed", reason=files.row.failure_message if files.row else "no row")


def _proven(image: ImagePreflight, proofs: Mapping[str, Proof | None]) -> ImagePreflight:
    forecasts = tuple(
        forecast.model_copy(update={"proof": proofs[f"{forecast.harness}/{image.name}/{SCENARIO}"]})
        for forecast in image.forecasts
    )
    return image.model_copy(update={"forecasts": forecasts})
