"""Which cells a run holds: harness x image x scenario, filtered by globs on each axis."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from sandbox.errors import NothingSelected, UsageError
from sandbox.evidence.records import Record

LEGACY = "+legacy"
"""Ends the name of a harness in a cell that asks it by the legacy interface."""
LEGACY_HARNESSES = (f"codex{LEGACY}",)
"""One real harness runs both ways in the full profile, and must give equal evidence."""

_WILD = frozenset("*?[")


class CellSpec(Record):
    """One cell of a plan."""

    harness: str
    image: str
    scenario: str

    @property
    def cell_id(self) -> str:
        """The flat id, for instance ``codex/debian-12/tool_success``."""
        return f"{self.harness}/{self.image}/{self.scenario}"

    @property
    def adapter(self) -> str:
        """The name of the adapter, whichever interface it is asked by."""
        return self.harness.removesuffix(LEGACY)

    @property
    def legacy(self) -> bool:
        """Whether the adapter is asked by ``/run``."""
        return self.harness.endswith(LEGACY)


def cell_spec(cell_id: str) -> CellSpec:
    """Return the cell of a flat id.

    Raises:
        UsageError: it has not three parts.
    """
    parts = cell_id.split("/")
    if len(parts) != 3:
        raise UsageError(f"{cell_id!r} is no cell id", cure="give harness/image/scenario")
    return CellSpec(harness=parts[0], image=parts[1], scenario=parts[2])


class Axes(Record):
    """All names that exist, in the order in which they are shown."""

    harnesses: tuple[str, ...]
    images: tuple[str, ...]
    scenarios: tuple[str, ...]


class Selection(Record):
    """Globs; an empty tuple selects everything, ``skip`` and ``cells`` match whole cell ids."""

    harnesses: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


def make_plan(axes: Axes, selection: Selection) -> tuple[CellSpec, ...]:
    """Return the selected cells, harness by harness, image by image, scenario by scenario.

    Raises:
        UsageError: a name without a wildcard that does not exist.
        NothingSelected: the globs leave no cell.
    """
    harnesses = chosen("harness", axes.harnesses, selection.harnesses)
    images = chosen("image", axes.images, selection.images)
    scenarios = chosen("scenario", axes.scenarios, selection.scenarios)
    product = [
        CellSpec(harness=harness, image=image, scenario=scenario)
        for harness in harnesses
        for image in images
        for scenario in scenarios
    ]
    every_id = [cell.cell_id for cell in product]
    wanted = set(chosen("cell", every_id, selection.cells))
    wanted -= {cell_id for cell_id in every_id if _matches(cell_id, selection.skip)}
    plan = tuple(cell for cell in product if cell.cell_id in wanted)
    if not plan:
        raise NothingSelected(
            f"no cell is left of {len(product)} after the filters",
            cure="see what there is: sandbox list",
        )
    return plan


def chosen(axis: str, known: Sequence[str], globs: Sequence[str]) -> list[str]:
    """Return the names of an axis that one of the globs matches; all of them without globs.

    Raises:
        UsageError: a word without wildcards is none of the names.
    """
    for glob in globs:
        if not _WILD & set(glob) and glob not in known:
            raise UsageError(f"there is no {axis} {glob!r}", cure=_known(glob, known))
    return [name for name in known if not globs or _matches(name, globs)]


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _known(wrong: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(wrong, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(known[:12]) + (" ..." if len(known) > 12 else "")
    return f"{hint}there are: {shown}"
