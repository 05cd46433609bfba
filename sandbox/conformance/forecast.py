"""Whether a harness will work in an image, foretold with the rules that an agent's seed goes by.

Every refusal comes from a function that the seed itself calls (``agents.setup``,
``agents.overlap``, ``runtimes.needs``), in the order in which it calls them; nothing is fetched and
no harness runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandbox.agents.contract import UnprocessableError
from sandbox.agents.look import Look, look_at
from sandbox.agents.overlap import choose_root
from sandbox.agents.ports import Place
from sandbox.agents.setup import ROOTS, refuse_image
from sandbox.engine.facts import ImageFacts
from sandbox.errors import SandboxError, Unsupported
from sandbox.evidence.preflight import Forecast
from sandbox.harnesses.base import Harness
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeEntry, RuntimeLibrary
from sandbox.runtimes.needs import refusals

Runtimes = RuntimeLibrary | RuntimeCollection


def seen_roots(place: Place, facts: ImageFacts, more: Sequence[str] = ()) -> Look:
    """Look at the folders that a seed looks at: workdir, HOME and its roots; then at ``more``."""
    return look_at(place, [facts.workdir, facts.home, *ROOTS, *more])


def foretell(harness: Harness, library: Runtimes, facts: ImageFacts, look: Look) -> Forecast:
    """Say what the harness will do in the image.

    Args:
        harness: the adapter.
        library: its lock says what the runtime needs and brings.
        facts: of the image.
        look: from ``seen_roots``.
    """
    return _refusable(harness.name, lambda: _fits(harness, library, facts, look))


def foretell_refusal(harness: Harness, error: SandboxError) -> Forecast:
    """Say what the harness will do where the seed's first question already fails."""
    if isinstance(error, Unsupported):
        return Forecast(
            harness=harness.name, outcome="cannot", reason=error.message, cure=error.cure
        )
    return Forecast(harness=harness.name, outcome="unknown", reason=error.message, cure=error.cure)


def _fits(harness: Harness, library: Runtimes, facts: ImageFacts, look: Look) -> Forecast:
    platform = refuse_image(facts, harness)
    _expect_room(look, need_kib=0)
    needs = library.needs(harness.name, platform)
    lacking = refusals(needs, facts)
    entry = _entry(library, harness.name, platform)
    if lacking:
        raise UnprocessableError(
            "; ".join(one.reason for one in lacking), cure="; ".join(one.cure for one in lacking)
        )
    need = 2 * entry.size
    _expect_room(look, need_kib=need // 1024)
    brings = tuple(name for name in entry.artifacts if not _is_own(name, harness.name))
    return Forecast(
        harness=harness.name,
        version=entry.version,
        outcome="works with" if brings else "works",
        brings=brings,
        needs_mib=need >> 20,
    )


def _expect_room(look: Look, *, need_kib: int) -> None:
    """Raise the seed's own refusal when no root will do."""
    workdir, home, *others = look.folders
    choose_root(
        others[: len(ROOTS)], workdir=workdir, home=home, mounts=look.mounts, need_kib=need_kib
    )


def _entry(library: Runtimes, harness: str, platform: str) -> RuntimeEntry:
    return next(
        entry
        for entry in library.entries()
        if entry.harness == harness and entry.platform == platform
    )


def _is_own(artifact: str, harness: str) -> bool:
    return artifact == harness or artifact.startswith(f"{harness}-")


def _refusable(harness: str, fits: Callable[[], Forecast]) -> Forecast:
    try:
        return fits()
    except (UnprocessableError, Unsupported) as error:
        return Forecast(harness=harness, outcome="cannot", reason=error.message, cure=error.cure)
    except SandboxError as error:
        return Forecast(harness=harness, outcome="unknown", reason=error.message, cure=error.cure)
