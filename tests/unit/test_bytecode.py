"""Bytecode in bundles: the same bytes whatever was compiled before, and Python takes it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from sandbox.errors import IntegrityError
from sandbox.progress import PlainProgress
from sandbox.runtimes.bundle import Grove, assemble
from sandbox.runtimes.bytecode import bytecode_place, compile_sources
from sandbox.runtimes.entries import LinkEntry
from sandbox.runtimes.lock import LockedPackage
from sandbox.runtimes.pins import HarnessPin, Runtime, TreeContent
from sandbox.runtimes.trees import PipTreePin

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
# From 3.13 on, a compiler marks the qualified name otherwise when another source made it before.
SOURCES = {
    "lib/first.py": "class Outer:\n    class Inner: pass\nnames = 'Outer.Inner', {'a', 'b'}\n",
    "lib/other.py": "class Outer:\n    class Inner: pass\nanswer = 'Outer.Inner', 42\n",
    "lib/template.py": "class {{ name }}:\n",
}


@pytest.fixture
def places(tmp_path: Path) -> list[tuple[str, Path]]:
    """The sources as files, under names that say nothing."""
    found = []
    for count, (name, text) in enumerate(SOURCES.items()):
        path = tmp_path / f"source-{count}"
        path.write_text(text)
        found.append((name, path))
    return found


def compiled(places: list[tuple[str, Path]], folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    made = compile_sources([sys.executable], VERSION, places, folder)
    return {name: path.read_bytes() for name, path in made.items()}


def test_every_source_that_is_python_is_compiled_alike(
    places: list[tuple[str, Path]], tmp_path: Path
) -> None:
    together = compiled(places, tmp_path / "together")
    assert together.keys() == {"lib/first.py", "lib/other.py"}  # the template is none
    alone = [compiled([one], tmp_path / f"alone-{count}") for count, one in enumerate(places)]
    assert {name: data for made in alone for name, data in made.items()} == together
    for name, data in together.items():
        assert data[4:8] == b"\1\0\0\0", name  # a hash that is not checked, PEP 552
        assert name.encode() in data  # not the path of this machine
        assert str(tmp_path).encode() not in data


def test_python_takes_the_bytecode_from_its_place(
    places: list[tuple[str, Path]], tmp_path: Path
) -> None:
    for name, data in compiled(places, tmp_path / "made").items():
        path = tmp_path / bytecode_place(name, VERSION)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "lib/other.py").write_text("answer = 'the source was read'\n")
    said = subprocess.run(
        [sys.executable, "-S", "-c", "import other; print(other.answer)"],
        env={"PYTHONPATH": str(tmp_path / "lib")}, text=True, check=True, capture_output=True,
    )  # fmt: skip
    assert said.stdout == "('Outer.Inner', 42)\n"


def test_another_python_or_a_lost_source_is_an_error(
    places: list[tuple[str, Path]], tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match=r"no bytecode for cpython-312"):
        compile_sources([sys.executable], "3.12", places[:1], tmp_path)
    with pytest.raises(IntegrityError, match=r"lib/lost\.py"):
        compile_sources([sys.executable], VERSION, [("lib/lost.py", tmp_path / "no")], tmp_path)


def test_a_bundle_holds_the_bytecode_of_its_tree(
    places: list[tuple[str, Path]], tmp_path: Path
) -> None:
    wheel, stage, out = tmp_path / "tool.whl", tmp_path / "stage", tmp_path / "bundle.tar"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, path in places:
            archive.write(path, name.removeprefix("lib/"))
        archive.writestr("tool-1.0.data/scripts/tool", "#!/bin/sh\n")
    package = LockedPackage(
        client="pip", name="tool", version="1.0", file="tool.whl", size=wheel.stat().st_size,
        integrity="sha256:" + "0" * 64, licence="MIT", platforms=("linux-x64-gnu",),
    )  # fmt: skip
    pin = HarnessPin(
        licence="MIT", version="1.0", version_output="1.0", platforms=("linux-x64-gnu",),
        runtime=(
            Runtime.model_construct(
                platforms=("linux-x64-gnu",), content=(),
                entry=LinkEntry(kind="link", program="python/bin/tool"),
                tree=(
                    TreeContent(
                        tree="tool", put="python/", executable=("bin/tool",), bytecode=True
                    ),
                ),
            ),
        ),
    )  # fmt: skip
    stage.mkdir()
    grove = Grove(PipTreePin(client="pip", source="r.lock", python=VERSION), [(package, wheel)])
    with PlainProgress(quiet=True).step("assembling") as step:
        assemble(
            "tool", pin, pin.runtime[0], {}, out,
            stage=stage, step=step, groves={"tool": grove}, python=lambda: [sys.executable],
        )  # fmt: skip
    site = f"python/lib/python{VERSION}/site-packages/"
    with tarfile.open(out) as bundle:
        found = {name for name in bundle.getnames() if name.endswith(".pyc")}
    assert found == {bytecode_place(f"{site}{name}.py", VERSION) for name in ("first", "other")}
