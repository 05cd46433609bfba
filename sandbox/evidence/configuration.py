"""How the configurations of two runs differ, in lines that say what was there and what is here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sandbox.evidence.cell import RunConfiguration, ServerChoice

_SHOWN = 3
_OF_A_PART = ("cells: ", "agent url: ")


def differences(then: RunConfiguration, now: RunConfiguration) -> tuple[str, ...]:
    """Return one line for each difference; empty when both give the same run.

    Pins, images and scenarios that only one of them names are differences too.
    """
    return tuple(_all(then, now))


def conflicts(then: RunConfiguration, now: RunConfiguration) -> tuple[str, ...]:
    """Return the differences that two parts of one run may not have.

    Parts have cells, pins, images and scenarios of their own, and perhaps an agent server on each
    machine; what both name must be the same.
    """
    return tuple(
        line
        for line in _all(_common(then, now), _common(now, then))
        if not line.startswith(_OF_A_PART)
    )


def _common(one: RunConfiguration, other: RunConfiguration) -> RunConfiguration:
    return one.model_copy(
        update={
            name: {
                key: text for key, text in getattr(one, name).items() if key in getattr(other, name)
            }
            for name in ("pins", "images", "scenarios")
        }
    )


def _all(then: RunConfiguration, now: RunConfiguration) -> Iterator[str]:
    for name in ("profile", "repeat", "isolation", "install", "tool_version"):
        before, after = getattr(then, name), getattr(now, name)
        if before != after:
            yield f"{name}: {before}, now {after}"
    if sorted(then.conditions) != sorted(now.conditions):
        before, after = (", ".join(one.conditions) or "none" for one in (then, now))
        yield f"conditions: {before}, now {after}"
    yield from _agents(then.agent, now.agent)
    yield from _cells(then.plan, now.plan)
    yield from _mapped("pin", then.pins, now.pins)
    yield from _mapped("image", then.images, now.images)
    yield from _mapped("scenario", then.scenarios, now.scenarios)


def _agents(then: ServerChoice | None, now: ServerChoice | None) -> Iterator[str]:
    for name in ServerChoice.model_fields:
        before, after = getattr(then, name, "none"), getattr(now, name, "none")
        if before != after:
            yield f"agent {name}: {before}, now {after}"


def _cells(then: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    before, after = set(then), set(now)
    gone = [cell for cell in then if cell not in after]
    new = [cell for cell in now if cell not in before]
    if gone:
        yield f"cells: {len(gone)} no longer planned ({_some(gone)})"
    if new:
        yield f"cells: {len(new)} more planned ({_some(new)})"
    if not gone and not new and tuple(then) != tuple(now):
        yield "cells: planned in another order"


def _some(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _mapped(what: str, then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*then, *now}):
        before, after = then.get(name, "none"), now.get(name, "none")
        if before != after:
            yield f"{what} {name}: {before}, now {after}"
