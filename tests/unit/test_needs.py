"""What a bundle needs of an image, and images that do not have it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sandbox.runtimes.entries import ExecEntry, LinkEntry, LoaderEntry
from sandbox.runtimes.lock import load_lock
from sandbox.runtimes.needing import needs_of
from sandbox.runtimes.needs import Needs, ordered, refusals
from sandbox.runtimes.staging import Staged
from sandbox.runtimes.words import Cpu
from tests.unit.elfs import elf

GNU, MUSL = "/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"


@dataclass(frozen=True)
class Image:
    libc: str = "glibc"
    libc_version: str | None = "2.36"
    loaders: tuple[str, ...] = (GNU,)
    cpu: str | None = "x86-64-v3"


NEEDS = Needs(
    interpreter=GNU, glibc="2.28", glibcxx="3.4.21", libraries=("libstdc++.so.6", "libz.so.1"),
    cpu="x86-64-v3",
)  # fmt: skip
LIBRARIES = {"libstdc++.so.6": "libstdc++.so.6.0.30", "libz.so.1": "libz.so.1.2.13"}


def test_an_image_that_has_it_all_is_not_refused() -> None:
    assert refusals(NEEDS, Image(), libraries=LIBRARIES) == ()
    assert refusals(Needs(), Image(libc="none", libc_version=None, loaders=())) == ()


@pytest.mark.parametrize(
    ("image", "libraries", "reason"),
    [
        pytest.param(
            Image(libc_version="2.17"), None, "needs GLIBC_2.28, image has 2.17", id="old-glibc"
        ),
        pytest.param(
            Image(libc_version="2.9"), None, "needs GLIBC_2.28, image has 2.9", id="not-as-text"
        ),
        pytest.param(
            Image("musl", "1.2.5", (MUSL,)), None,
            f"needs the loader {GNU}, image has {MUSL}", id="other-libc",
        ),
        pytest.param(
            Image("none", None, ()), None,
            f"needs the loader {GNU}, image has no dynamic loader", id="no-libc",
        ),
        pytest.param(
            Image(cpu="x86-64-v2"), None,
            "needs a CPU of level x86-64-v3, this machine's is x86-64-v2", id="old-cpu",
        ),
        pytest.param(
            Image(cpu="x86-64"), None,
            "needs a CPU of level x86-64-v3, this machine's is x86-64", id="first-cpu",
        ),
        pytest.param(
            Image(), {"libstdc++.so.6": "libstdc++.so.6.0.30"},
            "needs libz.so.1, image has none", id="no-library",
        ),
        pytest.param(
            Image(), LIBRARIES | {"libstdc++.so.6": "libstdc++.so.6.0.19"},
            "needs GLIBCXX_3.4.21, image's libstdc++ has 3.4.19", id="old-libstdc++",
        ),
    ],
)  # fmt: skip
def test_an_image_is_refused_with_reason_and_cure(
    image: Image, libraries: dict[str, str] | None, reason: str
) -> None:
    (found,) = refusals(NEEDS, image, libraries=libraries)
    assert found.reason == reason
    assert found.cure


def test_what_is_not_known_of_an_image_is_not_judged() -> None:
    assert refusals(NEEDS, Image(libc_version=None)) == ()
    assert refusals(NEEDS, Image(cpu=None)) == ()
    odd = LIBRARIES | {"libstdc++.so.6": "libstdc++.so.6"}
    assert refusals(NEEDS, Image(), libraries=odd) == ()


def test_versions_are_ordered_as_numbers() -> None:
    assert ordered("2.9") < ordered("2.17") < ordered("2.17.1")


@pytest.fixture
def staged(tmp_path: Path) -> dict[str, Staged]:
    files = {
        "bin/program": elf(
            needed=["libmine.so.1", "libstdc++.so.6", "libc.so.6"], runpath="$ORIGIN/../lib",
            versions=["GLIBC_2.25", "GLIBCXX_3.4.21"], isa=1,
        ),
        "lib/libmine.so.1.0": elf(
            interpreter=None, needed=["libz.so.1", "libother.so.2"], versions=["GLIBC_2.27"]
        ),
        "lib/libother.so.2": elf(interpreter=None, soname="libother.so.2", isa=3),
        "modules/extra.so": elf(
            interpreter=None, needed=["libtk8.6.so", "libmine.so.1"], versions=["GLIBC_2.28"],
            isa=15,
        ),
        "modules/arm.so": elf(machine="arm64", interpreter=None, versions=["GLIBC_2.99"]),
        "modules/musl.so": elf(interpreter=None, needed=["libc.musl-x86_64.so.1", "libm.so"]),
        "python/bin/python": elf(needed=["$ORIGIN/../../lib/libother.so.2", "libc.so.6"]),
        "broken": b"\x7fELF" + bytes(100),
        "script": b"#!/bin/sh\n",
    }  # fmt: skip
    found = {"lib/libmine.so.1": Staged(target="libmine.so.1.0")}
    for number, (name, data) in enumerate(files.items()):
        path = tmp_path / str(number)
        path.write_bytes(data)
        found[name] = Staged(size=len(data), path=path, elf=data.startswith(b"\x7fELF"))
    return found


def test_programs_count_with_what_they_load_and_modules_apart(staged: dict[str, Staged]) -> None:
    entry = LinkEntry(kind="link", program="bin/program")
    assert needs_of(staged, entry, platform="linux-x64-gnu") == Needs(
        interpreter=GNU,
        glibc="2.28",
        glibcxx="3.4.21",
        libraries=("libstdc++.so.6", "libz.so.1"),
        optional=("libtk8.6.so",),
        cpu="x86-64-v2",
    )


@pytest.mark.parametrize("stated", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_a_pin_states_a_cpu_where_the_files_do_not_say_it(
    staged: dict[str, Staged], stated: Cpu
) -> None:
    entry = ExecEntry(kind="exec", program="python/bin/python")
    needs = needs_of(staged, entry, platform="linux-x64-gnu", cpu=stated)
    assert needs.cpu == stated
    bare = ExecEntry(kind="exec", program="modules/musl.so")
    assert needs_of(staged, bare, platform="linux-x64-musl").cpu is None


def test_a_loaders_libraries_are_found(staged: dict[str, Staged], tmp_path: Path) -> None:
    plain = elf(needed=["libmine.so.1"])
    (tmp_path / "plain").write_bytes(plain)
    staged["bin/program"] = replace(staged["bin/program"], path=tmp_path / "plain")
    loader = LoaderEntry(kind="loader", program="bin/program", loader=GNU, libraries="lib")
    assert needs_of(staged, loader, platform="linux-x64-gnu").libraries == ("libz.so.1",)
    bare = ExecEntry(kind="exec", program="bin/program")
    assert "libmine.so.1" in needs_of(staged, bare, platform="linux-x64-gnu").libraries


def test_a_library_may_be_needed_by_its_place(staged: dict[str, Staged]) -> None:
    entry = ExecEntry(kind="exec", program="python/bin/python")
    assert needs_of(staged, entry, platform="linux-x64-gnu").libraries == ()


def test_our_own_lock_says_what_each_bundle_needs() -> None:
    bundles = load_lock().bundles
    for harness, platforms in bundles.items():
        for platform, bundle in platforms.items():
            loader = bundle.needs.interpreter
            assert loader is None or ("musl" in loader) == platform.endswith("musl"), harness
            assert bundle.needs.glibc is None or platform.endswith("gnu"), harness
    assert bundles["codex"]["linux-x64-gnu"].needs == Needs()
    assert "ld-linux" in "".join(bundles["codex"]["linux-arm64-musl"].needs.optional)
    assert bundles["hermes"]["linux-x64-gnu"].needs.libraries == ()
    assert "libstdc++.so.6" in bundles["pi"]["linux-x64-gnu"].needs.libraries
    assert bundles["kilocode"]["linux-x64-musl"].needs.libraries == ()
