"""The records of a cell as they are written, each under the name of its file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter

from sandbox.evidence.records import FileChange
from sandbox.evidence.rows import Row, SuccessRow
from sandbox.evidence.unicode import storable_value

if TYPE_CHECKING:
    from sandbox.evidence.folder import CellFiles

_Footprint = TypeAdapter(tuple[FileChange, ...])


class CellTexts:
    """The records of a cell as they are written; what is not replaced is put into words once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, str]] = {}

    def of(self, files: CellFiles) -> dict[str, str]:
        """Return the texts by the name of the file; what was not observed has none."""
        found = {}
        for name, record in _records(files):
            if record is None:
                continue
            known = self._known.get(name)
            if known is None or known[0] is not record:
                known = self._known[name] = record, _text(name, record)
            found[name] = known[1]
        return found


def _records(files: CellFiles) -> Iterator[tuple[str, object]]:
    yield "cell.json", files.cell
    yield "witness.json", files.witness
    yield "receipt.json", files.receipt
    yield "install.json", files.install
    yield "exchanges.jsonl", files.exchanges
    yield "egress.jsonl", files.egress
    yield "footprint.json", files.footprint
    if files.row is not None:
        yield row_file(files.row), files.row


def _text(name: str, record: Any) -> str:
    if name == "footprint.json":
        return _Footprint.dump_json(record, indent=2).decode() + "\n"
    if name.endswith(".json"):
        return json_text(record)
    return _json_lines([record] if isinstance(record, BaseModel) else record)


def row_file(row: Row) -> str:
    """Return the name of the file that a row of this kind is kept in."""
    return "rollouts.jsonl" if isinstance(row, SuccessRow) else "failures.jsonl"


def json_text(model: BaseModel, indent: int | None = 2) -> str:
    """Return a record as JSON."""
    try:
        return model.model_dump_json(indent=indent, by_alias=True) + "\n"
    except ValueError:  # a lone surrogate somewhere: rare, and no reason to lose a cell
        value = storable_value(model.model_dump(by_alias=True))
        return json.dumps(value, indent=indent, ensure_ascii=False) + "\n"


def _json_lines(models: Iterable[BaseModel]) -> str:
    return "".join(json_text(model, indent=None) for model in models)
