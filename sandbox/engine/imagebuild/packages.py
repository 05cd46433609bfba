"""The package list of a root file system, from dpkg's or apk's database.

It explains why two builds of one recipe differ: a distribution's point release brings other
packages, and so another image ID.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from sandbox.engine.imagebuild.definition import ImageDef, Libc
from sandbox.engine.imagebuild.tree import Entry, read_small
from sandbox.errors import IntegrityError

_DPKG = "var/lib/dpkg/status"
_APK = ("lib/apk/db/installed", "usr/lib/apk/db/installed")
_LIBC_PACKAGE: dict[Libc, str] = {"glibc": "libc6", "musl": "musl"}
_SHOWN = 6


class Package(BaseModel):
    """One installed package."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str
    arch: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} {self.arch}"


def read_packages(entries: Sequence[Entry]) -> tuple[Package, ...]:
    """List the installed packages by name; nothing where no package manager's database is."""
    status = read_small(entries, _DPKG)
    if status is not None:
        return tuple(sorted(_dpkg(status.decode()), key=str))
    for path in _APK:
        installed = read_small(entries, path)
        if installed is not None:
            return tuple(sorted(_apk(installed.decode()), key=str))
    return ()


def packages_sha256(packages: Iterable[Package]) -> str:
    """Hash the package list, one ``name version arch`` a line."""
    return hashlib.sha256("".join(f"{item}\n" for item in packages).encode()).hexdigest()


def check_libc(definition: ImageDef, packages: Sequence[Package]) -> None:
    """Raise ``IntegrityError`` unless the libc package is what ``image.toml`` says.

    Without a package list, or where no libc is promised, there is nothing to compare with.
    """
    name = _LIBC_PACKAGE.get(definition.libc)
    if name is None:
        return
    found = [item.version for item in packages if item.name == name]
    if not packages or any(_upstream(version) == definition.libc_version for version in found):
        return
    raise IntegrityError(
        f"image {definition.name}: {definition.libc} {definition.libc_version} is promised, "
        f"the root file system has {name} {', '.join(found) or 'not at all'}",
        cure="correct libc and libc_version in its image.toml, or the recipe",
    )


def difference(before: Iterable[Package], now: Iterable[Package]) -> str:
    """Say in words which packages differ; '' when none do."""
    old, new = {item.name: item for item in before}, {item.name: item for item in now}
    changes = [
        f"{name} {old[name].version if name in old else 'absent'}"
        f" -> {new[name].version if name in new else 'absent'}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return ", ".join(changes[:_SHOWN]) + more


def _upstream(version: str) -> str:
    """Give the upstream part of ``2.36-9+deb12u13`` or ``1.2.5-r21``."""
    return re.sub(r"-[^-]*$", "", version.partition(":")[2] or version)


def _dpkg(text: str) -> Iterator[Package]:
    """Read dpkg's status file (deb-control(5) paragraphs): what is installed, not what was."""
    for paragraph in text.split("\n\n"):
        fields = _fields(paragraph, ": ")
        if fields.get("Status", "").endswith(" installed"):
            yield Package(
                name=fields["Package"], version=fields["Version"], arch=fields["Architecture"]
            )


def _apk(text: str) -> Iterator[Package]:
    """Read apk's installed database (apk-package(5)): P, V and A are name, version and arch."""
    for paragraph in text.split("\n\n"):
        fields = _fields(paragraph, ":")
        if "P" in fields:
            yield Package(name=fields["P"], version=fields["V"], arch=fields["A"])


def _fields(paragraph: str, separator: str) -> dict[str, str]:
    """Read ``name<separator>value`` lines; of a repeated name the first counts."""
    fields: dict[str, str] = {}
    for line in paragraph.splitlines():
        name, found, value = line.partition(separator)
        if found and not line.startswith((" ", "\t")):
            fields.setdefault(name, value)
    return fields
