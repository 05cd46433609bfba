"""A bench as tables: ours beside the others', what is wanted, and where a cell's time goes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from sandbox.evidence.benches import BenchRecord, CellProfile, Measure, RatioChange

PEERS = "peers"
_NUMBER = {"s": 1000.0, "MiB": 1.0, "calls": 1.0}
_UNIT = {"s": "ms", "MiB": "MiB", "calls": ""}


def bench_tables(record: BenchRecord) -> RenderableType:
    """Return a bench's tables, for a terminal."""
    shown: list[RenderableType] = []
    own = [one for one in record.measures if one.part != PEERS]
    beside = [one for one in record.measures if one.part == PEERS]
    if own or record.unmeasured:
        shown.append(_measures(own, record))
    if beside or any(peer.missing for peer in record.peers):
        shown.append(_peers(beside, record))
    shown.extend(_profile(cell) for cell in record.cells)
    return Group(*shown)


def _measures(measures: Sequence[Measure], record: BenchRecord) -> Table:
    table = Table(
        caption="medians, interleaved in this run (cold and memory: once); ratio = ours / theirs;"
        " of an install theirs is a bare docker cp of the same tree"
    )
    for name in ("image", "operation"):
        table.add_column(name)
    for name in ("ours", "beside", "theirs", "ratio", "wanted"):
        table.add_column(name, justify="right")
    for one in measures:
        for row, beside in enumerate(one.ratios):
            first = (one.image, one.operation, _figure(one, one.ours)) if row == 0 else ("", "", "")
            table.add_row(*first, *_beside(one, beside))
    for lost in record.unmeasured:
        reason = escape(f"{lost.operation}\n  failed: {lost.failed}")
        table.add_row(lost.image, reason, "-", lost.by, "-", "-", "-")
    return table


def _beside(one: Measure, name: str) -> tuple[str, str, str, str]:
    ratio, most = one.ratios[name], one.most.get(name)
    wanted = "" if most is None else f"<= {most:g}{'' if ratio <= most else ' missed'}"
    return name, _figure(one, one.theirs.get(name)), f"{ratio:.2f}", wanted


def _figure(one: Measure, number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number * _NUMBER[one.unit]:.{0 if number >= 0.02 else 1}f} {_UNIT[one.unit]}".rstrip()


def _peers(measures: Sequence[Measure], record: BenchRecord) -> Table:
    """Return ours over each of the others, a column each."""
    table = Table(
        title="beside others" + (f", in {measures[0].image}" if measures else ""),
        caption="ratio = ours / theirs, medians interleaved in this run; below 1: we are faster",
    )
    table.add_column("operation")
    table.add_column("ours", justify="right")
    names = ["docker", *(peer.name for peer in record.peers)]
    for name in names:
        table.add_column(name, justify="right")
    for one in measures:
        cells = (f"{one.ratios[name]:.2f}" if name in one.ratios else "-" for name in names)
        table.add_row(one.operation, _figure(one, one.ours), *cells)
    table.add_section()
    docker = record.versions.get("docker client", "")
    versions = (escape(peer.version or peer.missing or "") for peer in record.peers)
    table.add_row("version", record.versions.get("sandbox", ""), docker, *versions)
    return table


def _profile(cell: CellProfile) -> Table:
    """Return where a cell's time goes and what it asks the engine."""
    table = Table(
        title=f"one cell: {cell.harness} in {cell.image}, medians of {cell.rounds}",
        caption="of activate, the harness's own time is the harness's",
    )
    table.add_column("phase")
    table.add_column("ms", justify="right")
    table.add_column("request to the engine")
    table.add_column("times", justify="right")
    phases = [(name, f"{seconds * 1000:.0f}") for name, seconds in cell.phases.items()]
    if cell.total_s is not None:
        rest = cell.total_s - sum(cell.phases.values())
        phases.append(("before, between and after", f"{rest * 1000:.0f}"))
        phases.append(("all", f"{cell.total_s * 1000:.0f}"))
    if cell.harness_s is not None:
        phases.append(("of it the harness's own", f"{cell.harness_s * 1000:.0f}"))
    calls = [(kind, str(times)) for kind, times in cell.calls.items()]
    calls.append(("all", str(sum(cell.calls.values()))))
    for row in range(max(len(phases), len(calls))):
        left = phases[row] if row < len(phases) else ("", "")
        right = calls[row] if row < len(calls) else ("", "")
        table.add_row(*left, *right)
    return table


def changes_table(changes: Sequence[RatioChange]) -> Table:
    """Return how the ratios of two benches differ."""
    table = Table(caption="ratio = ours / theirs in each bench; change = after / before")
    for name in ("image", "operation", "beside"):
        table.add_column(name)
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right")
    for one in changes:
        figures = ("-" if number is None else f"{number:.2f}" for number in (one.before, one.after))
        change = "-" if one.times is None else f"x {one.times:.2f}"
        table.add_row(one.image, one.operation, one.beside, *figures, change)
    return table
