"""The text of ``sandbox show``: one cell from its first second to its verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sandbox.evidence.folder import CellFiles
from sandbox.evidence.results import CellResult
from sandbox.evidence.story import Event, story
from sandbox.evidence.verdict import Status, Verdict
from sandbox.report.cellwords import changes, facts, processes
from sandbox.report.cut import cut, harmless
from sandbox.report.words import cell_label

_PART = 800


def story_text(
    result: CellResult, files: CellFiles, native: Mapping[str, str], *, most: int = _PART
) -> str:
    """Return the story of a cell as plain text; each quoted text is cut to about ``most``.

    Control characters in texts of the harness are shown as ``\\x1b`` and the like, so that they
    cannot write over the terminal.
    """
    return "\n".join(harmless(line) for line in _lines(result, files, native, most)) + "\n"


def _lines(
    result: CellResult, files: CellFiles, native: Mapping[str, str], most: int
) -> Iterator[str]:
    yield f"{result.cell_id}: {cell_label(result)}"
    yield from (f"  {name}: {text}" for name, text in facts(files))
    yield ""
    yield "what happened"
    for event in story(files):
        yield from _event(event, most)
    yield from _section("processes", processes(files))
    yield from _section("files changed", changes(files))
    yield from _section("verdicts", map(_verdict, _ordered(result)))
    for name, text in native.items():
        yield from _section(name, cut(text, most * 4).splitlines())


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield ""
        yield title
        yield from (f"  {line}" for line in found)


def _event(event: Event, most: int) -> Iterator[str]:
    at = "       ?  " if event.at is None else f"{event.at:8.2f}s "
    took = "" if event.seconds is None else f" ({event.seconds:.3f} s)"
    yield f"{at} {event.title}{took}"
    for part in event.parts:
        first, *rest = cut(part.text, most).splitlines() or [""]
        yield f"            {part.label}: {first}"
        yield from (f"              {line}" for line in rest)


def _ordered(result: CellResult) -> list[Verdict]:
    order = (Status.ERROR, Status.FAIL, Status.PASS, Status.NOT_APPLICABLE)
    return sorted(result.verdicts, key=lambda verdict: order.index(verdict.status))


def _verdict(verdict: Verdict) -> str:
    word = "known" if verdict.known is not None else verdict.status.value
    reason = f": {cut(verdict.reason, 500)}" if verdict.reason else ""
    known = f" [baseline: {verdict.known}]" if verdict.known is not None else ""
    return f"{word:14} {verdict.tier} {verdict.check}{reason}{known}"
