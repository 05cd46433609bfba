"""An image as a file from one engine to another: the same content, or none."""

from __future__ import annotations

import hashlib
import io
import secrets
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.images import LoadedImage
from sandbox.engine.shipping import export_image, find_same, image_content, import_image
from sandbox.errors import IntegrityError, NotFound

pytestmark = pytest.mark.docker


@pytest.fixture
def image(engine: Engine) -> Iterator[LoadedImage]:
    """A small image that no other test has."""
    made, text = io.BytesIO(), secrets.token_bytes(64)
    with tarfile.open(fileobj=made, mode="w") as tar:
        info = tarfile.TarInfo("file")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    name = f"sandbox-test-{secrets.token_hex(6)}"
    engine.sdk.api.import_image_from_data(made.getvalue(), repository=name, tag="1")
    found = engine.sdk.api.inspect_image(f"{name}:1")
    yield LoadedImage(
        name=name, image_id=found["Id"], ref=f"{name}:1", libc="musl", libc_version="", arch="x64",
        platform="linux-x64-musl", recipe_sha256="", route="given", size=1,
    )  # fmt: skip
    remove(engine, found["Id"])


def remove(engine: Engine, name: str) -> None:
    if any(name == one["Id"] for one in engine.sdk.api.images(all=True)):
        engine.sdk.api.remove_image(name, force=True)


@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by ID"])
def test_it_arrives_as_it_was(
    engine: Engine, image: LoadedImage, tmp_path: Path, by_id: bool
) -> None:
    if by_id:
        image = image.model_copy(update={"ref": image.image_id})
    content, archive = image_content(engine, image), tmp_path / "image.tar"
    sha256 = export_image(engine, image, archive)
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == sha256
    remove(engine, image.image_id)
    assert find_same(engine, image, content) is None
    with pytest.raises(NotFound):
        image_content(engine, image)
    assert import_image(engine, image, content, archive) == image
    assert find_same(engine, image, content) == image


def test_another_image_under_its_name_is_not_taken_for_it(
    engine: Engine, image: LoadedImage, tmp_path: Path
) -> None:
    archive = tmp_path / "image.tar"
    export_image(engine, image, archive)
    with pytest.raises(IntegrityError, match="another image"):
        import_image(engine, image, "sha256:other", archive)
