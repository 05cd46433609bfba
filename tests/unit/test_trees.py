"""Whole dependency trees, from their lock file to the bundle; with packages from memory."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import FetchError, IntegrityError, PrerequisiteMissing, UsageError
from sandbox.progress import Step
from sandbox.runtimes.artifacts import ArtifactPin
from sandbox.runtimes.fetch import Arrival
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.lock import Wanted
from sandbox.runtimes.store import Store

PINS = """
schema = 1

[artifact.node]
client = "npm"
name = "node"
version = "22.0.0"
licence = "MIT"

[tree.tool]
client = "npm"
source = "tool/package-lock.json"

[harness.tool]
licence = "MIT"
version = "1.0.0"
version_output = "tool 1.0.0"
platforms = ["linux-x64-gnu", "linux-x64-musl"]

[[harness.tool.runtime]]
platforms = ["linux-x64-gnu"]
entry = { kind = "exec", program = "node/node", script = "app/node_modules/tool/cli.js" }

[[harness.tool.runtime.content]]
artifact = "node"
take = "package/"
put = "node/"

[[harness.tool.runtime.tree]]
tree = "tool"
put = "app/"
leave = ["*.map"]

[[harness.tool.runtime]]
platforms = ["linux-x64-musl"]
entry = { kind = "exec", program = "node/node", script = "app/node_modules/tool/cli.js" }

[[harness.tool.runtime.content]]
artifact = "node"
take = "package/"
put = "node/"

[[harness.tool.runtime.tree]]
tree = "tool"
put = "app/"
"""


def package(files: Sequence[tuple[str, str]], top: str = "package") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in files:
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mode = len(text), 0o755 if name == "node" else 0o644
            archive.addfile(info, io.BytesIO(text.encode()))
    return gzip.compress(out.getvalue(), mtime=0)


LONG = "deep/" * 25 + "n" * 120 + ".js"
PACKAGES = {
    "node-22.0.0": package([("node", '#!/bin/sh\necho "$@"\n')]),
    "tool-1.0.0": package([("cli.js", "// tool"), ("cli.js.map", "{}"), (LONG, "1")]),
    "dep-2.0.0": package([("index.js", "same"), ("./index.js", "same")], top="dep"),
    "gnu-1.0.0": package([("gnu.node", "gnu")]),
    "musl-1.0.0": package([("musl.node", "musl")]),
}


def sri(data: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


def lock_file() -> dict[str, Any]:
    def node(key: str, **more: Any) -> dict[str, Any]:
        version = key.rpartition("-")[2]
        return {"version": version, "integrity": sri(PACKAGES[key]), "license": "ISC"} | more

    return {
        "lockfileVersion": 3,
        "packages": {
            "": {"name": "tool-runtime"},
            "node_modules/tool": node("tool-1.0.0", bin={"tool": "cli.js"}),
            "node_modules/dep": node("dep-2.0.0"),
            "node_modules/tool/node_modules/dep": node("dep-2.0.0"),
            "node_modules/gnu": node("gnu-1.0.0", optional=True, libc=["glibc"]),
            "node_modules/musl": node("musl-1.0.0", optional=True, libc=["musl"]),
        },
    }


@dataclass
class Memory:
    packages: dict[str, bytes] = field(default_factory=lambda: dict(PACKAGES))
    asked: list[str] = field(default_factory=list)

    def bring(
        self, pin: ArtifactPin | Wanted, folder: Path, *,
        integrity: Integrity | None, size: int | None, step: Step,
    ) -> Arrival:  # fmt: skip
        key = f"{pin.name}-{pin.version}"
        self.asked.append(key)
        if key not in self.packages:
            raise FetchError(f"no {key}")
        path = folder / "file"
        path.write_bytes(self.packages[key])
        return Arrival(path, f"{key}.tgz", integrity or Integrity.parse(sri(self.packages[key])))


@dataclass
class Room:
    folder: Path
    memory: Memory = field(default_factory=Memory)

    def library(self) -> RuntimeLibrary:
        memory = self.memory
        return RuntimeLibrary(
            self.folder / "pins.toml", store=Store(self.folder / "store"),
            sources={"npm": lambda: memory},
        )  # fmt: skip

    @property
    def source(self) -> Path:
        return self.folder / "tool/package-lock.json"

    def forget(self) -> None:
        shutil.rmtree(self.folder / "store")
        self.memory.asked.clear()


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """A locked room whose store is empty again."""
    found = Room(tmp_path)
    (tmp_path / "pins.toml").write_text(PINS)
    (tmp_path / "tool").mkdir()
    found.source.write_text(json.dumps(lock_file()))
    with found.library() as library:
        library.update_lock()
    found.forget()
    return found


def entries(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as archive:
        return {info.name: info for info in archive if not info.isdir()}


def test_a_tree_lands_in_node_modules_and_fits_its_platform(room: Room) -> None:
    library = room.library()
    found = {p: library.ensure_bundle("tool", f"linux-x64-{p}").path for p in ("gnu", "musl")}
    gnu, musl = entries(found["gnu"]), entries(found["musl"])
    modules = "app/node_modules/"
    assert set(gnu) == {
        "MANIFEST.json", "bin/tool", "node/node", modules + ".bin/tool", modules + "tool/cli.js",
        modules + f"tool/{LONG}", modules + "dep/index.js", modules + "gnu/gnu.node",
        modules + "tool/node_modules/dep/index.js",
    }  # fmt: skip
    assert set(musl) - set(gnu) == {modules + "musl/musl.node", modules + "tool/cli.js.map"}
    assert gnu[modules + "tool/cli.js"].mode == 0o755
    assert gnu[modules + ".bin/tool"].linkname == "../tool/cli.js"
    assert sorted(set(room.memory.asked)) == sorted(room.memory.asked) == sorted(PACKAGES)


def test_the_manifest_names_each_package_and_licence(room: Room) -> None:
    with tarfile.open(room.library().ensure_bundle("tool", "linux-x64-gnu").path) as archive:
        read = archive.extractfile("MANIFEST.json")
        assert read is not None
        (packages,) = json.load(read)["trees"].values()
    assert [(one["name"], one["licence"]) for one in packages] == [
        ("dep", "ISC"), ("gnu", "ISC"), ("tool", "ISC"),
    ]  # fmt: skip


def test_locking_twice_and_on_another_machine_gives_the_same(room: Room, tmp_path: Path) -> None:
    before = (room.folder / "pins.lock").read_text()
    assert not room.library().update_lock().changed
    other = Room(tmp_path / "other")
    shutil.copytree(room.folder, other.folder, ignore=shutil.ignore_patterns("store", "other"))
    (other.folder / "pins.lock").unlink()
    other.library().update_lock()
    assert (other.folder / "pins.lock").read_text() == before


def test_a_changed_source_makes_the_lock_stale(room: Room) -> None:
    room.source.write_text(json.dumps(lock_file(), indent=1))
    with pytest.raises(UsageError, match=r"(?s)stale.*package-lock\.json.*sandbox pins lock"):
        room.library().ensure_bundle("tool", "linux-x64-gnu")
    room.source.unlink()
    with pytest.raises(PrerequisiteMissing, match="tree's source"):
        room.library().ensure_bundle("tool", "linux-x64-gnu")
    assert room.memory.asked == []


@pytest.mark.parametrize("key", ["tool-1.0.0", "dep-2.0.0"])
def test_one_byte_of_a_package_changed(room: Room, key: str) -> None:
    room.memory.packages[key] = PACKAGES[key][:-1] + b"x"
    with pytest.raises(IntegrityError, match="pinned is"):
        room.library().ensure_bundle("tool", "linux-x64-gnu")
    assert list((room.folder / "store").rglob("*.tar")) == []


def test_one_digit_of_a_packages_hash_changed(room: Room) -> None:
    path, digest = room.folder / "pins.lock", sri(PACKAGES["dep-2.0.0"])
    other = "sha512-" + ("A" if digest[7] != "A" else "B") + digest[8:]
    path.write_text(path.read_text().replace(digest, other))
    with pytest.raises(IntegrityError, match="pinned is"):
        room.library().ensure_bundle("tool", "linux-x64-gnu")


def test_a_package_left_out_of_the_lock_is_another_bundle(room: Room) -> None:
    path = room.folder / "pins.lock"
    data = json.loads(path.read_text())
    packages = data["trees"]["tool"]["packages"]
    data["trees"]["tool"]["packages"] = [one for one in packages if one["name"] != "gnu"]
    path.write_text(json.dumps(data))
    with pytest.raises(IntegrityError, match="came out with"):
        room.library().ensure_bundle("tool", "linux-x64-gnu")


def test_a_corrupt_package_in_the_store_is_fetched_again(room: Room) -> None:
    good = room.library().ensure_bundle("tool", "linux-x64-gnu").path.read_bytes()
    stored = Store(room.folder / "store").artifact(Integrity.parse(sri(PACKAGES["dep-2.0.0"])))
    stored.write_bytes(b"odd")
    found = {entry.name: entry for entry in room.library().verify()}
    assert found["tool dep-2.0.0.tgz"].status == "corrupt"
    shutil.rmtree(room.folder / "store/bundles")
    room.memory.asked.clear()
    assert room.library().ensure_bundle("tool", "linux-x64-gnu").path.read_bytes() == good
    assert room.memory.asked == ["dep-2.0.0"]


def test_a_package_that_cannot_be_had_leaves_no_bundle(room: Room) -> None:
    del room.memory.packages["dep-2.0.0"]
    with pytest.raises(FetchError, match=r"no dep-2\.0\.0"):
        room.library().ensure_bundle("tool", "linux-x64-gnu")
    assert list((room.folder / "store").rglob("*.tar")) == []


def test_platforms_of_one_bundle_must_get_the_same_packages(room: Room) -> None:
    one = PINS[: PINS.rindex("[[harness.tool.runtime]]")]
    one = one.replace('[[harness.tool.runtime]]\nplatforms = ["linux-x64-gnu"]',
                      '[[harness.tool.runtime]]\nplatforms = ["linux-x64-gnu", "linux-x64-musl"]')  # fmt: skip # noqa: E501
    (room.folder / "pins.toml").write_text(one)
    with pytest.raises(UsageError, match="differs between linux-x64-gnu and linux-x64-musl"):
        room.library().update_lock()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[tree.tool]", "[tree.other]", "tree.other"),
        ('put = "app/"', 'put = "app"', "must be a folder"),
        ('put = "app/"', 'put = "app/"\nbytecode = true', "bytecode needs a tree of pip"),
        ('source = "tool/', 'source = "../tool/', "tree.tool"),
        ('client = "npm"\nsource', 'client = "cargo"\nsource', "tree.tool"),
    ],
)
def test_a_mistake_in_the_pins_of_a_tree(room: Room, old: str, new: str, said: str) -> None:
    assert old in PINS
    (room.folder / "pins.toml").write_text(PINS.replace(old, new, 1))
    with pytest.raises(UsageError, match=said):
        room.library()
