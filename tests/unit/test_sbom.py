"""The bill of materials: complete, stable, and in the words of its specification."""

from __future__ import annotations

import re

import pytest

from sandbox.runtimes.lock import LockedArtifact, load_lock
from sandbox.runtimes.pins import load_pins
from sandbox.runtimes.sbom import purl, sbom

LOCK, PINS = load_lock(), load_pins()


def test_every_bundle_and_every_file_of_it_is_named_once() -> None:
    found = sbom(PINS, LOCK)
    assert found == sbom(PINS, LOCK)
    refs = [one["bom-ref"] for one in found["components"]]
    assert len(set(refs)) == len(refs)
    depends = {one["ref"]: one["dependsOn"] for one in found["dependencies"]}
    assert set(depends) == {f"{h}/{p}" for h, all_ in LOCK.bundles.items() for p in all_}
    assert {name for names in depends.values() for name in names} <= set(refs)
    for harness, platforms in LOCK.bundles.items():
        for platform, bundle in platforms.items():
            packages = [one for tree in bundle.trees for one in LOCK.trees[tree].packages]
            served = [one for one in packages if platform in one.platforms]
            assert len(depends[f"{harness}/{platform}"]) == len(bundle.artifacts) + len(served)
    for one in found["components"]:
        assert one["licenses"]
        (content,) = one["hashes"]
        assert re.fullmatch("[0-9a-f]{64}|[0-9a-f]{128}", content["content"])


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"client": "npm", "name": "@s/tool", "version": "1.0.0"}, "pkg:npm/%40s/tool@1.0.0"),
        (
            {"client": "pip", "name": "Some_Tool", "version": "1.0", "file": "x-1.0.whl"},
            "pkg:pypi/some-tool@1.0?file_name=x-1.0.whl",
        ),
        (
            {"client": "apt", "name": "bash-static", "version": "5.2-2+b1", "tag": "amd64"},
            "pkg:deb/debian/bash-static@5.2-2%2Bb1?arch=amd64",
        ),
    ],
)
def test_package_urls(said: dict[str, str], expected: str) -> None:
    common = {"file": "x", "size": 1, "integrity": "sha256:" + "0" * 64}
    assert purl(LockedArtifact.model_validate(common | said)) == expected
