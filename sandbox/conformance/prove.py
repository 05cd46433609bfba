"""Puts a preflight's predictions to the proof: one cell of ``tool_success`` for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandbox.conformance.plan import CellSpec
from sandbox.evidence.folder import cell_folder, read_cell
from sandbox.evidence.foretold import PROVING, proof_of
from sandbox.evidence.preflight import ImagePreflight, PreflightReport, Proof


def plan_of(report: PreflightReport) -> tuple[CellSpec, ...]:
    """Return the cells that prove the report's predictions."""
    return tuple(
        CellSpec(harness=forecast.harness, image=image.name, scenario=PROVING)
        for image in report.images
        for forecast in image.forecasts
    )


def with_proofs(report: PreflightReport, run: Path) -> PreflightReport:
    """Return the report with how each cell of the run folder ended."""
    proofs = {cell.cell_id: _proof_in(cell_folder(run, cell.cell_id)) for cell in plan_of(report)}
    return report.model_copy(
        update={"images": tuple(_proven(image, proofs) for image in report.images)}
    )


def _proof_in(folder: Path) -> Proof | None:
    """Say what the cell in a folder proves; None when it was not run.

    Raises:
        CouldNotFindOut: its record cannot be read.
    """
    return proof_of(read_cell(folder)) if folder.is_dir() else None


def _proven(image: ImagePreflight, proofs: Mapping[str, Proof | None]) -> ImagePreflight:
    forecasts = tuple(
        forecast.model_copy(update={"proof": proofs[f"{forecast.harness}/{image.name}/{PROVING}"]})
        for forecast in image.forecasts
    )
    return image.model_copy(update={"forecasts": forecasts})
