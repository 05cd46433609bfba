"""Gates: for each harness and image, up to which tier nothing fails that nobody knew of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sandbox.evidence.records import Record
from sandbox.evidence.verdict import Status, Tier, Verdict


class Weight(NamedTuple):
    """All of a verdict that counts of it are made by."""

    tier: Tier
    status: Status
    known: bool
    flaky: bool

    @property
    def is_bad(self) -> bool:
        """Whether it is a failure, or nobody could find out."""
        return self.status in (Status.FAIL, Status.ERROR)

    @property
    def is_open(self) -> bool:
        """Whether it is bad and the baseline does not know it."""
        return self.is_bad and not self.known


Counts = Counter[Weight]


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


def counted(verdicts: Iterable[Verdict]) -> Counts:
    """Count verdicts by all that summaries and gates ask for."""
    return Counter(
        Weight(v.tier, v.status, v.known is not None, v.flaky is not None) for v in verdicts
    )


def gates_of(counts: Mapping[tuple[str, str], Counts]) -> tuple[Gate, ...]:
    """Return the gates of counted verdicts by (harness, image)."""
    return tuple(_gate(*name, found) for name, found in counts.items())


def scores(counts: Counts) -> dict[str, str]:
    """Say for each tier how many of the applicable verdicts pass: ``{"P0": "80/80"}``."""
    applicable: Counter[str] = Counter()
    passes: Counter[str] = Counter()
    for weight, number in counts.items():
        if weight.status is not Status.NOT_APPLICABLE:
            applicable[weight.tier.value] += number
            passes[weight.tier.value] += number * (weight.status is Status.PASS)
    return {tier: f"{passes[tier]}/{applicable[tier]}" for tier in sorted(applicable)}


def _gate(harness: str, image: str, counts: Counts) -> Gate:
    bad = {weight: number for weight, number in counts.items() if weight.is_bad}
    opened: Counter[Tier] = Counter()
    for weight, number in bad.items():
        opened[weight.tier] += number * weight.is_open
    reached: Tier | None = None
    for tier in Tier:
        if opened[tier]:
            break
        reached = tier
    return Gate(
        harness=harness,
        image=image,
        reached=reached,
        tiers=scores(counts),
        open={tier.value: opened[tier] for tier in Tier},
        known=sum(number for weight, number in bad.items() if weight.known),
        flaky=sum(number for weight, number in bad.items() if weight.flaky),
    )
