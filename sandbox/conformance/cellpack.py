"""A cell folder as one tar: made where the cell ran, checked and put in its place elsewhere."""

from __future__ import annotations

import io
import shutil
import tarfile
import uuid
from pathlib import Path

from sandbox.engine.archive import Owner, coalesce, stream_tree
from sandbox.engine.unpack import unpack
from sandbox.errors import CouldNotFindOut, IntegrityError
from sandbox.evidence.cell import CellRecord
from sandbox.evidence.folder import cell_folder, read_cell

_NOBODY = Owner(uid=0, gid=0)


def packed(folder: Path) -> bytes:
    """Return a cell folder as a tar; the same content gives the same bytes, times apart."""
    return b"".join(coalesce(stream_tree(folder, "", _NOBODY)))


def place(run: Path, cell_id: str, tar: bytes, *, run_id: str) -> CellRecord:
    """Put a packed cell folder where its run keeps it, by one rename; return its record.

    A folder of the same cell that is there already is replaced whole, never mixed with.

    Args:
        run: the run's folder.
        cell_id: the cell that was asked for.
        tar: what came for it.
        run_id: the run's.

    Raises:
        IntegrityError: it is no cell folder, or that of another cell or run; nothing is written.
    """
    folder = cell_folder(run, cell_id)
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = (
        folder.parent / f".{folder.name}.tmp-{uuid.uuid4().hex}{end}" for end in ("", "-old")
    )
    try:
        fresh.mkdir()
        record = _unpacked(tar, fresh, cell_id, run_id)
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return record


def _unpacked(tar: bytes, into: Path, cell_id: str, run_id: str) -> CellRecord:
    try:
        left_out = unpack(io.BytesIO(tar), into)
        record = read_cell(into).cell
    except (tarfile.TarError, CouldNotFindOut) as error:
        raise IntegrityError(f"{cell_id}: what came is no cell folder: {error}") from error
    if left_out:
        raise IntegrityError(f"{cell_id}: its folder has {left_out[0]}, which leads out of it")
    if (record.cell_id, record.run_id) != (cell_id, run_id):
        raise IntegrityError(
            f"{cell_id} of run {run_id}: what came is {record.cell_id} of run {record.run_id}"
        )
    return record
