"""Whether programs of another architecture run here, and which images are meant only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.conformance.imagenames import read_image_words
from sandbox.engine.emulation import interpreter_of, require_emulation
from sandbox.engine.imagebuild.definition import image_definitions
from sandbox.errors import PrerequisiteMissing
from tests.unit.test_doctor import engine

MAGIC = "7f454c460201010000000000000000000200b700"
ENTRY = "enabled\ninterpreter /usr/libexec/qemu-aarch64\nflags: POF\noffset 0\nmagic {}\nmask ff\n"


def registered(folder: Path, text: str | None) -> Path:
    if text is None:
        return folder
    (folder / "register").touch()
    (folder / "status").write_text("enabled\n")
    (folder / "python3.11").write_text("enabled\ninterpreter /usr/bin/python3\nmagic a70d0d0a\n")
    (folder / "qemu-aarch64").write_text(text)
    return folder


def test_an_interpreter_that_works_in_containers(tmp_path: Path) -> None:
    folder = registered(tmp_path, ENTRY.format(MAGIC))
    assert interpreter_of("arm64", folder=folder) == "/usr/libexec/qemu-aarch64"
    require_emulation(engine().info, "arm64", folder=folder)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "binfmt_misc is not mounted"),
        (ENTRY.format(MAGIC.replace("b700", "f300")), "no interpreter is registered"),
        (ENTRY.format(MAGIC).replace("enabled", "disabled"), "registered and disabled"),
        (ENTRY.format(MAGIC).replace("POF", "PO"), "without the flag F"),
    ],
)
def test_why_there_is_none(tmp_path: Path, text: str | None, reason: str) -> None:
    with pytest.raises(PrerequisiteMissing, match=reason) as caught:
        interpreter_of("arm64", folder=registered(tmp_path, text))
    assert "emulation of arm64 is not available here" in caught.value.message
    assert "qemu-user-static" in (caught.value.cure or "")


def test_what_an_engine_elsewhere_emulates_nobody_can_tell(tmp_path: Path) -> None:
    folder = registered(tmp_path, ENTRY.format(MAGIC))
    with pytest.raises(PrerequisiteMissing, match="elsewhere"):
        require_emulation(engine(is_local=False).info, "arm64", folder=folder)


@pytest.mark.parametrize(
    ("words", "meant"), [(["all"], False), (["alpine-*"], False), (["alpine-3.23-arm64"], True)]
)
def test_an_emulated_image_is_meant_by_its_name_only(words: list[str], meant: bool) -> None:
    found = read_image_words(words, image_definitions())
    assert ("alpine-3.23-arm64" in found.known) is meant


def test_an_emulated_image_is_of_its_own_architecture_everywhere() -> None:
    found = image_definitions()["alpine-3.23-arm64"]
    assert found.platform(found.arch_on("x64")) == "linux-arm64-musl"
    assert image_definitions()["alpine-3.23"].arch_on("x64") == "x64"
