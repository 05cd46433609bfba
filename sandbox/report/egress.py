"""The page on what harnesses phone home to: a table for each, ours beside the defaults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sandbox.evidence.egress import PHASES, CellEgress, Tried
from sandbox.evidence.records import EgressPhase, Settings

_INTRO = """\
# What harnesses phone home to

Made by `sandbox egress`, or of what that kept by `sandbox report --egress`. Nothing left a
sandbox: names were answered with addresses that end in it, which a harness cannot tell from the
internet until a connection closes on it.

- *With our settings* is what every run has. *With its defaults* is our own adapter without the
  variables and configuration keys that switch traffic off or lead it to where nothing listens
  (`sandbox/harnesses/loud.py`); the private HOME, the scripted model and the short turn are the
  same. What a day's wait or a log-in starts is not in it: a dash is no promise of the vendor's.
- The *host* is what a connection said (the SNI of a TLS ClientHello, the Host of an HTTP request),
  else the name whose address it went to, else the bare address.
- *As*: `DNS` is a look-up, of which a try makes one or two (for IPv4 and IPv6). `TLS`, `HTTP` and
  `TCP` are connections begun, `UDP` and `ICMP` packets. A connection closes after its first words,
  and clients try again: a service that answers is asked less often.
- Phases: `install` until the seed is done, `start` until the first model request, `run` until the
  last reply, `exit` after it.
"""
_HEAD = """\
| host | port | as | with our settings | with its defaults |
|---|---|---|---|---|
"""
_SIDES: dict[Settings, str] = {"ours": "our settings", "defaults": "its defaults"}
_NAMES_ONLY = (
    "Names were unknown in these runs, so nothing was connected to; "
    "`no route` counts what went to bare addresses.\n\n"
)

_Key = tuple[str, int | None, str]


def egress_page(cells: Sequence[CellEgress]) -> str:
    """Return the page in Markdown; cells of one harness, image and settings are added up."""
    groups: dict[tuple[str, str], list[CellEgress]] = {}
    for one in cells:
        groups.setdefault((one.harness, one.image), []).append(one)
    return _INTRO + "".join(_section(groups[key]) for key in sorted(groups))


def _section(cells: Sequence[CellEgress]) -> str:
    first = cells[0]
    version = next((f" {one.version}" for one in cells if one.version), "")
    title = f"\n## {first.harness}{version} on {first.image}\n\n"
    note = _NAMES_ONLY if any(one.seen == "names" for one in cells) else ""
    note += "".join(_failed(cells, settings) for settings in _SIDES)
    sides = {settings: [one for one in cells if one.settings == settings] for settings in _SIDES}
    found = {settings: _added(side) for settings, side in sides.items()}
    rows = sorted(
        {key for side in found.values() for key in side}, key=lambda k: (k[0], k[1] or 0, k[2])
    )
    unseen = {settings: _unseen(side) for settings, side in sides.items()}
    if not rows:
        words = (
            f"{unseen[settings] or 'nothing'} with {whose}" for settings, whose in _SIDES.items()
        )
        return f"{title}{note}Tried: {', '.join(words)}.\n"
    lines = (
        f"| {name or '(a bare address)'} | {port or '-'} | {how} | "
        + " | ".join(unseen[side] or _told(found[side].get((name, port, how))) for side in _SIDES)
        + " |\n"
        for name, port, how in rows
    )
    return title + note + _HEAD + "".join(lines)


def _added(cells: Iterable[CellEgress]) -> dict[_Key, Counter[EgressPhase]]:
    found: dict[_Key, Counter[EgressPhase]] = {}
    for tried in (tried for one in cells for tried in one.tried or ()):
        found.setdefault(_key(tried), Counter()).update(tried.counts)
    return found


def _key(tried: Tried) -> _Key:
    return tried.name, tried.port, tried.how


def _unseen(cells: Sequence[CellEgress]) -> str | None:
    """Say why there is nothing to tell of one side; None: there is."""
    if not cells:
        return "not run"
    return next((f"not seen ({one.reason})" for one in cells if one.tried is None), None)


def _failed(cells: Iterable[CellEgress], settings: Settings) -> str:
    kinds = sorted({one.failed for one in cells if one.settings == settings and one.failed})
    if not kinds:
        return ""
    return (
        f"A turn with {_SIDES[settings]} failed ({', '.join(kinds)}): "
        "what it would have tried after that is missing.\n\n"
    )


def _told(counts: Counter[EgressPhase] | None) -> str:
    if counts is None:
        return "-"
    parts = (f"{phase} {counts[phase]}" for phase in PHASES if counts[phase])
    return f"{counts.total()} ({', '.join(parts)})"
