"""Cell folders on disk: written whole or not at all, read strictly.

::

    RUN/run.json
    RUN/repeats/<n>/                      the n-th execution of the same cells, as a run of its own
    RUN/cells/<harness>/<image>/<scenario>/
        cell.json  rollouts.jsonl | failures.jsonl  witness.json  exchanges.jsonl  receipt.json
        install.json  footprint.json  egress.jsonl  native/  verdicts.json (only the judge)

A file that could not be written because its fact was never observed is absent; a reader keeps what
it cannot parse as a problem, so that a check can fail on it instead of the judge crashing.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from sandbox.errors import CouldNotFindOut, UsageError
from sandbox.evidence.cell import CellRecord, RunRecord, WitnessRecord
from sandbox.evidence.celltexts import CellTexts, json_text
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.records import CleanupReceipt, EgressEvent, FileChange, InstallReceipt
from sandbox.evidence.rows import FailureRow, Row, SuccessRow

_Model = TypeVar("_Model", bound=BaseModel)
_Footprint = TypeAdapter(tuple[FileChange, ...])


@dataclass(frozen=True, kw_only=True)
class CellFiles:
    """The facts of one cell; None: not observed, its file is left out.

    ``problems`` is filled by the reader: file name to what is wrong with it. ``native`` lists the
    files below ``native/`` as relative paths.
    """

    cell: CellRecord
    row: Row | None = None
    witness: WitnessRecord | None = None
    exchanges: tuple[Exchange, ...] | None = None
    receipt: CleanupReceipt | None = None
    install: InstallReceipt | None = None
    footprint: tuple[FileChange, ...] | None = None
    egress: tuple[EgressEvent, ...] | None = None
    native: tuple[str, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)


def cell_folder(run: Path, cell_id: str) -> Path:
    """Return where the cell of that id is kept below the run folder.

    An image reference in the id has colons, which archives of artifacts do not take.
    """
    return run / "cells" / cell_id.replace(":", "=")


def cell_id_of(run: Path, folder: Path) -> str:
    """Return the id of the cell that is kept in ``folder``, which is below the run folder."""
    return folder.relative_to(run / "cells").as_posix().replace("=", ":")


def write_run(run: Path, record: RunRecord) -> None:
    """Write ``run.json`` by one rename; called again when the run ends."""
    run.mkdir(parents=True, exist_ok=True)
    write_text(run / "run.json", json_text(record))


def read_run(run: Path) -> RunRecord | None:
    """Read ``run.json``; None when there is none.

    Raises:
        CouldNotFindOut: the file is not a run record of this version.
    """
    try:
        data = (run / "run.json").read_bytes()
    except FileNotFoundError:
        return None
    try:
        return RunRecord.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise CouldNotFindOut(
            f"{run / 'run.json'} is not a run record: {brief(error)}",
            cure="judge it with the version of this tool that wrote it, or run again",
        ) from error


def write_cell(
    folder: Path,
    files: CellFiles,
    *,
    native: Path | None = None,
    texts: CellTexts | None = None,
) -> None:
    """Write a cell folder by one rename; the tree ``native`` is copied to ``native/``.

    ``texts`` may know some of the records already.

    Nothing appears at ``folder`` when writing fails. Symlinks in ``native`` stay symlinks.

    Raises:
        UsageError: the folder exists already; a cell is recorded once.
    """
    if folder.exists():
        raise UsageError(f"the cell folder {folder} exists already", cure="give a new --output")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.parent / f".{folder.name}.tmp-{uuid.uuid4().hex}"
    try:
        temporary.mkdir()
        for name, text in (texts or CellTexts()).of(files).items():
            (temporary / name).write_text(text, encoding="utf-8")
        if native is not None and native.is_dir():
            shutil.copytree(native, temporary / "native", symlinks=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_record(folder: Path) -> CellRecord:
    """Read ``cell.json`` alone.

    Raises:
        CouldNotFindOut: it is missing or not readable.
    """
    problems: dict[str, str] = {}
    cell = _one(folder, "cell.json", CellRecord, problems)
    if cell is None:
        why = problems.get("cell.json", "it is missing")
        raise CouldNotFindOut(f"{folder / 'cell.json'} cannot be judged: {why}")
    return cell


def read_cell(folder: Path) -> CellFiles:
    """Read a cell folder strictly: unknown keys and wrong types become ``problems``.

    Raises:
        CouldNotFindOut: ``cell.json`` itself is missing or not readable.
    """
    cell, problems = read_record(folder), dict[str, str]()
    return CellFiles(
        cell=cell,
        row=_row(folder, problems),
        witness=_one(folder, "witness.json", WitnessRecord, problems),
        exchanges=_lines(folder, "exchanges.jsonl", Exchange, problems),
        receipt=_one(folder, "receipt.json", CleanupReceipt, problems),
        install=_one(folder, "install.json", InstallReceipt, problems),
        footprint=_footprint(folder, problems),
        egress=_lines(folder, "egress.jsonl", EgressEvent, problems),
        native=_native(folder),
        problems=problems,
    )


def find_cells(run: Path) -> tuple[Path, ...]:
    """Return the cell folders of a run in order of their ids; a single cell folder gives itself."""
    if (run / "cell.json").is_file():
        return (run,)
    found = (
        Path(scenario.path)
        for harness in _folders(run / "cells")
        for image in _folders(harness)
        for scenario in _folders(image)
    )
    return tuple(sorted(path for path in found if (path / "cell.json").is_file()))


def _folders(path: str | Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    """Return the folders in a folder that are not hidden; none when there is no such folder."""
    try:
        with os.scandir(path) as entries:
            return [one for one in entries if one.is_dir() and not one.name.startswith(".")]
    except FileNotFoundError:
        return []


def attempt_folders(run: Path) -> tuple[Path, ...]:
    """Return the run's folder and those of its repetitions (``repeats/2``, ``repeats/3`` ...)."""
    found = [path for path in run.glob("repeats/*") if path.name.isdecimal() and path.is_dir()]
    return (run, *sorted(found, key=lambda path: int(path.name)))


def attempt_folder(run: Path, number: int) -> Path:
    """Return where the execution of that number (from 1) is kept."""
    return run if number == 1 else run / "repeats" / str(number)


def write_text(path: Path, text: str) -> None:
    """Write a file by one rename."""
    with replaced(path) as file:
        file.write(text.encode())


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write, which takes the place of ``path`` when all of it was written."""
    temporary = path.with_name(f".{path.name}.tmp-{uuid.uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def brief(error: ValidationError) -> str:
    """Say the first fault of a validation error in one line, and how many more there are."""
    first, *rest = error.errors(include_url=False, include_input=False)
    where = ".".join(str(part) for part in first["loc"]) or "the value"
    more = f" (and {len(rest)} more)" if rest else ""
    return f"{where}: {first['msg']}{more}"


def _read(folder: Path, name: str, problems: dict[str, str]) -> bytes | None:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        problems[name] = f"cannot be read: {error.strerror}"
        return None


def _one(folder: Path, name: str, model: type[_Model], problems: dict[str, str]) -> _Model | None:
    data = _read(folder, name, problems)
    if data is None:
        return None
    try:
        return model.model_validate_json(data, strict=True)
    except ValidationError as error:
        problems[name] = brief(error)
        return None


def _lines(
    folder: Path, name: str, model: type[_Model], problems: dict[str, str]
) -> tuple[_Model, ...] | None:
    data = _read(folder, name, problems)
    if data is None:
        return None
    found = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            found.append(model.model_validate_json(line, strict=True))
        except ValidationError as error:
            problems[name] = f"line {number}: {brief(error)}"
            return None
    return tuple(found)


def _row(folder: Path, problems: dict[str, str]) -> Row | None:
    rollouts = _lines(folder, "rollouts.jsonl", SuccessRow, problems)
    failures = _lines(folder, "failures.jsonl", FailureRow, problems)
    rows: list[Row] = [*(rollouts or ()), *(failures or ())]
    if len(rows) == 1:
        return rows[0]
    if len(rows) > 1:
        problems["row"] = f"expected one row, saw {len(rows)}"
    return None


def _footprint(folder: Path, problems: dict[str, str]) -> tuple[FileChange, ...] | None:
    data = _read(folder, "footprint.json", problems)
    if data is None:
        return None
    try:
        return _Footprint.validate_json(data, strict=True)
    except ValidationError as error:
        problems["footprint.json"] = brief(error)
        return None


def _native(folder: Path) -> tuple[str, ...]:
    root = str(folder / "native")
    found: list[str] = []
    for parent, _, names in os.walk(root):
        below = parent[len(root) + 1 :]
        found.extend(f"{below}/{name}" if below else name for name in names)
    return tuple(sorted(found))
