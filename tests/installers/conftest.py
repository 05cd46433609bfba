"""Sandboxes of both libcs, and bundles of a few bytes, for the installer's tests."""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.images import LoadedImage, ensure_image, image_definitions
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.progress import PlainProgress
from sandbox.runtimes import ustar
from sandbox.runtimes.library import Bundle

TOOL = """#!/bin/sh
# a program that behaves: prints its version, and is rude to its surroundings
echo "chatter" >&2
touch "$HOME/.state" "$TMPDIR/.scratch"
echo "tool 1.2.3"
"""


@pytest.fixture(scope="session", params=["debian-12", "alpine-3.23"])
def image(request: pytest.FixtureRequest, engine: Engine) -> LoadedImage:
    definition = image_definitions()[request.param]
    return ensure_image(engine, definition, PlainProgress(quiet=True))


@pytest.fixture(scope="session")
def owner() -> Ownership:
    return Ownership.current(run_id=f"installers-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def sandbox(
    engine: Engine, image: LoadedImage, owner: Ownership
) -> Iterator[Callable[..., Sandbox]]:
    """Start sandboxes of the image; all are gone at the end of the test."""
    with ExitStack() as stack:

        def start(**options: Any) -> Sandbox:
            return stack.enter_context(Sandbox(engine, image.ref, owner=owner, **options))

        yield start
    mine = {"label": [f"sandbox.run_id={owner.run_id}"]}
    assert engine.sdk.api.containers(all=True, filters=mine) == []


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Bundle]:
    """Make a bundle of a harness called "tool" that is a shell script."""
    count = iter(range(99))

    def make(
        platform: str, *, program: str = TOOL, extra: dict[str, bytes] | None = None, **fields: Any
    ) -> Bundle:
        path = tmp_path / f"bundle-{next(count)}.tar"
        files = {"MANIFEST.json": json.dumps({"schema": 1}).encode()} | (extra or {})
        with path.open("wb") as out:
            for name, data in sorted(files.items()):
                ustar.write_file(out, name, io.BytesIO(data), len(data), executable=False)
            ustar.write_folder(out, "bin")
            ustar.write_link(out, "bin/tool", "../libexec/tool")
            ustar.write_folder(out, "libexec")
            data = program.encode()
            ustar.write_file(out, "libexec/tool", io.BytesIO(data), len(data), executable=True)
            ustar.write_end(out)
        said = {
            "harness": "tool",
            "version": "1.2.3",
            "platform": platform,
            "path": path,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "size": path.stat().st_size,
            "version_argv": ("--version",),
            "version_output": "tool 1.2.3",
        }
        return Bundle.model_validate(said | fields)

    return make
