"""Images by way of a registry: a real one on loopback, pinned by digest, moved, down, lying."""

import base64
import io
import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.conformance.imagenames import image_name
from sandbox.conformance.prepare import prepare_image
from sandbox.engine.client import Engine
from sandbox.engine.given import find_given
from sandbox.engine.imagebuild.archive import write_archive
from sandbox.engine.imagebuild.commands import Host
from sandbox.engine.imagebuild.definition import (
    ImageDef,
    Settings,
    image_definitions,
    load_definition,
)
from sandbox.engine.imagebuild.pull import digest_of, pull
from sandbox.engine.imagebuild.store import EngineStore
from sandbox.engine.imagebuild.tree import Entry, Kind
from sandbox.engine.imagelock import lock_bases
from sandbox.engine.images import ensure_image
from sandbox.errors import FetchError, IntegrityError, PrerequisiteMissing
from sandbox.progress import PlainProgress
from tests.contract.registry import PASSWORD, USER, LoopbackRegistry

pytestmark = [pytest.mark.docker, pytest.mark.network]
QUIET = PlainProgress(quiet=True)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackRegistry]:
    """A registry for everybody."""
    with LoopbackRegistry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def names(engine: Engine, registry: LoopbackRegistry) -> Iterator[list[str]]:
    """Collect names of images that the test makes; they are removed at its end."""
    made: list[str] = []
    yield made
    for name in reversed(made):  # what was built on a base goes before it
        for image in engine.sdk.images.list(name):
            engine.sdk.images.remove(image.id, force=True)


def tiny(engine: Engine, folder: Path, name: str, words: str) -> str:
    """Load an image with one file as ``name``; give its ID."""
    data = words.encode()
    entry = Entry(
        path="words", kind=Kind.FILE, mode=0o644, size=len(data), content=lambda: io.BytesIO(data)
    )
    archive = folder / f"{uuid.uuid4().hex}.tar"
    with archive.open("wb") as target:
        written = write_archive(
            target, [entry], settings=Settings(), arch="x64", labels={}, reference=name
        )
    with QUIET.step("load") as step:
        EngineStore(engine).load(archive, step)
    return written.image_id


def push(engine: Engine, reference: str) -> None:
    name, _, tag = reference.rpartition(":")
    for event in engine.sdk.api.push(name, tag=tag, stream=True, decode=True):
        assert "error" not in event, event


def forget(engine: Engine, name: str) -> None:
    for image in engine.sdk.images.list(name):
        engine.sdk.images.remove(image.id, force=True)


@pytest.fixture
def pushed(
    engine: Engine, registry: LoopbackRegistry, names: list[str], tmp_path: Path
) -> tuple[str, str]:
    """An image in the registry that the engine does not have: its reference and digest."""
    name = f"{registry.host}/{uuid.uuid4().hex[:12]}"
    names.append(name)
    tiny(engine, tmp_path, f"{name}:1", f"first of {name}")
    push(engine, f"{name}:1")
    digest = digest_of(engine, f"{name}:1", what="test")
    forget(engine, name)
    return f"{name}:1", digest


@pytest.fixture
def definition(pushed: tuple[str, str], names: list[str], tmp_path: Path) -> ImageDef:
    """A definition whose Dockerfile starts from ``pushed``; it is not locked."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    names.append(f"sandbox/{name}")
    folder = tmp_path / name
    shutil.copytree(image_definitions()["ubuntu-24.04"].folder, folder)
    text = (folder / "image.toml").read_text().replace("ubuntu:24.04", pushed[0])
    (folder / "image.toml").write_text(text.replace("ubuntu-24.04", name))
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY image.toml /made\n")
    return load_definition(folder)


def test_pushed_locked_pulled_by_digest_and_built(
    engine: Engine, pushed: tuple[str, str], definition: ImageDef, tmp_path: Path
) -> None:
    host = Host(cache=tmp_path / "cache")
    with pytest.raises(PrerequisiteMissing, match="not pinned to a digest"):
        ensure_image(engine, definition, QUIET, host=host)
    (base,) = lock_bases(engine, [definition])
    assert (base.state, base.digest) == ("locked", pushed[1])
    locked = load_definition(definition.folder)
    assert lock_bases(engine, [locked])[0].state == "same"
    image = ensure_image(engine, locked, QUIET, host=host)
    assert image.route == "registry"
    assert ensure_image(engine, locked, QUIET, host=host) == image
    below = engine.sdk.api.inspect_image(pushed[0].rpartition(":")[0] + "@" + pushed[1])
    assert below["RootFS"]["Layers"][0] in EngineStore(engine).find(image.ref).layers


def test_a_tag_that_moved_is_refused_until_somebody_says_so(
    engine: Engine, pushed: tuple[str, str], definition: ImageDef, tmp_path: Path
) -> None:
    lock_bases(engine, [definition])
    tiny(engine, tmp_path, pushed[0], "another one")
    push(engine, pushed[0])
    locked = load_definition(definition.folder)
    (moved,) = lock_bases(engine, [locked])
    assert (moved.state, moved.before) == ("moved", pushed[1])
    assert moved.digest != pushed[1]
    assert load_definition(definition.folder) == locked, "nothing is written by itself"
    forget(engine, pushed[0].rpartition(":")[0])
    pull(engine, f"{pushed[0]}@{pushed[1]}", what="test")
    found = EngineStore(engine).find(f"{pushed[0].rpartition(':')[0]}@{pushed[1]}")
    assert found is not None, "the digest counts, wherever the tag is now"
    (updated,) = lock_bases(engine, [locked], update=True)
    assert updated.state == "updated"
    now = load_definition(definition.folder).registry
    assert now is not None
    assert now.digest == moved.digest


def test_a_registry_without_that_digest_refuses(engine: Engine, pushed: tuple[str, str]) -> None:
    name = pushed[0].rpartition(":")[0]
    with pytest.raises(FetchError, match="404") as caught:
        pull(engine, f"{name}@sha256:{'0' * 64}", what="test")
    assert not caught.value.retryable


@pytest.mark.parametrize("what", ["manifest", "layer"])
def test_a_registry_that_serves_other_bytes_is_not_believed(
    engine: Engine, registry: LoopbackRegistry, pushed: tuple[str, str], what: str
) -> None:
    manifest = registry.blob(pushed[1])
    layer = json.loads(manifest.read_text())["layers"][0]["digest"]
    path = manifest if what == "manifest" else registry.blob(layer)
    data = bytearray(path.read_bytes())
    if what == "manifest":
        data += b" "
    else:
        data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    name = pushed[0].rpartition(":")[0]
    with pytest.raises(IntegrityError, match="do not use them"):
        pull(engine, f"{name}@{pushed[1]}", what="test")
    assert engine.sdk.images.list(name) == []


def test_a_registry_that_is_down(
    engine: Engine, names: list[str], tmp_path: Path, definition: ImageDef
) -> None:
    with LoopbackRegistry(tmp_path / "own") as own:
        name = f"{own.host}/one"
        names.append(name)
        tiny(engine, tmp_path, f"{name}:1", "here")
        push(engine, f"{name}:1")
        forget(engine, name)
    with pytest.raises(FetchError) as caught:
        pull(engine, f"{name}:1", what="test")
    assert caught.value.retryable
    with pytest.raises(PrerequisiteMissing, match="does not have the image"):
        find_given(engine, f"{name}:1", QUIET)
    text = (definition.folder / "image.toml").read_text()
    base = definition.registry.base if definition.registry else ""
    (definition.folder / "image.toml").write_text(text.replace(str(base), f"{name}:1"))
    (unknown,) = lock_bases(engine, [load_definition(definition.folder)])
    assert unknown.state == "unknown"
    assert "connection refused" in (unknown.reason or "")


def test_an_image_of_somebody_else_is_pulled_by_its_name(
    engine: Engine, pushed: tuple[str, str]
) -> None:
    name = image_name(pushed[0])
    image = prepare_image(engine, name, QUIET)
    assert (image.name, image.ref, image.route) == (name, image.image_id, "given")
    assert (image.arch, image.platform, image.libc) == ("x64", "linux-x64-none", "none")
    found = find_given(engine, pushed[0], QUIET)
    assert found.image_id == image.image_id
    assert find_given(engine, pushed[0], QUIET).image_id == found.image_id
    assert find_given(engine, found.image_id, QUIET).image_id == found.image_id


def test_credentials_come_from_the_clients_configuration(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackRegistry(tmp_path / "own", password=True) as own:
        name = f"{own.host}/private"
        names.append(name)
        word = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        for folder, auths in (("with", {own.host: {"auth": word}}), ("without", {})):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "config.json").write_text(json.dumps({"auths": auths}))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "with"))
        with Engine.connect() as known:
            tiny(known, tmp_path, f"{name}:1", "private")
            push(known, f"{name}:1")
            forget(known, name)
            digest = digest_of(known, f"{name}:1", what="test")
            pull(known, f"{name}@{digest}", what="test")
            forget(known, name)
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "without"))
        with Engine.connect() as stranger:
            for ask in (
                lambda: pull(stranger, f"{name}@{digest}", what="test"),
                lambda: digest_of(stranger, f"{name}:1", what="test"),
            ):
                with pytest.raises(FetchError, match="docker login") as caught:
                    ask()
                assert not caught.value.retryable
                assert PASSWORD not in str(caught.value)
