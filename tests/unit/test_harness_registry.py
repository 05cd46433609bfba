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
from sandbox.harnesses.registry import GROUP, find_harness, load_harnesses

MODULE = "a_foreign_harness_package"
SOURCE = """
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
    loaded = load_harnesses(
        [point("other", f"{MODULE}:OTHER"), point("codex", "sandbox.harnesses.codex:CODEX")]
    )
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
    assert find_harness("tiny", load_harnesses([point("tiny", f"{MODULE}:TINY")])).name == "tiny"


def test_the_same_registration_twice_is_one() -> None:
    twice = [point("codex", "sandbox.harnesses.codex:CODEX", package) for package in ("a", "b")]
    assert list(load_harnesses(twice)) == ["codex"]


def test_two_packages_with_one_name_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        load_harnesses(
            [
                point("other", f"{MODULE}:OTHER", "package-one"),
                point("other", "elsewhere:OTHER", "package-two"),
            ]
        )
    assert "package-one" in str(caught.value)
    assert "package-two" in str(caught.value)
    assert caught.value.cure is not None


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
    ],
    ids=["import", "attribute", "module", "mute", "class", "vague", "renamed"],
)
def test_a_broken_adapter_names_its_package(name: str, value: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        load_harnesses([point(name, value)])
    assert "foreign-harness" in str(caught.value)


def test_an_unknown_name_gets_the_close_one_and_the_list() -> None:
    known = load_harnesses([point("codex", "sandbox.harnesses.codex:CODEX")])
    with pytest.raises(UsageError, match="did you mean 'codex'") as caught:
        find_harness("codx", known)
    assert caught.value.cure == "choose one of codex"


def test_without_any_harness_the_cure_says_what_to_install() -> None:
    with pytest.raises(UsageError) as caught:
        find_harness("codex", {})
    assert GROUP in str(caught.value.cure)


def test_ours_are_registered_in_the_project_file() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    registered = project["project"]["entry-points"][GROUP]
    points = [point(name, value, "sandbox") for name, value in registered.items()]
    assert set(load_harnesses(points)) >= {"codex", "opencode"}
