"""Kilo's evidence as observations: read as OpenCode's, then what only Kilo says differently."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.evidence.observations import (
    AgentInvocation,
    Gap,
    ObservationRecord,
    Observations,
    ToolCall,
    ToolResultItem,
    ToolStatus,
)
from sandbox.harnesses.kilocode_database import copy_for_reader
from sandbox.harnesses.native import TOOL_OUTCOME_UNAVAILABLE, find_files
from sandbox.harnesses.opencode_transcript import parse_opencode

SOURCE = "kilocode"

# 7.0.33's words; those of 7.7.7 are OpenCode's.
_NOTE = "\n\n<bash_metadata>\n"
_OUT_OF_TIME = "bash tool terminated command after exceeding timeout"
_ABORTED = "User aborted the command"

_Call = tuple[str, str]
_End = tuple[ToolStatus, str]


def parse_kilocode(native: Path, *, database: str, receipt: str) -> Observations:
    """Return what the database below a folder says, and whether its tools had the task's env.

    Args:
        native: the folder with the evidence.
        database: the database's file name.
        receipt: the file name of the shell environment's receipt.
    """
    with tempfile.TemporaryDirectory(prefix="sandbox-kilocode-") as name:
        folder = Path(name)
        for number, path in enumerate(find_files(native, database)):
            copy = folder / f"database-{number}" / database
            copy.parent.mkdir()
            copy_for_reader(path, copy)
        for wanted in ("stdout", receipt):
            for number, path in enumerate(find_files(native, wanted)):
                copy = folder / f"{wanted}-{number}" / wanted
                copy.parent.mkdir()
                shutil.copyfile(path, copy)
        told = parse_opencode(folder, database=database, receipt=receipt)
    return _with_ends(told)


def _with_ends(told: Observations) -> Observations:
    """Say how each call ended of which only a note in its result tells."""
    ends = dict(_noted_ends(told))
    return Observations(
        source=SOURCE,
        records=tuple(_ended(record, ends) for record in told.records),
        gaps=tuple(gap for gap in told.gaps if not _is_closed(gap, ends)),
    )


def _noted_ends(told: Observations) -> Iterator[tuple[_Call, _End]]:
    open_calls = {
        (record.invocation_id, record.tool_call_id)
        for record in told.records
        if isinstance(record, ToolCall) and record.status is ToolStatus.UNKNOWN
    }
    for invocation in told.records:
        if not isinstance(invocation, AgentInvocation):
            continue
        for item in invocation.conversation:
            call = (invocation.invocation_id, getattr(item, "tool_call_id", ""))
            if not isinstance(item, ToolResultItem) or call not in open_calls:
                continue
            _, marker, note = item.output.rpartition(_NOTE)
            if marker and note.startswith(_OUT_OF_TIME):
                yield call, (ToolStatus.TIMEOUT, "timeout")
            elif marker and _ABORTED in note:
                yield call, (ToolStatus.CANCELLED, "aborted")


def _ended(record: ObservationRecord, ends: Mapping[_Call, _End]) -> ObservationRecord:
    if not isinstance(record, ToolCall):
        return record
    end = ends.get((record.invocation_id, record.tool_call_id))
    if end is None:
        return record
    return record.model_copy(update={"status": end[0], "error_type": end[1]})


def _is_closed(gap: Gap, ends: Mapping[_Call, _End]) -> bool:
    return gap.code == TOOL_OUTCOME_UNAVAILABLE and any(
        gap.invocation_id == invocation and gap.detail.startswith(f"{call}: ")
        for invocation, call in ends
    )
