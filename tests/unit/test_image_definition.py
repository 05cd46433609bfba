"""Image definitions: what is accepted, what is refused and how it is said, what the hash covers."""

import re
import tomllib
from pathlib import Path

import pytest

from sandbox.engine.imagebuild.definition import (
    IMAGES,
    BootstrapRecipe,
    DiskRecipe,
    arch_of,
    default_images,
    image_definitions,
    load_definition,
)
from sandbox.errors import ExitCode, PrerequisiteMissing, Unsupported, UsageError

BASIC = """
name = "tiny"
description = "for tests"
libc = "glibc"
libc_version = "2.36"
architectures = ["x64"]
source = "recipe"
[config]
created = 2026-01-01T00:00:00Z
[recipe]
kind = "mmdebstrap"
suite = "bookworm"
variant = "minbase"
keyring = "/usr/share/keyrings/some.gpg"
keyring_package = "some-keyring"
"""
DIGEST = "sha256:" + "a" * 64


def write(tmp_path: Path, text: str, *, name: str = "tiny") -> Path:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    (folder / "image.toml").write_text(text)
    return folder


def test_the_shipped_definitions() -> None:
    definitions = image_definitions()
    assert default_images() == ("alpine-3.23", "debian-12")
    unlocked = {name for name, item in definitions.items() if not item.is_obtainable}
    assert unlocked == {"golang-1.24", "node-22-alpine", "python-3.12-slim", "ubuntu-24.04"}
    assert definitions["busybox-only"].platform("x64") == "linux-x64-none"
    assert isinstance(definitions["debian-12"].recipe, BootstrapRecipe)
    assert isinstance(definitions["alpine-3.23"].recipe, DiskRecipe)
    assert definitions["debian-12"].platform("x64") == "linux-x64-gnu"
    assert definitions["alpine-3.23"].platform("arm64") == "linux-arm64-musl"
    assert set(definitions["alpine-3.23"].expect) == {"x64", "arm64"}


def test_the_shipped_definitions_name_no_host() -> None:
    for path in IMAGES.rglob("image.toml"):
        assert not re.search(r"https?://|\b[a-z-]+\.(org|com|io|net)\b", path.read_text()), path


def test_the_default_images_keep_their_names_on_the_engine() -> None:
    """A new key of image.toml must not rename (and so rebuild) what every machine has."""
    hashes = {name: image_definitions()[name].recipe_sha256("x64", "recipe")[:12]
              for name in default_images()}  # fmt: skip
    assert hashes == {"alpine-3.23": "bbc6824d7498", "debian-12": "ae53071e5448"}


def test_a_base_without_a_digest_is_not_locked(tmp_path: Path) -> None:
    text = BASIC.replace("recipe", "registry").partition("[registry]\n")[0]
    folder = write(tmp_path, text + '[registry]\nbase = "some:1"\n')
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    definition = load_definition(folder)
    assert not definition.is_obtainable
    assert definition.registry is not None
    with pytest.raises(PrerequisiteMissing, match=r"(?s)some:1 is not pinned.*images lock"):
        definition.registry.reference  # noqa: B018


def test_what_is_derived_follows_its_base(tmp_path: Path) -> None:
    write(tmp_path, BASIC)
    text = BASIC.replace('"tiny"', '"more"').partition("[recipe]")[0]
    more = tmp_path / "more"
    more.mkdir()
    (more / "image.toml").write_text(text + '[recipe]\nkind = "derived"\nbase = "tiny"\n')
    before = load_definition(more).recipe_sha256("x64", "recipe")
    write(tmp_path, BASIC.replace("bookworm", "trixie"))
    assert load_definition(more).recipe_sha256("x64", "recipe") != before
    (more / "image.toml").write_text(text + '[recipe]\nkind = "derived"\nbase = "more"\n')
    with pytest.raises(UsageError, match=r"recipe\.base: more has no recipe of its own"):
        load_definition(more).base()


def test_every_default_is_filled_in(tmp_path: Path) -> None:
    definition = load_definition(write(tmp_path, BASIC))
    assert definition.config.workdir == "/workspace"
    assert definition.config.cmd == ("/bin/sh",)
    assert definition.config.epoch == 1767225600


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('libc = "glibc"', 'libc = "glibc"\nlib = 1'), "lib: Extra inputs"),
        (('suite = "bookworm"', 'suite = "bookworm"\nmirror = "x"'), "recipe.mirror: Extra"),
        (('libc = "glibc"', 'libc = "uclibc"'), "libc: Input should be"),
        (('suite = "bookworm"', 'suite = "book worm"'), "recipe.suite: String should match"),
        (('"minbase"', '"everything"'), "recipe.variant: Input should be"),
        (('kind = "mmdebstrap"', 'kind = "magic"'), "recipe: Input tag 'magic'"),
        (('architectures = ["x64"]', "architectures = []"), "architectures: Tuple should have"),
        (('source = "recipe"', 'source = "registry"'), "needs a [registry] table"),
        (("2026-01-01T00:00:00Z", "2026-01-01T00:00:00"), "config.created: "),
        (("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z"), "config.created: "),
        (("[recipe]", 'workdir = "/"\n[recipe]'), "config.workdir: Value error, must be"),
        (("[recipe]", 'workdir = "/a/../b"\n[recipe]'), "config.workdir: "),
        (("[recipe]", 'user = "root"\n[recipe]'), "config.user: String should match"),
        (('source = "recipe"', "source = recipe"), "Invalid value"),
        (('description = "for tests"', "description = 7"), "description: Input should be a valid"),
        (('name = "tiny"', 'name = "Tiny!"'), "name: String should match"),
        (('name = "tiny"', 'name = "other"'), "name is 'other', its folder 'tiny'"),
        (('name = "tiny"', 'name = "tiny"\nfolder = "/etc"'), "folder: unknown key"),
        (("[config]", f'expect = {{ arm64 = "{DIGEST}" }}\n[config]'), "[expect] names an arch"),
        (("[config]", f'registry = {{ digest = "{DIGEST}" }}\n[config]'), "needs a Dockerfile"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_definition_is_refused_with_file_and_key(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    assert change[0] in BASIC
    folder = write(tmp_path, BASIC.replace(*change, 1))
    with pytest.raises(UsageError) as caught:
        load_definition(folder)
    assert str(folder / "image.toml") in caught.value.message
    assert said in caught.value.message
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_disk_recipe_needs_a_wheel_for_each_architecture(tmp_path: Path) -> None:
    text = (IMAGES / "alpine-3.23" / "image.toml").read_text()
    text = text.replace("[recipe.wheels.arm64]", "[recipe.wheels.x86]", 1)
    with pytest.raises(UsageError, match=r"recipe\.wheels\.x86"):
        load_definition(write(tmp_path, text, name="alpine-3.23"))
    text = text[: text.index("[recipe.wheels.x86]")]
    with pytest.raises(UsageError, match="every one of architectures needs its wheel"):
        load_definition(write(tmp_path, text, name="alpine-3.23"))


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"name ="], ids=["none", "bytes", "toml"])
def test_an_unreadable_file_is_a_usage_error(tmp_path: Path, content: bytes | None) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    if content is not None:
        (folder / "image.toml").write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(str(folder))):
        load_definition(folder)


def test_a_missing_images_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="checkout"):
        image_definitions(tmp_path / "nowhere")


def test_the_recipe_hash_covers_what_decides_the_bytes(tmp_path: Path) -> None:
    def hash_of(text: str) -> str:
        return load_definition(write(tmp_path, text)).recipe_sha256("x64", "recipe")

    first = hash_of(BASIC)
    assert hash_of(f"# a comment\n{BASIC}") == first
    assert hash_of(BASIC.replace("for tests", "other words")) == first
    assert hash_of(f'{BASIC}\n[expect]\nx64 = "{DIGEST}"') == first
    for old, new in (
        ("bookworm", "trixie"),
        ("minbase", "essential"),
        ("2026-01-01", "2026-01-02"),
        ("[recipe]", 'workdir = "/work"\n[recipe]'),
    ):
        assert hash_of(BASIC.replace(old, new)) != first, new


def test_the_registry_hash_covers_the_dockerfile_and_its_context(tmp_path: Path) -> None:
    folder = write(
        tmp_path, BASIC.replace("[config]", f'registry = {{ digest = "{DIGEST}" }}\n[config]')
    )
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")

    def hash_of() -> str:
        return load_definition(folder).recipe_sha256("x64", "registry")

    first = hash_of()
    assert hash_of() == first
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nRUN true\n")
    second = hash_of()
    (folder / "extra").write_text("x")
    third = hash_of()
    (folder / "extra").chmod(0o755)
    assert len({first, second, third, hash_of()}) == 4


def test_only_the_own_wheel_of_an_architecture_counts() -> None:
    alpine = image_definitions()["alpine-3.23"]
    assert isinstance(alpine.recipe, DiskRecipe)
    wheels = dict(alpine.recipe.wheels)
    wheels["arm64"] = wheels["arm64"].model_copy(update={"sha256": "0" * 64})
    recipe = alpine.recipe.model_copy(update={"wheels": wheels})
    other = alpine.model_copy(update={"recipe": recipe})
    assert other.recipe_sha256("x64", "recipe") == alpine.recipe_sha256("x64", "recipe")
    assert other.recipe_sha256("arm64", "recipe") != alpine.recipe_sha256("arm64", "recipe")


def test_machine_names() -> None:
    assert (arch_of("x86_64"), arch_of("amd64")) == ("x64", "x64")
    assert (arch_of("aarch64"), arch_of("arm64")) == ("arm64", "arm64")
    with pytest.raises(Unsupported, match="riscv64"):
        arch_of("riscv64")


def test_the_file_says_what_the_model_holds() -> None:
    """Every key of the shipped files ends up in the model: nothing is read and dropped."""
    for name, definition in image_definitions().items():
        said = tomllib.loads((IMAGES / name / "image.toml").read_text())
        held = definition.model_dump()
        for key, value in said.items():
            if not isinstance(value, dict):
                assert held[key] == (tuple(value) if isinstance(value, list) else value)
