"""Words for images: names, globs, references and files; and pins written into definitions."""

from pathlib import Path

import pytest

from sandbox.conformance.imagenames import image_name, read_image_words, reference_of
from sandbox.engine.imagebuild.definition import image_definitions, load_definition
from sandbox.engine.imagebuild.pull import split_reference
from sandbox.engine.imagelock import write_digest
from sandbox.errors import PrerequisiteMissing, UsageError
from sandbox.evidence.folder import cell_folder, cell_id_of

DEFINED = image_definitions()
DIGEST = f"sha256:{'0123456789abcdef' * 4}"


def test_without_a_word_the_default_images_are_meant() -> None:
    assert read_image_words([], DEFINED).globs == ("alpine-3.23", "debian-12")


def test_all_leaves_out_what_cannot_be_made_here() -> None:
    found = read_image_words(["all"], DEFINED)
    assert found.globs == ("*",)
    assert "no-shell" in found.known
    assert "ubuntu-24.04" not in found.known


@pytest.mark.parametrize(
    "reference",
    ["ubuntu:24.04", "some/one", "localhost:5000/a/b:1", f"a@{DIGEST}", f"a/b:1@{DIGEST}", DIGEST],
)
def test_a_reference_is_told_from_a_name_and_back(reference: str, tmp_path: Path) -> None:
    found = read_image_words([reference, "debian-*"], DEFINED)
    name = image_name(reference)
    assert found.known[-1] == name
    assert found.globs == (name, "debian-*")
    assert "/" not in name
    assert reference_of(name) == reference
    folder = cell_folder(tmp_path, f"codex/{name}/tool_success")
    assert len(folder.relative_to(tmp_path).parts) == 4
    assert ":" not in str(folder)
    assert cell_id_of(tmp_path, folder) == f"codex/{name}/tool_success"


def test_a_defined_name_has_no_reference() -> None:
    assert {reference_of(name) for name in DEFINED} == {None}


def test_a_file_names_one_image_a_line(tmp_path: Path) -> None:
    listed = tmp_path / "fleet.txt"
    listed.write_text("# ours\n\nalpine-*  # musl\nlocal/one:2\n")
    assert read_image_words([str(listed)], DEFINED).globs == ("alpine-*", "local+one:2")
    listed.write_text("# nothing\n")
    with pytest.raises(UsageError, match="names no image"):
        read_image_words([str(listed)], DEFINED)


def test_an_image_whose_base_is_not_locked_is_refused_with_the_cure() -> None:
    with pytest.raises(PrerequisiteMissing, match="images lock"):
        read_image_words(["ubuntu-24.04"], DEFINED)


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("ubuntu", ("ubuntu", None, None)),
        ("127.0.0.1:5000/a:1", ("127.0.0.1:5000/a", "1", None)),
        (f"a/b:1@{DIGEST}", ("a/b", "1", DIGEST)),
    ],
)
def test_references_are_split(reference: str, parts: tuple[str, str | None, str | None]) -> None:
    assert split_reference(reference) == parts


@pytest.mark.parametrize("reference", ["", "a b", "a:", "a@sha256:12", "-x/y", "a//b", "a:1:2"])
def test_what_is_no_reference_is_a_usage_error(reference: str) -> None:
    with pytest.raises(UsageError, match="no image reference"):
        split_reference(reference)


@pytest.mark.parametrize("before", ["", f'digest = "sha256:{"0" * 64}"\n'])
def test_a_digest_is_written_and_nothing_else_changes(tmp_path: Path, before: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    shipped = (DEFINED["ubuntu-24.04"].folder / "image.toml").read_text()
    text = shipped.replace('name = "ubuntu-24.04"', 'name = "mine"') + before
    (folder / "image.toml").write_text(text)
    write_digest(folder / "image.toml", DIGEST)
    written = load_definition(folder).registry
    assert written is not None
    assert written.reference == f"ubuntu:24.04@{DIGEST}"
    now = (folder / "image.toml").read_text()
    assert now.replace(f'digest = "{DIGEST}"\n', "") == text.replace(before, "")
