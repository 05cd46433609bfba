"""Images made for a while: each is another, none stays, and those of a dead process go."""

from __future__ import annotations

import subprocess
import uuid

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.owner import Ownership
from sandbox.engine.variants import REPOSITORY, variants
from sandbox.progress import PlainProgress

pytestmark = pytest.mark.docker


def references(engine: Engine) -> set[str]:
    return {tag for one in engine.sdk.api.images(REPOSITORY) for tag in one["RepoTags"] or ()}


def test_they_differ_and_go(engine: Engine) -> None:
    base = ensure_image(engine, image_definition("busybox-only"), PlainProgress(quiet=True)).ref
    mine = Ownership.current(run_id=f"variants-{uuid.uuid4().hex[:8]}")
    gone = subprocess.Popen(["true"])
    gone.wait()
    dead = mine.model_copy(
        update={"run_id": f"{mine.run_id}-dead", "pid": gone.pid, "pid_started": 1}
    )
    with variants(engine, [base], 1, dead) as (left,):
        with variants(engine, [base], 3, mine) as names:
            assert left not in references(engine)
            assert set(names) <= references(engine)
            ids = {engine.sdk.api.inspect_image(name)["Id"] for name in names}
            assert len(ids) == 3
        engine.sdk.api.tag(base, REPOSITORY, left.rpartition(":")[2])  # for its own end
    assert not references(engine) & {left, *names}
