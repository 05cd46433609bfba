"""From pins to bundles: locking, tampering, sharing, verifying; with packages from memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.errors import FetchError, IntegrityError, NothingSelected, Unsupported, UsageError
from sandbox.progress import PlainProgress, Step
from sandbox.runtimes.artifacts import NpmPin, PipPin
from sandbox.runtimes.fetch import Arrival, Source
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.lock import LockedArtifact
from sandbox.runtimes.store import Store

PINS = """
schema = 1

[artifact.tool]
client = "npm"
name = "tool"
version = "1.2.3"
licence = "MIT"

[harness.tool]
licence = "MIT"
version = "1.2.3"
version_output = "tool 1.2.3"
platforms = ["linux-x64-gnu", "linux-x64-musl"]

[[harness.tool.runtime]]
platforms = ["linux-x64-gnu", "linux-x64-musl"]
entry = { kind = "link", program = "vendor/tool" }

[[harness.tool.runtime.content]]
artifact = "tool"
take = "package/"
put = "vendor/"
"""


def package(text: str = "#!/bin/sh\necho tool 1.2.3\n") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("package/tool")
        info.size, info.mode = len(text), 0o755
        archive.addfile(info, io.BytesIO(text.encode()))
    return gzip.compress(out.getvalue(), mtime=0)  # the same bytes in every process


@dataclass
class Memory:
    """A source that holds packages in memory."""

    packages: dict[str, bytes] = field(default_factory=lambda: {"tool": package()})
    asked: int = 0

    def bring(
        self, pin: NpmPin | PipPin | LockedArtifact, folder: Path, *,
        integrity: Integrity | None, size: int | None, step: Step,
    ) -> Arrival:  # fmt: skip
        self.asked += 1
        if pin.name not in self.packages:
            raise FetchError(f"no {pin.name}")
        data = self.packages[pin.name]
        path = folder / "file"
        path.write_bytes(data)
        found = Integrity.parse("sha256:" + hashlib.sha256(data).hexdigest())
        return Arrival(path, f"{pin.name}-{pin.version}.tgz", integrity or found)


@dataclass
class Room:
    """A pins file, a store and a source."""

    folder: Path
    memory: Memory = field(default_factory=Memory)

    @property
    def pins(self) -> Path:
        return self.folder / "pins.toml"

    @property
    def lock(self) -> Path:
        return self.folder / "pins.lock"

    @property
    def store(self) -> Store:
        return Store(self.folder / "store")

    def library(self, progress: PlainProgress | None = None) -> RuntimeLibrary:
        def source() -> Source:
            return self.memory

        return RuntimeLibrary(
            self.pins, store=self.store, sources={"npm": source}, progress=progress
        )

    def edit_lock(self, change: Callable[[str], str]) -> None:
        self.lock.write_text(change(self.lock.read_text()))

    def bundles(self) -> list[str]:
        """Return the names of finished bundles."""
        return sorted(path.name for path in (self.folder / "store/bundles").glob("*.tar"))


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """A locked room whose store is empty again."""
    found = Room(tmp_path)
    found.pins.write_text(PINS)
    with found.library() as library:
        library.update_lock()
    shutil.rmtree(tmp_path / "store")
    found.memory.asked = 0
    return found


def test_locking_twice_gives_the_same_file(room: Room) -> None:
    before = room.lock.read_text()
    assert not room.library().update_lock().changed
    room.lock.unlink()
    assert room.library().update_lock().changed
    assert room.lock.read_text() == before


def test_a_bundle_is_made_once_and_serves_both_platforms(room: Room) -> None:
    gnu = room.library().ensure_bundle("tool", "linux-x64-gnu")
    musl = room.library().ensure_bundle("tool", "linux-x64-musl")
    assert gnu.path == musl.path
    assert gnu.sha256 == hashlib.sha256(gnu.path.read_bytes()).hexdigest()
    assert gnu.size == gnu.path.stat().st_size
    assert (gnu.version, gnu.version_output) == ("1.2.3", "tool 1.2.3")
    assert room.memory.asked == 1


def test_another_machine_makes_the_same_bundle(room: Room, tmp_path: Path) -> None:
    one = room.library().ensure_bundle("tool", "linux-x64-gnu")
    other = Room(tmp_path / "other")
    shutil.copytree(room.folder, other.folder, ignore=shutil.ignore_patterns("store", "other"))
    two = other.library().ensure_bundle("tool", "linux-x64-gnu")
    assert one.path.read_bytes() == two.path.read_bytes()


def test_a_changed_pin_makes_the_lock_stale(room: Room) -> None:
    room.pins.write_text(PINS.replace("tool 1.2.3", "tool 1.2.4"))
    with pytest.raises(UsageError, match=r"(?s)stale.*sandbox pins lock"):
        room.library().ensure_bundle("tool", "linux-x64-gnu")


def locked_sha(room: Room) -> str:
    data = json.loads(room.lock.read_text())
    return str(data["bundles"]["tool"]["linux-x64-gnu"]["sha256"])


def other_digit(text: str) -> str:
    return ("0" if text[0] != "0" else "1") + text[1:]


def test_one_digit_of_the_bundles_hash_changed(room: Room) -> None:
    sha = locked_sha(room)
    room.edit_lock(lambda text: text.replace(sha, other_digit(sha)))
    with pytest.raises(IntegrityError, match="came out with sha256"):
        room.library().ensure_bundle("tool", "linux-x64-gnu")
    assert room.bundles() == []


def test_one_digit_of_the_bundles_hash_changed_with_a_full_store(room: Room) -> None:
    sha = locked_sha(room)
    room.library().ensure_bundle("tool", "linux-x64-gnu")
    room.edit_lock(lambda text: text.replace(sha, other_digit(sha)))
    with pytest.raises(IntegrityError, match="came out with sha256"):
        room.library().ensure_bundle("tool", "linux-x64-gnu")


def test_one_digit_of_an_artifacts_hash_changed(room: Room) -> None:
    sha = hashlib.sha256(package()).hexdigest()
    room.edit_lock(lambda text: text.replace(sha, other_digit(sha)))
    with pytest.raises(IntegrityError, match="pinned is"):
        room.library().ensure_bundle("tool", "linux-x64-gnu")
    assert room.bundles() == []


def test_an_artifact_that_changed_under_its_version_is_no_new_lock(room: Room) -> None:
    room.memory.packages["tool"] = package("#!/bin/sh\necho evil\n")
    before = room.lock.read_text()
    with pytest.raises(IntegrityError):
        room.library().update_lock()
    assert room.lock.read_text() == before


def test_a_new_version_is_a_new_lock(room: Room) -> None:
    room.pins.write_text(PINS.replace("1.2.3", "1.2.4"))
    room.memory.packages["tool"] = package("#!/bin/sh\necho tool 1.2.4\n")
    assert room.library().update_lock().changed
    assert room.library().ensure_bundle("tool", "linux-x64-gnu").version == "1.2.4"


@pytest.mark.parametrize("how", ["one-byte", "truncated", "emptied"])
def test_a_corrupt_bundle_is_said_and_made_again(
    room: Room, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = room.library().ensure_bundle("tool", "linux-x64-gnu")
    good = bundle.path.read_bytes()
    bad = {"one-byte": b"\xff" + good[1:], "truncated": good[:-1], "emptied": b""}[how]
    bundle.path.write_bytes(bad)
    again = room.library(PlainProgress()).ensure_bundle("tool", "linux-x64-gnu")
    assert again.path.read_bytes() == good
    assert "making it again" in capsys.readouterr().err


def test_verify_tells_ok_absent_and_corrupt_and_asks_nobody(room: Room) -> None:
    library = room.library()
    assert [entry.status for entry in library.verify()] == ["ok", "absent", "absent", "absent"]
    bundle = library.ensure_bundle("tool", "linux-x64-gnu")
    room.memory.asked = 0
    assert {entry.status for entry in library.verify()} == {"ok"}
    with bundle.path.open("r+b") as stream:
        stream.write(b"\xff")
    found = {(e.kind, e.name): e for e in library.verify()}
    assert found["bundle", "tool linux-x64-gnu"].status == "corrupt"
    assert "pinned is" in found["bundle", "tool linux-x64-gnu"].detail
    assert found["artifact", "tool"].status == "ok"
    assert room.memory.asked == 0


def test_the_list_needs_no_network(room: Room) -> None:
    library = room.library()
    assert [(e.harness, e.platform, e.cached) for e in library.entries()] == [
        ("tool", "linux-x64-gnu", False),
        ("tool", "linux-x64-musl", False),
    ]
    library.ensure_bundle("tool", "linux-x64-gnu")
    assert all(entry.cached for entry in library.entries())
    assert room.memory.asked == 1


def test_fetch_takes_globs_and_tells_what_was_here(room: Room) -> None:
    library = room.library()
    (first,) = library.fetch(["t*"], ["*-musl"])
    assert (first.bundle.platform, first.already_here) == ("linux-x64-musl", False)
    assert [entry.already_here for entry in library.fetch()] == [True, True]
    with pytest.raises(NothingSelected, match="tool linux-x64-gnu"):
        library.fetch(["nonesuch"])


def test_what_is_not_pinned_is_refused_before_anything_is_fetched(room: Room) -> None:
    with pytest.raises(UsageError, match="nonesuch"):
        room.library().ensure_bundle("nonesuch", "linux-x64-gnu")
    with pytest.raises(Unsupported, match="tool: no pin for platform linux-arm64-gnu"):
        room.library().ensure_bundle("tool", "linux-arm64-gnu")
    assert room.memory.asked == 0


def test_a_fetch_that_fails_leaves_nothing(room: Room) -> None:
    del room.memory.packages["tool"]
    with pytest.raises(FetchError):
        room.library().ensure_bundle("tool", "linux-x64-gnu")
    left = [path for path in (room.folder / "store").rglob("*") if path.is_file()]
    assert all(path.name.endswith(".lock") for path in left)


def test_concurrent_cells_share_one_fetch_and_one_assembly(room: Room) -> None:
    def one(_: int) -> Path:
        return room.library().ensure_bundle("tool", "linux-x64-gnu").path

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(one, range(6)))) == 1
    assert room.memory.asked == 1


def test_what_a_killed_maker_left_is_removed(room: Room) -> None:
    sha = locked_sha(room)
    bundles = room.folder / "store/bundles"
    stage = bundles / f".{sha}.tar.tmp-stage-dead"
    stage.mkdir(parents=True)
    (stage / "0").write_text("half")
    (bundles / f".{sha}.tar.tmp-dead").write_text("half a bundle")
    room.library().ensure_bundle("tool", "linux-x64-gnu")
    assert sorted(path.name for path in bundles.iterdir()) == [
        f"{sha}.tar",
        f"{sha}.tar.lock",
        f"{sha}.tar.ok",
    ]


FULL = """
import sys
from pathlib import Path
from sandbox.errors import SandboxError
from sandbox.runtimes.store import Store
sys.path.insert(0, sys.argv[1])
from tests.unit.test_bundle_library import Memory, package
from sandbox.runtimes.library import RuntimeLibrary
memory = Memory()
library = RuntimeLibrary(Path(sys.argv[2]), store=Store(Path(sys.argv[3])),
                         sources={"npm": lambda: memory})
try:
    library.ensure_bundle("tool", "linux-x64-gnu")
except SandboxError as error:
    print(type(error).__name__, int(error.exit_code), error.cure)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_is_a_missing_prerequisite(room: Room, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = 'mount -t tmpfs -o size=4k,nr_inodes=12 none "$1" && shift && exec "$@"'
    repository = Path(__file__).parents[2]
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", small,
         sys.executable, "-c", FULL, repository, room.pins, small / "store"],
        check=True, capture_output=True, text=True, cwd=repository,
        env=os.environ | {"PYTHONPATH": str(repository)},
    )  # fmt: skip
    assert said.stdout.startswith("CacheUnusable 5 free space")
