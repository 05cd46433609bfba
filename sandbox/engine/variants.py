"""Images that differ a little from others, made for a while: as the task images of a fleet do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.engine.owner import PROJECT_FILTER, Ownership, owner_is_alive

REPOSITORY = "sandbox-variant"


@contextmanager
def variants(
    engine: Engine, refs: Sequence[str], count: int, owner: Ownership
) -> Iterator[tuple[str, ...]]:
    """Make ``count`` images, each one of ``refs`` with a variable more; give their references.

    They are removed at the end; those of processes that are proved dead go first.

    Raises:
        EngineFailure: the engine failed.
    """
    api = engine.sdk.api
    _remove_abandoned(engine)
    with ExitStack() as stack:
        names = []
        for number in range(count):
            base, tag = refs[number % len(refs)], f"{owner.run_id}-{number}"
            with engine_errors(f"make a variant of {base}"):
                made = api.create_container(base, ["-"], labels=owner.labels())["Id"]
                try:
                    changes = f"ENV SANDBOX_VARIANT={number}"
                    api.commit(made, REPOSITORY, tag, changes=changes)
                finally:
                    api.remove_container(made, force=True)
            names.append(f"{REPOSITORY}:{tag}")
            stack.callback(_remove, engine, names[-1])
        yield tuple(names)


def _remove_abandoned(engine: Engine) -> None:
    with engine_errors("look for variants that were left"):
        found = engine.sdk.api.images(REPOSITORY, filters={"label": [PROJECT_FILTER]})
    for one in found:
        if not owner_is_alive(one["Labels"] or {}):
            _remove(engine, one["Id"])


def _remove(engine: Engine, reference: str) -> None:
    with engine_errors(f"remove the image {reference}"):
        engine.sdk.api.remove_image(reference, force=True)
