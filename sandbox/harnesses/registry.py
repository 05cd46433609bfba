"""Which harnesses there are: everything that an installed package registers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

from sandbox.errors import UsageError
from sandbox.harnesses.base import Capabilities, Harness, PinnedHarness

GROUP = "sandbox.harnesses"
"""The entry-point group; an entry point's name is the harness's name, its value an adapter."""


@dataclass(frozen=True, kw_only=True)
class Registered:
    """What the installed packages register, by name in alphabetical order.

    ``broken`` are the names whose adapter cannot be used, each with the error to raise for whoever
    asks for it: one broken package does not take the other harnesses away.
    """

    harnesses: dict[str, Harness]
    broken: dict[str, UsageError]

    @property
    def names(self) -> tuple[str, ...]:
        """Every registered name, broken ones included."""
        return tuple(sorted((*self.harnesses, *self.broken)))

    @property
    def pins_files(self) -> dict[str, Path]:
        """The pins files that adapters of other packages bring, by harness."""
        return {
            name: harness.pins_file
            for name, harness in self.harnesses.items()
            if isinstance(harness, PinnedHarness)
        }

    def find(self, name: str) -> Harness:
        """Return one adapter by its name.

        Raises:
            UsageError: it is broken, or there is no such harness; the message lists those that
                there are.
        """
        if name in self.broken:
            raise self.broken[name]
        if name in self.harnesses:
            return self.harnesses[name]
        close = difflib.get_close_matches(name, self.harnesses, n=1, cutoff=0.5)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        known = ", ".join(self.harnesses)
        raise UsageError(
            f"no harness {name!r}{meant}",
            cure=f"choose one of {known}" if known else _NOTHING_INSTALLED,
        )


def registered(points: Iterable[EntryPoint] | None = None) -> Registered:
    """Load every registered adapter.

    Args:
        points: the entry points to load; those of the installed packages by default.
    """
    by_name: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP) if points is None else points:
        by_name.setdefault(point.name, []).append(point)
    harnesses: dict[str, Harness] = {}
    broken: dict[str, UsageError] = {}
    for name in sorted(by_name):
        try:
            harnesses[name] = _load(_only(by_name[name]))
        except UsageError as error:
            broken[name] = error
    return Registered(harnesses=harnesses, broken=broken)


def _only(points: Sequence[EntryPoint]) -> EntryPoint:
    first = points[0]
    for other in points[1:]:
        if other.value != first.value:
            raise UsageError(
                f"harness {first.name!r} is registered by {_package(first)} ({first.value}) and by "
                f"{_package(other)} ({other.value})",
                cure="uninstall one of the two packages",
            )
    return first


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
    if called != name:
        return f"calls itself {called!r}"
    if isinstance(loaded, PinnedHarness):
        pins = cast("object", loaded.pins_file)
        if not (isinstance(pins, Path) and pins.is_file()):
            return f"names a pins file that is not there: {pins}"
    return None


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name}" if point.dist is not None else "an unnamed package"
