"""What a pins file may say, and what its mistakes are answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import PrerequisiteMissing, Unsupported, UsageError
from sandbox.runtimes.pins import Pins, default_pins_path, load_pins

GOOD = """
schema = 1

[artifact.tool-x64]
client = "npm"
name = "@scope/tool"
version = "1.2.3-linux-x64"
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
artifact = "tool-x64"
take = "package/"
put = "vendor/"
"""


def load(tmp_path: Path, text: str) -> Pins:
    path = tmp_path / "pins.toml"
    path.write_text(text)
    return load_pins(path)


def test_our_own_pins_are_valid_and_promise_both_libcs_for_each_harness() -> None:
    pins = load_pins()
    assert {"codex", "opencode"} <= pins.harness.keys()
    for pin in pins.harness.values():
        assert {"linux-x64-gnu", "linux-x64-musl"} <= set(pin.platforms)


def test_a_pins_file_of_another_package_is_loaded_from_its_path(tmp_path: Path) -> None:
    pins = load(tmp_path, GOOD)
    assert pins.harness["tool"].version_argv == ("--version",)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        pytest.param('licence = "MIT"\n\n[h', 'license = "MIT"\n\n[h', "license", id="unknown-key"),
        pytest.param('client = "npm"', 'client = "curl"', "artifact.tool-x64", id="client"),
        pytest.param("schema = 1", "schema = 2", "schema", id="schema"),
        pytest.param("schema = 1", "scheme = 1", "scheme", id="top-key"),
        pytest.param('version = "1.2.3"', "version = 1", "harness.tool.version", id="type"),
        pytest.param('version = "1.2.3"', 'version = "$(x)"', "harness.tool.version", id="word"),
        pytest.param('"tool 1.2.3"', "'a \"b\"'", "version_output", id="quote-in-output"),
        pytest.param('"tool 1.2.3"', '"a\\nb"', "version_output", id="newline-in-output"),
        pytest.param("version_output", "version_env.PATH='a'\nversion_output", "env", id="path"),
        pytest.param("version_output", "version_env.a='a'\nversion_output", "env", id="variable"),
        pytest.param('put = "vendor/"', 'put = "../vendor/"', "content.0.put", id="climbing-put"),
        pytest.param('put = "vendor/"', 'put = "/vendor/"', "content.0.put", id="absolute-put"),
        pytest.param('put = "vendor/"', 'put = "vendor"', "content.0", id="file-and-folder"),
        pytest.param('"vendor/tool"', '"vendor//tool"', "entry", id="empty-part"),
        pytest.param('kind = "link"', 'kind = "magic"', "entry", id="entry-kind"),
        pytest.param('artifact = "tool-x64"', 'artifact = "no"', "artifact.no", id="dangling"),
        pytest.param(
            '[harness.tool]', '[artifact.extra]\nclient = "npm"\nname = "e"\nversion = "1"\n'
            'licence = "MIT"\n\n[harness.tool]', "artifact.extra", id="unused",
        ),
        pytest.param("[harness.tool]", "[harness.Tool]", "harness.Tool", id="name"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_with_file_and_key(
    tmp_path: Path, old: str, new: str, named: str
) -> None:
    assert old in GOOD
    with pytest.raises(UsageError) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert str(tmp_path / "pins.toml") in str(caught.value)
    assert named in str(caught.value)


def test_a_platform_named_twice_is_refused(tmp_path: Path) -> None:
    runtime = GOOD[GOOD.index("[[harness.tool.runtime]]") :]
    with pytest.raises(UsageError, match="named twice: linux-x64-gnu, linux-x64-musl"):
        load(tmp_path, GOOD + runtime)


def test_a_promised_platform_without_a_runtime_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace('musl"]\nentry', 'gnu"]\nentry').replace('"linux-x64-gnu", "linux-x64-gnu"', '"linux-x64-gnu"')  # fmt: skip # noqa: E501
    with pytest.raises(UsageError, match="no runtime for the promised platform: linux-x64-musl"):
        load(tmp_path, text)


def test_a_runtime_for_a_platform_not_promised_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace('platforms = ["linux-x64-gnu", "linux-x64-musl"]', 'platforms = ["linux-x64-gnu"]', 1)  # fmt: skip # noqa: E501
    with pytest.raises(UsageError, match="not promised: linux-x64-musl"):
        load(tmp_path, text)


def test_text_that_is_not_toml_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="line 2"):
        load(tmp_path, "schema = 1\n[harness\n")


def test_a_missing_file_is_a_missing_prerequisite(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteMissing, match="absent"):
        load_pins(tmp_path / "absent.toml")


def test_a_cpu_is_stated_for_x64_alone(tmp_path: Path) -> None:
    stated = GOOD.replace("entry = {", 'cpu = "x86-64-v3"\nentry = {', 1)
    pins = load(tmp_path, stated)
    assert pins.harness["tool"].runtime[0].cpu == "x86-64-v3"
    assert pins.digest() != load(tmp_path, GOOD).digest()
    with pytest.raises(UsageError, match="linux-x64-\\* only"):
        load(tmp_path, stated.replace("linux-x64-gnu", "linux-arm64-gnu"))


def test_an_unknown_harness_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'nonesuch'\n.*one of: tool"):
        load(tmp_path, GOOD).harness_pin("nonesuch")


def test_an_unpinned_platform_is_unsupported_with_the_pinned_ones(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="linux-arm64-musl; pinned: linux-x64-gnu"):
        load(tmp_path, GOOD).harness_pin("tool").runtime_for("linux-arm64-musl")


def test_the_digest_follows_what_is_said_not_how(tmp_path: Path) -> None:
    digest = load(tmp_path, GOOD).digest()
    assert load(tmp_path, "# a comment\n" + GOOD.replace("\n\n", "\n\n\n")).digest() == digest
    assert load(tmp_path, GOOD.replace("tool 1.2.3", "tool 1.2.4")).digest() != digest
    # the locks of other packages outlive a new key of ours
    spelled_out = GOOD.replace('"tool 1.2.3"\n', '"tool 1.2.3"\nversion_first_line = false\n')
    assert spelled_out != GOOD
    assert load(tmp_path, spelled_out).digest() == digest


def test_pins_name_no_address() -> None:
    assert "://" not in default_pins_path().read_text()
