"""Packed cell folders: whole, checked, in their place once."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from sandbox.conformance.cellpack import packed, place
from sandbox.errors import IntegrityError
from sandbox.evidence.folder import CellFiles, cell_folder, write_cell
from tests.broken.goodcells import good


def made(folder: Path, *, native: str = "old") -> CellFiles:
    """A cell folder with native files, one of them named after ``native``."""
    files = good()
    tree = folder / "tree"
    tree.mkdir(parents=True)
    (tree / native).write_text(native)
    (tree / "link").symlink_to(native)
    write_cell(folder / "cell", files, native=tree)
    return files


def listing(folder: Path) -> dict[str, object]:
    return {
        path.relative_to(folder).as_posix(): path.readlink()
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if not path.is_dir()
    }


def test_a_folder_comes_out_as_it_went_in(tmp_path: Path) -> None:
    cell = made(tmp_path).cell
    tar = packed(tmp_path / "cell")
    assert place(tmp_path / "run", cell.cell_id, tar, run_id=cell.run_id) == cell
    assert listing(cell_folder(tmp_path / "run", cell.cell_id)) == listing(tmp_path / "cell")


def test_a_second_one_replaces_the_first_and_nothing_is_mixed(tmp_path: Path) -> None:
    for native in ("old", "new"):
        cell = made(tmp_path / native, native=native).cell
        tar = packed(tmp_path / native / "cell")
        place(tmp_path / "run", cell.cell_id, tar, run_id=cell.run_id)
    folder = cell_folder(tmp_path / "run", cell.cell_id)
    assert listing(folder) == listing(tmp_path / "new/cell")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("what", ["rubbish", "cut", "another run", "another cell", "leads out"])
def test_what_is_not_the_cell_is_refused_and_nothing_is_written(what: str, tmp_path: Path) -> None:
    cell = made(tmp_path).cell
    cell_id, run_id = cell.cell_id, cell.run_id
    if what == "leads out":
        (tmp_path / "cell/native/away").symlink_to("/etc/passwd")
    tar = packed(tmp_path / "cell")
    match what:
        case "rubbish":
            tar = b"rubbish" * 1000
        case "cut":
            with tarfile.open(fileobj=io.BytesIO(tar)) as whole:
                tar = tar[: whole.getmember("cell.json").offset_data + 10]
        case "another run":
            run_id = "other"
        case "another cell":
            cell_id = f"{cell_id}-other"
    with pytest.raises(IntegrityError):
        place(tmp_path / "run", cell_id, tar, run_id=run_id)
    assert not [path for path in (tmp_path / "run").rglob("*") if not path.is_dir()]
