"""Whether a harness will work in an image, foretold with the rules that an agent's seed goes by.

Every refusal comes from a function of ``agents.setup`` that the seed itself calls, in the order in
which it calls them; nothing is fetched and no harness runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sandbox.agents.contract import UnprocessableError
from sandbox.agents.look import Look, look_at
from sandbox.agents.ports import Place
from sandbox.agents.setup import ROOTS, find_root, refuse_image, refuse_libraries
from sandbox.engine.facts import ImageFacts
from sandbox.errors import SandboxError, Unsupported
from sandbox.evidence.preflight import Forecast
from sandbox.harnesses.base import Harness
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeEntry, RuntimeLibrary

Runtimes = RuntimeLibrary | RuntimeCollection
Room = Callable[[int], int]


def seen_roots(place: Place, facts: ImageFacts, more: Sequence[str] = ()) -> Look:
    """Look at the folders that a seed looks at: workdir, HOME and its roots; then at ``more``."""
    return look_at(place, [facts.workdir, facts.home, *ROOTS, *more])


def foretell(
    harness: Harness, library: Runtimes, facts: ImageFacts, look: Look, room: Room
) -> Forecast:
    """Say what the harness will do in the image.

    Args:
        harness: the adapter.
        library: its lock says what the runtime needs and brings.
        facts: of the image.
        look: from ``seen_roots``.
        room: what an installation takes, for a bundle's size.
    """
    try:
        return _fits(harness, library, facts, look, room)
    except (UnprocessableError, Unsupported) as error:
        return Forecast(
            harness=harness.name, outcome="cannot", reason=error.message, cure=error.cure
        )
    except SandboxError as error:
        return Forecast(
            harness=harness.name, outcome="unknown", reason=error.message, cure=error.cure
        )


def foretell_refusal(harness: Harness, error: SandboxError) -> Forecast:
    """Say what the harness will do where the seed's first question already fails."""
    if isinstance(error, Unsupported):
        return Forecast(
            harness=harness.name, outcome="cannot", reason=error.message, cure=error.cure
        )
    return Forecast(harness=harness.name, outcome="unknown", reason=error.message, cure=error.cure)


def _fits(
    harness: Harness, library: Runtimes, facts: ImageFacts, look: Look, room: Room
) -> Forecast:
    platform = refuse_image(facts, harness)
    refuse_libraries(facts, harness, platform, library)
    roots = replace(look, folders=look.folders[: 2 + len(ROOTS)])
    find_root(roots, need_kib=0)
    entry = _entry(library, harness.name, platform)
    need = room(entry.size)
    find_root(roots, need_kib=need // 1024 + 1)
    brings = tuple(name for name in entry.artifacts if not _is_own(name, harness.name))
    return Forecast(
        harness=harness.name,
        version=entry.version,
        outcome="works with" if brings else "works",
        brings=brings,
        needs_mib=need >> 20,
    )


def _entry(library: Runtimes, harness: str, platform: str) -> RuntimeEntry:
    return next(
        entry
        for entry in library.entries()
        if entry.harness == harness and entry.platform == platform
    )


def _is_own(artifact: str, harness: str) -> bool:
    return artifact == harness or artifact.startswith(f"{harness}-")
