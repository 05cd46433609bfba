"""Images that lack what the lock says a runtime's files ask for: refused, with nothing fetched."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.agents.contract import (
    EpisodeId,
    SandboxAccess,
    SeedRequest,
    TaskId,
    UnprocessableError,
)
from sandbox.agents.ports import Place
from sandbox.agents.setup import Prepared, Setup
from sandbox.engine.facts import ImageFacts
from sandbox.engine.sandbox import Sandbox
from sandbox.evidence.records import InstallReceipt
from sandbox.runtimes.install import install
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.needs import Refusal
from sandbox.runtimes.reports import Bundle
from tests.unit.agent_fakes import ScriptHarness
from tests.unit.test_bundle_library import PINS, Room

WORK = "/workspace"
LOADERS = {"debian-12": "/lib64/ld-linux-x86-64.so.2", "alpine-3.23": "/lib/ld-musl-x86_64.so.1"}
# Another harness, given a library that the first one may lack.
GIVEN = """
[harness.other]
licence = "MIT"
version = "1.2.3"
version_output = "tool 1.2.3"
platforms = ["linux-x64-gnu", "linux-x64-musl"]

[[harness.other.runtime]]
platforms = ["linux-x64-gnu", "linux-x64-musl"]
entry = { kind = "link", program = "vendor/tool" }

[[harness.other.runtime.content]]
artifact = "tool"
take = "package/"
put = "vendor/"
links = { "libgiven.so.6" = "tool" }
"""


@dataclass
class Planted:
    """The runtimes of a library, as an agent gets them by copy."""

    library: RuntimeLibrary

    def refusals(self, harness: str, platform: str, facts: ImageFacts) -> tuple[Refusal, ...]:
        return self.library.refusals(harness, platform, facts)

    def bundle(self, harness: str, platform: str) -> Bundle:
        return self.library.ensure_bundle(harness, platform)

    def room(self, bundle: Bundle) -> int:
        return 2 * bundle.size

    def install(self, place: Place, bundle: Bundle, prefix: str) -> InstallReceipt:
        return install(place, bundle, prefix)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    found = Room(tmp_path)
    found.pins.write_text(PINS + GIVEN)
    with found.library() as library:
        library.update_lock()
    shutil.rmtree(tmp_path / "store")
    found.memory.asked = 0
    return found


def plant(room: Room, needs: dict[str, object]) -> RuntimeLibrary:
    """Give every bundle of the lock these needs."""

    def change(text: str) -> str:
        lock = json.loads(text)
        for platforms in lock["bundles"].values():
            for bundle in platforms.values():
                bundle["needs"] = needs
        return json.dumps(lock)

    room.edit_lock(change)
    return room.library()


def prepare(box: Sandbox, library: RuntimeLibrary) -> Prepared:
    setup = Setup(
        harness=ScriptHarness(name="tool"),
        runtimes=Planted(library),
        cancel=threading.Event(),
        made=lambda _: None,
    )
    request = SeedRequest(
        agent_session_id="s",
        episode_id=EpisodeId(rollout_id="r"),
        task_id=TaskId(task_source="docker", task_id="1"),
        sandbox_access=SandboxAccess.to_container(box.id, workdir=WORK),
    )
    return setup.prepare(request, box)


@pytest.mark.parametrize(
    ("image", "needs", "reason", "cure"),
    [
        ("debian-12", {"glibc": "2.99"}, "needs GLIBC_2.99, image has 2.36", "newer glibc"),
        (
            "debian-12",
            {"libraries": ["libstdc++.so.6"], "glibcxx": "3.4.99"},
            "needs GLIBCXX_3.4.99, image's libstdc++ has 3.4.30",
            "newer libstdc++",
        ),
        (
            "alpine-3.23",
            {"libraries": ["libstdc++.so.6"]},
            "needs libstdc++.so.6, image has none",
            "a pin, which brings it",
        ),
        (
            "alpine-3.23",
            {"libraries": ["libgiven.so.6"]},
            "needs libgiven.so.6, image has none",
            "the pin tool, which brings it",
        ),
        (
            "alpine-3.23",
            {"interpreter": LOADERS["debian-12"], "glibc": "2.17"},
            f"needs the loader {LOADERS['debian-12']}, image has {LOADERS['alpine-3.23']}",
            "own platform",
        ),
    ],
    ids=["glibc", "glibcxx", "library", "library-of-a-pin", "loader"],
)
def test_what_the_image_lacks_is_said_before_anything_is_fetched(
    make: Callable[..., Sandbox], room: Room, image: str, needs: dict[str, object], reason: str,
    cure: str,
) -> None:  # fmt: skip
    with make(image, workdir=WORK) as box:
        before = box.diff()
        with pytest.raises(UnprocessableError) as caught:
            prepare(box, plant(room, needs))
        assert box.diff() == before
        assert box.exec(["ls", "-A", "/tmp"], deadline_s=10).stdout.text == ""
    assert reason in caught.value.message
    assert cure in str(caught.value.cure)
    assert room.memory.asked == 0
    assert room.bundles() == []


@pytest.mark.parametrize("image", LOADERS)
def test_what_the_image_has_is_not_refused(
    make: Callable[..., Sandbox], room: Room, image: str
) -> None:
    libraries = {"debian-12": ["libstdc++.so.6", "libz.so.1"], "alpine-3.23": ["libz.so.1"]}
    needs: dict[str, object] = {"interpreter": LOADERS[image], "libraries": libraries[image]}
    if image == "debian-12":
        needs |= {"glibc": "2.36", "glibcxx": "3.4.30"}
    with make(image, workdir=WORK) as box:
        assert prepare(box, plant(room, needs)).install.version_output == "tool 1.2.3"
