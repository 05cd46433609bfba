"""npm's lock file, read: who gets which package, where it goes, and files that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import UsageError
from sandbox.runtimes.layout import bin_links, is_bin, package_places
from sandbox.runtimes.lock import LockedPackage
from sandbox.runtimes.npmtree import NpmPackage, read_npm_tree
from sandbox.runtimes.pins import TreeContent
from sandbox.runtimes.trees import NpmTreePin, PipTreePin
from sandbox.runtimes.words import Platform

SRI = "sha512-" + "A" * 86 + "=="
OTHER = "sha512-" + "B" * 85 + "A=="
ALL: tuple[Platform, ...] = (
    "linux-x64-gnu", "linux-x64-musl", "linux-arm64-gnu", "linux-arm64-musl",
)  # fmt: skip


def node(**more: Any) -> dict[str, Any]:
    return {"version": "1.0.0", "integrity": SRI, "license": "MIT"} | more


def tree(
    tmp_path: Path, packages: dict[str, Any], platforms: tuple[Platform, ...] = ALL
) -> dict[str, NpmPackage]:
    path = tmp_path / "package-lock.json"
    path.write_text(json.dumps({"lockfileVersion": 3, "packages": {"": {}} | packages}))
    return {one.paths[0]: one for one in read_npm_tree(path, platforms)}


@pytest.mark.parametrize(
    ("rules", "served"),
    [
        ({}, ALL),
        ({"os": ["linux", "darwin"]}, ALL),
        ({"os": "linux", "cpu": "x64"}, ALL[:2]),
        ({"cpu": ["arm64"]}, ALL[2:]),
        ({"cpu": ["!arm64"]}, ALL[:2]),
        ({"libc": ["musl"]}, ALL[1::2]),
        ({"libc": ["!musl"]}, ALL[::2]),
        ({"os": ["any"]}, ALL),
    ],
    ids=str,
)
def test_os_cpu_and_libc_choose(
    tmp_path: Path, rules: dict[str, Any], served: tuple[Platform, ...]
) -> None:
    found = tree(tmp_path, {"node_modules/a": node(optional=True, **rules)})
    assert set(found["node_modules/a"].platforms) == set(served)


def test_what_nobody_gets_is_left_out(tmp_path: Path) -> None:
    found = tree(
        tmp_path,
        {
            "node_modules/a": node(),
            "node_modules/dev": node(dev=True),
            "node_modules/mac": node(optional=True, os=["darwin"]),
            "node_modules/mac/node_modules/below": node(),
            "node_modules/macro": node(),
            "node_modules/a/node_modules/inside": node(inBundle=True),
        },
    )
    assert list(found) == ["node_modules/a", "node_modules/macro"]


def test_one_package_in_two_places_is_fetched_once(tmp_path: Path) -> None:
    packages = {
        "node_modules/a": node(),
        "node_modules/b": node(version="2.0.0", integrity=OTHER),
        "node_modules/b/node_modules/a": node(),
        "node_modules/alias": node(name="a"),
    }
    found = tree(tmp_path, packages)
    assert found["node_modules/a"].paths == (
        "node_modules/a", "node_modules/alias", "node_modules/b/node_modules/a",
    )  # fmt: skip
    assert [one.wanted.file for one in found.values()] == ["a-1.0.0.tgz", "b-2.0.0.tgz"]


def test_a_scoped_name_keeps_its_scope_and_its_file_does_not(tmp_path: Path) -> None:
    (one,) = tree(tmp_path, {"node_modules/@s/a": node(bin="./cli.js")}).values()
    assert (one.wanted.name, one.wanted.file, one.bins) == ("@s/a", "a-1.0.0.tgz", {"a": "cli.js"})


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        pytest.param({"node_modules/a": node(integrity=None)}, "no version and", id="no-hash"),
        pytest.param({"node_modules/a": node(version=None)}, "no version and", id="no-version"),
        pytest.param({"node_modules/a": node(link=True)}, "no version and", id="link"),
        pytest.param({"packages/a": node()}, "no version and", id="workspace"),
        pytest.param({"node_modules/a": node(integrity="sha1-AAAA")}, "be locked", id="weak-hash"),
        pytest.param({"node_modules/a": node(os=["win32"])}, "is not for", id="other-system"),
        pytest.param({"node_modules/a": []}, "not a lock file", id="no-node"),
    ],
)
def test_a_lock_file_that_cannot_be_locked(
    tmp_path: Path, packages: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        tree(tmp_path, packages)


def test_an_older_lock_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "package-lock.json"
    path.write_text(json.dumps({"lockfileVersion": 1, "dependencies": {}}))
    with pytest.raises(UsageError, match="version 3"):
        read_npm_tree(path, ALL)


def package(**more: Any) -> LockedPackage:
    said = {
        "client": "npm", "name": "a", "version": "1.0.0", "file": "a-1.0.0.tgz", "size": 1,
        "integrity": SRI, "licence": "MIT", "platforms": ["linux-x64-gnu"],
    }  # fmt: skip
    return LockedPackage.model_validate(said | more)


NPM = NpmTreePin(client="npm", source="package-lock.json")
PIP = PipTreePin(client="pip", source="requirements.lock", python="3.13")
SITE = "lib/python3.13/site-packages/"


def test_npms_first_folder_goes_whatever_it_is_called() -> None:
    content = TreeContent(tree="t", put="app/", leave=("*.map", "node_modules/b/"))
    one = package(paths=["node_modules/a", "node_modules/b"])
    assert package_places("odd/lib/x.js", one, NPM, content) == ("node_modules/a/lib/x.js",)
    assert package_places("odd/lib/x.js.map", one, NPM, content) == ()
    assert package_places("loose", one, NPM, content) == ()


def test_npms_programs_are_linked_beside_their_package() -> None:
    one = package(
        name="@s/a", paths=["node_modules/@s/a", "node_modules/b/node_modules/@s/a"],
        bins={"a": "bin/a.js"},
    )  # fmt: skip
    assert bin_links(one) == {
        "node_modules/.bin/a": "../@s/a/bin/a.js",
        "node_modules/b/node_modules/.bin/a": "../@s/a/bin/a.js",
    }
    assert is_bin("node_modules/@s/a/bin/a.js", one)
    assert not is_bin("node_modules/@s/a/bin/b.js", one)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("pkg/mod.py", (SITE + "pkg/mod.py",)),
        ("pkg-1.0.dist-info/RECORD", (SITE + "pkg-1.0.dist-info/RECORD",)),
        ("pkg-1.0.data/purelib/x.py", (SITE + "x.py",)),
        ("pkg-1.0.data/platlib/x.so", (SITE + "x.so",)),
        ("pkg-1.0.data/data/share/x", ("share/x",)),
        ("pkg-1.0.data/scripts/run", ("bin/run",)),
        ("pkg-1.0.data/headers/x.h", ()),
    ],
)
def test_where_a_wheels_files_go(name: str, places: tuple[str, ...]) -> None:
    assert package_places(name, package(), PIP, TreeContent(tree="t", put="python/")) == places
