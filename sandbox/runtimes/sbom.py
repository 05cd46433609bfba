"""The lock as a software bill of materials: CycloneDX 1.6 (ECMA-424), JSON.

Purls follow the purl-spec types npm, pypi and deb. The same lock gives the same text: no time, and
a serial number that follows from the content.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import Lock, LockedArtifact
from sandbox.runtimes.pins import Pins

_HASH = {"sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512"}
_WORD = r"[A-Za-z0-9][A-Za-z0-9.+-]*"
_EXPRESSION = re.compile(rf"^\(*{_WORD}\)*( (AND|OR|WITH) \(*{_WORD}\)*)*$")


def sbom(pins: Pins, lock: Lock) -> dict[str, Any]:
    """Return the bill of materials of every locked bundle.

    Each bundle is a component of type application that depends on the files it is made of.
    """
    components: dict[str, dict[str, Any]] = {}
    dependencies = []
    for harness, platforms in sorted(lock.bundles.items()):
        for platform, bundle in sorted(platforms.items()):
            ref = f"{harness}/{platform}"
            components[ref] = {
                "type": "application",
                "bom-ref": ref,
                "name": harness,
                "version": bundle.version,
                "hashes": [{"alg": "SHA-256", "content": bundle.sha256}],
                "licenses": _licences(pins.harness[harness].licence),
                "properties": [{"name": "sandbox:platform", "value": platform}],
            }
            parts = sorted(_parts(pins, lock, harness, platform), key=lambda part: part[0])
            components |= {component["bom-ref"]: component for _, component in parts}
            dependencies.append({"ref": ref, "dependsOn": [name for name, _ in parts]})
    found: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": dependencies,
    }
    content = json.dumps(found, sort_keys=True)
    return found | {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}"}


def purl(locked: LockedArtifact) -> str:
    """Return the package URL of a file."""
    version = quote(locked.version, safe="")
    if locked.client == "npm":
        return f"pkg:npm/{quote(locked.name, safe='/')}@{version}"
    if locked.client == "pip":
        name = re.sub(r"[-_.]+", "-", locked.name).lower()
        return f"pkg:pypi/{name}@{version}?file_name={quote(locked.file, safe='')}"
    return f"pkg:deb/debian/{locked.name}@{version}?arch={locked.tag}"


def _parts(
    pins: Pins, lock: Lock, harness: str, platform: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    bundle = next(b for p, b in lock.bundles[harness].items() if p == platform)
    for name in bundle.artifacts:
        yield _component(lock.artifacts[name], pins.artifact[name].licence)
    for tree in bundle.trees:
        for package in lock.trees[tree].packages:
            if platform in package.platforms:
                yield _component(package, package.licence)


def _component(locked: LockedArtifact, licence: str) -> tuple[str, dict[str, Any]]:
    ref, integrity = purl(locked), Integrity.parse(locked.integrity)
    return ref, {
        "type": "library",
        "bom-ref": ref,
        "name": locked.name,
        "version": locked.version,
        "purl": ref,
        "hashes": [{"alg": _HASH[integrity.algorithm], "content": integrity.hexdigest}],
        "licenses": _licences(licence),
    }


def _licences(text: str) -> list[dict[str, Any]]:
    if _EXPRESSION.match(text):
        return [{"expression": text}]
    return [{"license": {"name": text}}]
