"""Harnesses found through entry points: ours, foreign ones, and those that are none."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path

import pytest

from sandbox.errors import UsageError
from sandbox.harnesses.base import Capabilities, LaunchContext, LaunchPlan, NativeContext
from sandbox.harnesses.codex import CODEX
from sandbox.harnesses.registry import GROUP, registered

MODULE = "a_foreign_harness_package"
SOURCE = """
from pathlib import Path
from sandbox.harnesses.codex import CODEX, Codex
class Other(Codex):
    name = "other"
OTHER = Other()
class Mute:
    name = "mute"
    capabilities = CODEX.capabilities
MUTE = Mute()
class Vague(Codex):
    name = "vague"
    capabilities = {}
VAGUE = Vague()
class Unpinned(Codex):
    name = "unpinned"
    pins_file = Path(__file__).with_name("nowhere.toml")
UNPINNED = Unpinned()
class Pinned(Codex):
    name = "pinned"
    pins_file = Path(__file__)
PINNED = Pinned()
"""


@pytest.fixture(autouse=True)
def foreign(tmp_path: Path) -> Iterator[None]:
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    (tmp_path / f"{MODULE}_broken.py").write_text("import nothing_of_that_name")
    sys.path.insert(0, str(tmp_path))
    yield
    sys.path.remove(str(tmp_path))
    for name in (MODULE, f"{MODULE}_broken"):
        sys.modules.pop(name, None)


class Package(Distribution):
    """A distribution that is only a name."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def metadata(self) -> dict[str, str]:  # type: ignore[override]
        return {"Name": self._name}

    def read_text(self, filename: str) -> str | None:
        return None

    def locate_file(self, path: object) -> Path:
        return Path(str(path))


def point(name: str, value: str, package: str = "foreign-harness") -> EntryPoint:
    bare = EntryPoint(name=name, value=value, group=GROUP)
    return bare._for(Package(package))  # type: ignore[attr-defined, no-any-return]


def test_adapters_are_loaded_in_the_order_of_their_names() -> None:
    loaded = registered(
        [point("other", f"{MODULE}:OTHER"), point("codex", "sandbox.harnesses.codex:CODEX")]
    ).harnesses
    assert list(loaded) == ["codex", "other"]
    assert loaded["codex"] is CODEX
    assert isinstance(loaded["other"].capabilities, Capabilities)


def test_a_foreign_adapter_works_like_ours() -> None:
    class Tiny:
        name = "tiny"
        capabilities = CODEX.capabilities

        def plan(self, ctx: LaunchContext) -> LaunchPlan:
            return CODEX.plan(ctx)

        def parse(self, native: Path, context: NativeContext) -> object:
            return CODEX.parse(native, context)

    sys.modules[MODULE] = type(sys)(MODULE)
    sys.modules[MODULE].TINY = Tiny()  # type: ignore[attr-defined]
    assert registered([point("tiny", f"{MODULE}:TINY")]).find("tiny").name == "tiny"


def test_the_same_registration_twice_is_one() -> None:
    twice = [point("codex", "sandbox.harnesses.codex:CODEX", package) for package in ("a", "b")]
    assert list(registered(twice).harnesses) == ["codex"]


def test_two_packages_with_one_name_are_refused_and_the_others_stay() -> None:
    found = registered(
        [
            point("codex", "sandbox.harnesses.codex:CODEX"),
            point("other", f"{MODULE}:OTHER", "package-one"),
            point("other", "elsewhere:OTHER", "package-two"),
        ]
    )
    with pytest.raises(UsageError) as caught:
        found.find("other")
    assert "package-one" in str(caught.value)
    assert "package-two" in str(caught.value)
    assert caught.value.cure is not None
    assert list(found.harnesses) == ["codex"]
    assert found.names == ("codex", "other")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("other", f"{MODULE}_broken:OTHER", "cannot be loaded"),
        ("other", f"{MODULE}:MISSING", "cannot be loaded"),
        ("other", "no_such_module_at_all:X", "cannot be loaded"),
        ("mute", f"{MODULE}:MUTE", "plan and parse"),
        ("other", f"{MODULE}:Other", "is not an adapter"),
        ("vague", f"{MODULE}:VAGUE", "declares no Capabilities"),
        ("renamed", f"{MODULE}:OTHER", "calls itself 'other'"),
        ("unpinned", f"{MODULE}:UNPINNED", "a pins file that is not there: .*/nowhere.toml"),
    ],
    ids=["import", "attribute", "module", "mute", "class", "vague", "renamed", "unpinned"],
)
def test_a_broken_adapter_names_its_package_and_takes_no_other_away(
    name: str, value: str, says: str
) -> None:
    found = registered([point(name, value), point("codex", "sandbox.harnesses.codex:CODEX")])
    with pytest.raises(UsageError, match=says) as caught:
        found.find(name)
    assert "foreign-harness" in str(caught.value)
    assert caught.value.cure == "repair or uninstall package foreign-harness"
    assert found.find("codex") is CODEX


def test_an_adapter_of_another_package_brings_its_pins_file() -> None:
    found = registered(
        [point("pinned", f"{MODULE}:PINNED"), point("codex", "sandbox.harnesses.codex:CODEX")]
    )
    assert {name: path.name for name, path in found.pins_files.items()} == {
        "pinned": f"{MODULE}.py"
    }


def test_an_unknown_name_gets_the_close_one_and_the_list() -> None:
    known = registered([point("codex", "sandbox.harnesses.codex:CODEX")])
    with pytest.raises(UsageError, match="did you mean 'codex'") as caught:
        known.find("codx")
    assert caught.value.cure == "choose one of codex"


def test_without_any_harness_the_cure_says_what_to_install() -> None:
    with pytest.raises(UsageError) as caught:
        registered([]).find("codex")
    assert GROUP in str(caught.value.cure)


def test_ours_are_registered_in_the_project_file() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    ours = project["project"]["entry-points"][GROUP]
    points = [point(name, value, "sandbox") for name, value in ours.items()]
    assert set(registered(points).harnesses) == set(ours)
