"""Bumping: the text keeps its comments and layout, and what is not there is refused with a cure."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.errors import NothingSelected, Unsupported, UsageError
from sandbox.runtimes.bump import output_edits, plan_bump, target
from sandbox.runtimes.completing import unfinished
from sandbox.runtimes.outdated import OutdatedEntry, Releases, Subject
from sandbox.runtimes.pinedit import Edit, edited
from sandbox.runtimes.pins import default_pins_path, load_pins
from sandbox.runtimes.workingcopy import working_copy

PATH, PINS = default_pins_path(), load_pins()
TEXT = PATH.read_text()
SAID = tomllib.loads(TEXT)["harness"]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def changed_lines(before: str, after: str) -> list[str]:
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    return [new for old, new in pairs if old != new]


@pytest.mark.parametrize("harness", sorted(PINS.harness))
def test_every_harness_of_ours_can_be_bumped_and_nothing_else_changes(harness: str) -> None:
    bump = plan_bump(PINS, PATH, harness, "99.1.2", lambda s: {"99.1.2" + s.suffix: NOW})
    text = edited(TEXT, bump.edits)
    lines = changed_lines(TEXT, text)
    assert len(lines) == len(bump.edits)
    assert all("99.1.2" in line for line in lines)
    said = tomllib.loads(text)["harness"]
    assert said[harness]["version"] == "99.1.2"
    others = PINS.harness.keys() - {harness}
    assert {name: said[name] for name in others} == {name: SAID[name] for name in others}
    assert set(bump.trees) == {one.tree for r in PINS.harness[harness].runtime for one in r.tree}
    assert set(bump.platforms) | set(bump.left) == set(PINS.harness[harness].platforms)


def test_platforms_that_are_pinned_apart_move_apart() -> None:
    def ask(subject: Subject) -> Releases:
        return {"7.8.0": NOW}

    both = plan_bump(PINS, PATH, "kilocode", "7.8.0", ask)
    assert (both.old, both.left) == ("7.7.7", {"linux-x64-musl": "7.0.33"})
    musl = plan_bump(PINS, PATH, "kilocode", "7.8.0", ask, platforms=["*-musl"])
    assert (musl.old, musl.platforms) == ("7.0.33", ("linux-x64-musl",))
    kilo = tomllib.loads(edited(TEXT, musl.edits))["harness"]["kilocode"]
    assert [r.get("version") for r in kilo["runtime"]] == [None, "7.8.0"]
    assert [r.get("version_output") for r in kilo["runtime"]] == [None, "7.8.0"]
    with pytest.raises(UsageError, match=r"(?s)2 pinned versions.*7\.0\.33: linux-x64-musl"):
        plan_bump(PINS, PATH, "kilocode", "7.8.0", ask, platforms=["*"])


def test_a_version_that_some_platforms_lack_is_unsupported_and_the_cure_names_one_that_all_have(
) -> None:  # fmt: skip
    def ask(subject: Subject) -> Releases:
        old = {"1.19.0": NOW}
        return old if subject.name.endswith("-musl") else {**old, "1.20.0": NOW}

    with pytest.raises(Unsupported) as caught:
        plan_bump(PINS, PATH, "opencode", "1.20.0", ask)
    assert "opencode-linux-x64-baseline-musl 1.20.0 (linux-x64-musl)" in str(caught.value)
    assert "1.19.0 is the newest that all have" in str(caught.value)
    assert "`unavailable`" in str(caught.value)


def test_what_cannot_be_bumped() -> None:
    with pytest.raises(UsageError, match=r"(?s)no codex 9\.9\.9.*0\.172\.0"):
        plan_bump(PINS, PATH, "codex", "9.9.9", lambda s: {"0.172.0" + s.suffix: NOW})
    with pytest.raises(NothingSelected, match="already"):
        plan_bump(PINS, PATH, "codex", PINS.harness["codex"].version, lambda _: {})
    with pytest.raises(UsageError, match="nonesuch"):
        plan_bump(PINS, PATH, "nonesuch", "1.0", lambda _: {})
    entry = OutdatedEntry(harness="x", platforms=("a",), current="1", newest=None, waiting="2")
    with pytest.raises(NothingSelected, match="2 is too young"):
        target(entry)
    assert target(entry.model_copy(update={"newest": "1.5"})) == "1.5"


def test_what_a_program_prints_is_pinned_for_its_version_only() -> None:
    (edit,) = output_edits(PINS, "kilocode", "7.0.33", "kilo 7.0.33")
    assert (edit.at, edit.old, edit.new) == (1, "7.0.33", "kilo 7.0.33")
    said = PINS.harness["openclaw"].version_output
    assert output_edits(PINS, "openclaw", PINS.harness["openclaw"].version, said) == ()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('a.x = { version = "1" }\n', id="inline-table"),
        pytest.param("[a.x]\nversion = '1'\n", id="another-string"),
        pytest.param('[a.x]\nv = """\nversion = "1"\n"""\nversion = "1"\n', id="in-a-string"),
        pytest.param('[a.x]\nversion = "2"\n', id="another-value"),
        pytest.param('[a.y]\nversion = "1"\n', id="another-table"),
    ],
)
def test_a_layout_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="by hand"):
        edited(text, [Edit(table="a.x", key="version", old="1", new="3")])


def test_comments_quotes_and_line_ends_stay() -> None:
    text = '# "1"\r\n[ "a".x ]\n\n[a.y] # "1"\nversion   =  "1" # was "1"\nother = "1"\n'
    found = edited(text, [Edit(table="a.y", key="version", old="1", new="3")])
    assert found == text.replace('=  "1"', '=  "3"')


def test_an_update_bots_change_is_completed(tmp_path: Path) -> None:
    with working_copy(PINS, PATH) as copy:
        text = TEXT.replace('"0.171.0-linux-', '"0.172.0-linux-')
        copy.pins_path.write_text(text)
        new = load_pins(copy.pins_path)
        (bump,) = unfinished(PINS, PATH, new, copy.pins_path)
        assert (bump.harness, bump.old, bump.new) == ("codex", "0.171.0", "0.172.0")
        pin = tomllib.loads(edited(text, bump.edits))["harness"]["codex"]
        assert (pin["version"], pin["version_output"]) == ("0.172.0", "codex-cli 0.172.0")
        copy.pins_path.write_text(TEXT.replace('"0.171.0-linux-x64"', '"0.172.0-linux-x64"'))
        with pytest.raises(UsageError, match=r"0\.171\.0, 0\.172\.0"):
            unfinished(PINS, PATH, load_pins(copy.pins_path), copy.pins_path)
        copy.pins_path.write_text(TEXT)
        asked = copy.pins_path.parent / "openclaw/package.json"
        asked.write_text(asked.read_text().replace("2026.6.11", "2026.9.6"))
        (tree,) = unfinished(PINS, PATH, load_pins(copy.pins_path), copy.pins_path)
        assert (tree.harness, tree.new, tree.trees) == ("openclaw", "2026.9.6", ("openclaw",))
        assert copy.changed() == ("openclaw/package.json",)


def test_a_working_copy_is_kept_only_when_asked_and_never_over_another_change(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pins.toml"
    path.write_text(TEXT)
    for tree in PINS.tree.values():
        for file in (PATH.parent / tree.source).parent.iterdir():
            (tmp_path / file.parent.name).mkdir(exist_ok=True)
            (tmp_path / file.parent.name / file.name).write_bytes(file.read_bytes())
    with working_copy(PINS, path) as copy:
        assert copy.changed() == ()
        copy.pins_path.write_text(TEXT + "# more\n")
        assert path.read_text() == TEXT
        assert copy.write_back() == (path,)
        assert path.read_text() == TEXT + "# more\n"
    with working_copy(PINS, path) as copy:
        copy.pins_path.write_text(TEXT)
        path.write_text("# somebody else's\n")
        with pytest.raises(UsageError, match="meanwhile"):
            copy.write_back()
    assert not copy.pins_path.exists()
