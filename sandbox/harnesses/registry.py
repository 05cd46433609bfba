"""Which harnesses there are: everything that an installed package registers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from sandbox.errors import UsageError
from sandbox.harnesses.base import Capabilities, Harness

GROUP = "sandbox.harnesses"
"""The entry-point group; an entry point's name is the harness's name, its value an adapter."""


def load_harnesses(points: Iterable[EntryPoint] | None = None) -> dict[str, Harness]:
    """Load every registered adapter, by name in alphabetical order.

    Args:
        points: the entry points to load; those of the installed packages by default.

    Raises:
        UsageError: two packages register one name, or an adapter cannot be loaded or is none.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP) if points is None else points:
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            raise UsageError(
                f"harness {point.name!r} is registered by {_package(other)} ({other.value}) and by "
                f"{_package(point)} ({point.value})",
                cure="uninstall one of the two packages",
            )
        found[point.name] = point
    return {name: _load(found[name]) for name in sorted(found)}


def find_harness(name: str, harnesses: Mapping[str, Harness] | None = None) -> Harness:
    """Return one adapter by its name.

    Raises:
        UsageError: no such harness; the message lists those that there are.
    """
    known = load_harnesses() if harnesses is None else harnesses
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    raise UsageError(
        f"no harness {name!r}{meant}",
        cure=f"choose one of {', '.join(sorted(known))}" if known else _NOTHING_INSTALLED,
    )


_NOTHING_INSTALLED = f"install a package that registers one under {GROUP!r}"


def _load(point: EntryPoint) -> Harness:
    # Importing foreign code may raise anything.
    cure = f"repair or uninstall {_package(point)}"
    try:
        loaded = point.load()
    except Exception as error:
        raise UsageError(
            f"harness {point.name!r} of {_package(point)} cannot be loaded from {point.value}: "
            f"{type(error).__name__}: {error}",
            cure=cure,
        ) from error
    lacks = _lacks(loaded, point.name)
    if lacks:
        raise UsageError(
            f"harness {point.name!r} of {_package(point)}: {point.value} {lacks}", cure=cure
        )
    return cast("Harness", loaded)


def _lacks(loaded: object, name: str) -> str | None:
    """Say what keeps an object from being the adapter of that name."""
    missing = [verb for verb in ("plan", "parse") if not callable(getattr(loaded, verb, None))]
    if isinstance(loaded, type) or missing:
        return f"is not an adapter (a value with {' and '.join(missing or ['plan', 'parse'])})"
    if not isinstance(getattr(loaded, "capabilities", None), Capabilities):
        return "declares no Capabilities"
    called = getattr(loaded, "name", None)
    return None if called == name else f"calls itself {called!r}"


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name}" if point.dist is not None else "an unnamed package"
