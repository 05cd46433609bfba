"""A tree of wheels for two libcs through the real pip, from an index on loopback."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sandbox.errors import FetchError, IntegrityError
from sandbox.progress import PlainProgress
from sandbox.runtimes.fetch import Fetcher
from sandbox.runtimes.forester import Forester, packages_for
from sandbox.runtimes.lock import LockedTree
from sandbox.runtimes.pytree import platform_tags
from sandbox.runtimes.store import Store
from sandbox.runtimes.trees import PipTreePin
from tests.installers.test_pip import Index, index, pip_at, wheel  # noqa: F401 - index: a fixture

GNU = "some_tool-1.0-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
MUSL = "some_tool-1.0-cp313-cp313-musllinux_1_1_x86_64.whl"
OLD = "some_tool-1.0-cp311-cp311-musllinux_1_1_x86_64.whl"
WHEELS = {name: wheel() + name.encode() for name in (GNU, MUSL, OLD)}
PIN = PipTreePin(client="pip", source="requirements.lock", python="3.13")
QUIET = PlainProgress(quiet=True)


def sha256(name: str) -> str:
    return hashlib.sha256(WHEELS[name]).hexdigest()


class Grove:
    """An index that serves three wheels, and a requirements file that allows them."""

    def __init__(self, folder: Path, served: Index) -> None:
        self.folder, self.served = folder, served
        self.source = folder / "requirements.lock"
        hashes = " ".join(f"--hash=sha256:{sha256(name)}" for name in WHEELS)
        self.source.write_text(f"some-tool==1.0 {hashes}\n")
        page = served.folder / "simple/some-tool"
        (page / "index.html").write_text(
            "<!DOCTYPE html>" + "".join(f'<a href="{name}">{name}</a>' for name in WHEELS)
        )
        for name, data in WHEELS.items():
            (page / name).write_bytes(data)
        self.page = page

    def forester(self, store: str = "store") -> Forester:
        return Forester(Fetcher(Store(self.folder / store), {}), pip_at(self.served.address), QUIET)

    def resolved(self) -> LockedTree:
        return self.forester().resolve(
            "tool", PIN, ["linux-x64-gnu", "linux-x64-musl"], self.source
        )


@pytest.fixture
def grove(tmp_path: Path, index: Index) -> Grove:  # noqa: F811 - the fixture
    return Grove(tmp_path, index)


def test_each_platform_gets_its_own_wheel(grove: Grove) -> None:
    tree = grove.resolved()
    assert {one.file: one.platforms for one in tree.packages} == {
        GNU: ("linux-x64-gnu",),
        MUSL: ("linux-x64-musl",),
    }
    assert {one.integrity for one in tree.packages} == {
        f"sha256:{sha256(GNU)}", f"sha256:{sha256(MUSL)}",
    }  # fmt: skip


def test_what_is_locked_is_fetched_once(grove: Grove) -> None:
    (package,) = packages_for("tool", grove.resolved(), ["linux-x64-musl"])
    again = grove.forester("fresh")
    paths = again.fetch("tool", PIN, [package], "linux-x64-musl")
    assert paths[package.integrity].read_bytes() == WHEELS[MUSL]
    asked = len(grove.served.asked)
    assert again.fetch("tool", PIN, [package], "linux-x64-musl") == paths
    assert len(grove.served.asked) == asked


def test_other_bytes_are_refused(grove: Grove) -> None:
    packages = packages_for("tool", grove.resolved(), ["linux-x64-musl"])
    (grove.page / MUSL).write_bytes(WHEELS[MUSL] + b"x")
    with pytest.raises(IntegrityError, match="another hash"):
        grove.forester("fresh").fetch("tool", PIN, packages, "linux-x64-musl")


def test_a_wheel_that_is_gone(grove: Grove) -> None:
    packages = packages_for("tool", grove.resolved(), ["linux-x64-musl"])
    (grove.page / "index.html").write_text(f'<!DOCTYPE html><a href="{GNU}">{GNU}</a>')
    with pytest.raises(FetchError, match="pip cannot fetch"):
        grove.forester("fresh").fetch("tool", PIN, packages, "linux-x64-musl")


def test_tags_are_spelled_out_the_newest_first() -> None:
    assert platform_tags("linux-x64-gnu")[:1] == ("manylinux_2_28_x86_64",)
    assert platform_tags("linux-arm64-musl") == (
        "musllinux_1_2_aarch64", "musllinux_1_1_aarch64", "musllinux_1_0_aarch64",
    )  # fmt: skip
