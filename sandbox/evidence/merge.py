"""Parts of one run, brought together: which cells come from where, and one record for all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandbox.errors import UsageError
from sandbox.evidence.cell import RunConfiguration, RunRecord
from sandbox.evidence.configuration import conflicts
from sandbox.evidence.records import Record


class Merged(Record):
    """The record of the whole run, and the part that each recorded cell comes from."""

    record: RunRecord
    sources: dict[str, Path]


def merge(parts: Mapping[Path, RunRecord], recorded: Mapping[Path, tuple[str, ...]]) -> Merged:
    """Bring the parts together; ``recorded`` are the cell ids that have a folder in each part.

    The cells have the order of the plan that the parts were cut from, or that of the parts when
    each has a plan of its own. What was planned and is in no part stays planned, so that it is
    judged as lost.

    Raises:
        UsageError: a cell is in two parts, or two parts are not of one configuration.
    """
    names = list(parts)
    first = parts[names[0]]
    for name in names[1:]:
        _refuse_conflicts(names[0], first, name, parts[name])
    sources: dict[str, Path] = {}
    for name in names:
        for cell in recorded[name]:
            if cell in sources:
                raise UsageError(
                    f"{cell} is in {sources[cell]} and in {name}",
                    cure="give each part once; repeated cells are made with --repeat",
                )
            sources[cell] = name
    return Merged(record=_record(list(parts.values())), sources=sources)


def _refuse_conflicts(name: Path, one: RunRecord, other_name: Path, other: RunRecord) -> None:
    if one.configuration is None or other.configuration is None:
        found: tuple[str, ...] = ("one of them says nothing of its configuration",)
    else:
        found = conflicts(one.configuration, other.configuration)
    if found:
        raise UsageError(
            f"{name} and {other_name} are no parts of one run:\n  " + "\n  ".join(found),
            cure="run both parts in the same configuration",
        )


def _record(parts: list[RunRecord]) -> RunRecord:
    first = parts[0]
    plans = [part.configuration.plan for part in parts if part.configuration is not None]
    planned = tuple(dict.fromkeys(cell for plan in plans for cell in plan))
    ends = [part.completed_at for part in parts]
    whole = [end for end in ends if end is not None]
    return RunRecord(
        run_id="+".join(dict.fromkeys(part.run_id for part in parts)),
        profile=first.profile,
        cells=planned,
        started_at=min(part.started_at for part in parts),
        completed_at=max(whole) if len(whole) == len(ends) else None,
        tool_version=first.tool_version,
        configuration=_configuration(parts, planned),
    )


def _configuration(parts: list[RunRecord], planned: tuple[str, ...]) -> RunConfiguration | None:
    found = [part.configuration for part in parts if part.configuration is not None]
    if not found:
        return None
    return found[0].model_copy(
        update={
            "plan": planned,
            "pins": _united([one.pins for one in found]),
            "images": _united([one.images for one in found]),
            "scenarios": _united([one.scenarios for one in found]),
        }
    )


def _united(mappings: list[dict[str, str]]) -> dict[str, str]:
    united = {name: text for mapping in mappings for name, text in mapping.items()}
    return {name: united[name] for name in sorted(united)}
