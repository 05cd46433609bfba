"""Gates: for each harness and image, up to which tier nothing fails that nobody knew of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sandbox.evidence.records import Record
from sandbox.evidence.verdict import Status, Tier, Verdict


class Gate(Record):
    """What one harness reaches in one image.

    ``reached`` is the lightest tier such that every verdict of it and of heavier tiers passes, does
    not apply or is known; None: something of P0 is open. ``tiers`` is "passed/applicable" and
    ``open`` the number of unknown failures by tier.
    """

    harness: str
    image: str
    reached: Tier | None
    tiers: dict[str, str]
    open: dict[str, int]
    known: int
    flaky: int


def gates_of(verdicts: Mapping[tuple[str, str], Sequence[Verdict]]) -> tuple[Gate, ...]:
    """Return the gates of verdicts by (harness, image)."""
    return tuple(_gate(*name, found) for name, found in verdicts.items())


def scores(verdicts: Iterable[Verdict]) -> dict[str, str]:
    """Say for each tier how many of the applicable verdicts pass: ``{"P0": "80/80"}``."""
    applicable: Counter[str] = Counter()
    passes: Counter[str] = Counter()
    for verdict in verdicts:
        if verdict.status is not Status.NOT_APPLICABLE:
            applicable[verdict.tier.value] += 1
            passes[verdict.tier.value] += verdict.status is Status.PASS
    return {tier: f"{passes[tier]}/{applicable[tier]}" for tier in sorted(applicable)}


def _gate(harness: str, image: str, verdicts: Sequence[Verdict]) -> Gate:
    bad = [v for v in verdicts if v.status in (Status.FAIL, Status.ERROR)]
    opened = Counter(v.tier for v in bad if v.known is None)
    reached: Tier | None = None
    for tier in Tier:
        if opened[tier]:
            break
        reached = tier
    return Gate(
        harness=harness,
        image=image,
        reached=reached,
        tiers=scores(verdicts),
        open={tier.value: opened[tier] for tier in Tier},
        known=sum(v.known is not None for v in bad),
        flaky=sum(v.flaky is not None for v in bad),
    )
