"""What a bundle needs of an image, and whether an image has it: known before anything is fetched.

`sandbox pins lock` reads every ELF file of a bundle and writes a summary into the lock. A seed
compares it with the image's facts, so that an image is refused with reason and cure, where a start
would only say "not found" (the loader is another) or name a symbol version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field

from sandbox.runtimes.words import Cpu

Version = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*$")]


class Needs(BaseModel):
    """What one bundle needs.

    Attributes:
        interpreter: the dynamic loader that its program names; None when that is static.
        glibc: the newest GLIBC_ symbol version that any of its files asks for.
        glibcxx: the newest GLIBCXX_ version that its program asks the image's libstdc++ for.
        libraries: what its program needs beyond libc, and the bundle does not bring.
        optional: the same of its other files, loaders included: modules and companions that may
            never be started.
        cpu: what an x64 CPU must be able to do; None: every one will do, as far as is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    interpreter: str | None = None
    glibc: Version | None = None
    glibcxx: Version | None = None
    libraries: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    cpu: Cpu | None = None


class Facts(Protocol):
    """The part of an image's facts that counts here; ``engine.facts.ImageFacts`` has it."""

    @property
    def libc(self) -> str:
        """ "glibc", "musl" or "none"."""

    @property
    def libc_version(self) -> str | None:
        """As "2.36"; None when the library does not say."""

    @property
    def loaders(self) -> tuple[str, ...]:
        """The dynamic loaders that the image has."""

    @property
    def cpu(self) -> str | None:
        """ "x86-64", "x86-64-v2" ...: the level of the machine's CPU; None when not known."""


class ImageFacts(Facts, Protocol):
    """The same, with the libraries that the image's loaders find."""

    @property
    def libraries(self) -> Mapping[str, str]:
        """Name to the file behind it."""


class Refusal(BaseModel):
    """One thing that the image lacks, and what to do about it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str
    cure: str


def refusals(
    needs: Needs,
    facts: Facts,
    *,
    libraries: Mapping[str, str] | None = None,
    brought_by: Mapping[str, str] | None = None,
) -> tuple[Refusal, ...]:
    """Return what of ``needs`` the image does not have; none when it will do.

    Args:
        needs: from the lock.
        facts: of the image.
        libraries: shared libraries that the image has: name to the file behind it
            ("libstdc++.so.6" to "libstdc++.so.6.0.30"). None: not known, so not judged.
        brought_by: the pinned artifact that brings a library, where one does.
    """
    found = []
    if needs.interpreter and needs.interpreter not in facts.loaders:
        has = ", ".join(facts.loaders) or "no dynamic loader"
        found.append(
            Refusal(
                reason=f"needs the loader {needs.interpreter}, image has {has}",
                cure="use the bundle of the image's own platform (`sandbox pins list`)",
            )
        )
    if needs.glibc and facts.libc == "glibc" and _older(facts.libc_version, needs.glibc):
        found.append(
            Refusal(
                reason=f"needs GLIBC_{needs.glibc}, image has {facts.libc_version}",
                cure="use an image with a newer glibc, or pin an older version of the harness",
            )
        )
    if needs.cpu and facts.cpu and facts.cpu < needs.cpu:
        found.append(
            Refusal(
                reason=f"needs a CPU of level {needs.cpu}, this machine's is {facts.cpu}",
                cure="pin the build for older CPUs (one whose name has `-baseline`), where there is"
                f" one, or use a machine of level {needs.cpu}",
            )
        )
    if libraries is not None:
        found += _lacking(needs, libraries, brought_by or {})
    return tuple(found)


def _lacking(
    needs: Needs, libraries: Mapping[str, str], brought_by: Mapping[str, str]
) -> list[Refusal]:
    found = [
        Refusal(
            reason=f"needs {name}, image has none",
            cure=f"add the package with {name} to the image, or to the runtime "
            + (f"the pin {brought_by[name]}" if name in brought_by else "a pin")
            + ", which brings it",
        )
        for name in needs.libraries
        if name not in libraries
    ]
    here = _glibcxx_of(libraries.get("libstdc++.so.6", ""))
    if needs.glibcxx and here and _older(here, needs.glibcxx):
        found.append(
            Refusal(
                reason=f"needs GLIBCXX_{needs.glibcxx}, image's libstdc++ has {here}",
                cure="use an image with a newer libstdc++",
            )
        )
    return found


def _glibcxx_of(file: str) -> str | None:
    """libstdc++.so.6.0.N carries the versions up to GLIBCXX_3.4.N (GCC's ABI policy)."""
    head, dot, last = file.rpartition(".")
    return f"3.4.{last}" if dot and head == "libstdc++.so.6.0" and last.isdigit() else None


def _older(here: str | None, wanted: str) -> bool:
    return here is not None and ordered(here) < ordered(wanted)


def ordered(version: str) -> tuple[int, ...]:
    """Return a dotted version as numbers that compare."""
    return tuple(int(part) for part in version.split("."))
