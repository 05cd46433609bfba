"""Profiles: how much a run covers when nothing else is said."""

from __future__ import annotations

from sandbox.evidence.records import Record

QUICK_HARNESSES = (
    *("claude-code", "codex", "hermes", "kilocode"),
    *("openclaw", "opencode", "pi"),
)


class Profile(Record):
    """Scenarios say which profiles they are part of; a profile says whose harnesses it runs.

    ``harnesses`` are globs that hold when neither a harness nor a cell is named; a harness that is
    named runs in any profile.
    """

    name: str
    harnesses: tuple[str, ...]
    text: str


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            name="quick",
            harnesses=QUICK_HARNESSES,
            text="the seven harnesses people ask for most, the scenarios that show most, minutes",
        ),
        Profile(name="full", harnesses=("*",), text="every harness, every scenario but slow ones"),
        Profile(
            name="slow",
            harnesses=("*",),
            text="the faults with the harnesses' own patience, up to ten minutes a cell",
        ),
    )
}
