"""The preflight report on a terminal: what images are, what harnesses will do in them, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sandbox.evidence.preflight import Forecast, PreflightReport

_WORDS = {"works": "works", "works with": "with", "cannot": "cannot", "unknown": "?"}
_STYLES = {"works": "green", "works with": "green", "cannot": "bold red", "unknown": "magenta"}
_SHOWN = 4
"""So many images are named beside a reason or a note; the others are counted."""


def preflight_report(report: PreflightReport) -> RenderableType:
    """Return what to print; words say the same as the colours."""
    parts: list[RenderableType] = [_facts(report), Text(""), _outcomes(report)]
    parts += (Text(line, overflow="fold") for line in lines(report))
    return Group(*parts)


def lines(report: PreflightReport) -> Iterator[str]:
    """Give everything below the table: reasons, what is brought, notes, totals."""
    yield from _grouped("cannot be looked at", _errors(report))
    yield from _grouped("cannot work", _reasons(report))
    yield from _grouped("brought along", _brought(report))
    yield from _grouped("to know", _notes(report))
    yield ""
    yield _totals(report)
    yield from (f"predicted otherwise: {pair}" for pair in report.disagreements)
    yield from (f"undecided, its cell broke: {pair}" for pair in report.undecided)


def _facts(report: PreflightReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("image", "platform", "libc", "user", "sh", "workdir"):
        table.add_column(name, overflow="fold")
    for image in report.images:
        if image.error is None:
            user = image.user if image.user == "root" else f"{image.uid} {image.user or ''}".strip()
            table.add_row(
                image.name,
                image.platform or f"linux-{image.architecture}-none",
                image.libc_version or "-",
                user,
                image.sh,
                image.workdir,
            )
    return table


def _outcomes(report: PreflightReport) -> Table:
    harnesses = list(
        dict.fromkeys(one.harness for image in report.images for one in image.forecasts)
    )
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("image", *harnesses):
        table.add_column(name, overflow="fold")
    for image in report.images:
        found = {one.harness: one for one in image.forecasts}
        table.add_row(image.name, *(_cell(found.get(name)) for name in harnesses))
    return table


def _cell(forecast: Forecast | None) -> Text:
    """Say the outcome; with an exclamation mark when the proof was another one."""
    if forecast is None:
        return Text("?", style=_STYLES["unknown"])
    mark = "!" if forecast.agrees is False else ""
    return Text(_WORDS[forecast.outcome] + mark, style=_STYLES[forecast.outcome])


def _grouped(title: str, rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Give each text once, with the images that it holds for."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for text, image in rows:
        if image not in found[text]:
            found[text].append(image)
    if found:
        yield f"\n{title}:"
    for text, images in found.items():
        more = f" and {len(images) - _SHOWN} more" if len(images) > _SHOWN else ""
        yield f"  {text}\n      {', '.join(images[:_SHOWN])}{more}"


def _errors(report: PreflightReport) -> Iterator[tuple[str, str]]:
    for image in report.images:
        if image.error is not None:
            yield _with_cure(image.error, image.cure), image.name


def _reasons(report: PreflightReport) -> Iterator[tuple[str, str]]:
    """Give each image's reasons, each once with the harnesses that it keeps out."""
    for image in report.images:
        kept_out: defaultdict[str, list[str]] = defaultdict(list)
        for one in image.forecasts:
            if one.reason is not None:
                reason = one.reason.removeprefix(f"{one.harness} cannot run here: ")
                kept_out[_with_cure(reason, one.cure)].append(one.harness)
        for text, harnesses in kept_out.items():
            every = len(harnesses) == len(image.forecasts) > 1
            yield f"{'every harness' if every else ', '.join(harnesses)}: {text}", image.name


def _brought(report: PreflightReport) -> Iterator[tuple[str, str]]:
    for image in report.images:
        for one in image.forecasts:
            if one.brings:
                yield f"{one.harness} {one.version}: {', '.join(one.brings)}", image.name


def _notes(report: PreflightReport) -> Iterator[tuple[str, str]]:
    for image in report.images:
        for note in image.notes:
            yield f"{note.kind} {note.subject}: {note.text}", image.name


def _with_cure(reason: str, cure: str | None) -> str:
    return reason if cure is None else f"{reason} (what to do: {cure})"


def _totals(report: PreflightReport) -> str:
    forecasts = [one for image in report.images for one in image.forecasts]
    counts = {word: sum(one.outcome == word for one in forecasts) for word in _WORDS}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    text = f"{len(report.images)} image(s) in {report.seconds:.1f} s: {said or 'nothing'}"
    if report.proven:
        text += f"; {report.proven} proven, {len(report.disagreements)} disagreement(s)"
    return text
