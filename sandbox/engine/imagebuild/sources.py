"""Where mmdebstrap gets packages from: the mirror that the host's own apt is configured with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FIELDS = ("TARGET_OF", "CREATED_BY", "REPO_URI", "RELEASE", "CODENAME", "ORIGIN", "COMPONENT")
TARGETS = ("apt-get", "indextargets", "--format", "\t".join(f"$({name})" for name in _FIELDS))
SETTINGS = ("apt-config", "dump", "Acquire")
_CREDENTIALS = {"FILE": "Dir::Etc::netrc", "PARTS": "Dir::Etc::netrcparts"}
CREDENTIALS = (
    "apt-config",
    "shell",
    "FILE",
    "Dir::Etc::netrc/f",
    "PARTS",
    "Dir::Etc::netrcparts/d",
)
_ASSIGNMENT = re.compile(r"^([A-Z]+)='([^'\"]+)'$", re.MULTILINE)
_SCHEME = re.compile(r"^(https?|mirror(\+(https?|file))?|tor(\+https?)?):")
_FORWARDED = re.compile(
    r"^Acquire::(https?|ftp|socks|tor)(::|\s)|^Acquire::(Retries|ForceIPv[46]|Check-Valid-Until|"
    r"Check-Date|Max-ValidTime)(::|\s)",
    re.IGNORECASE,
)
_SUITE = re.compile(r"^[a-z]+$")  # "bookworm", not "bookworm-updates" or "bookworm/updates"


@dataclass(frozen=True, kw_only=True)
class Target:
    """One package index that the host's apt is configured to read."""

    uri: str
    release: str
    codename: str
    origin: str
    component: str


def parse_targets(text: str) -> tuple[Target, ...]:
    """Read what the command ``TARGETS`` prints (apt-get(8), indextargets).

    A field that apt does not know (no list fetched yet) stays as ``$(NAME)``: empty here.
    """
    rows = (line.split("\t") for line in text.splitlines())
    found: dict[Target, None] = {}
    for row in rows:
        if len(row) != len(_FIELDS):
            continue
        held = {
            name: "" if value == f"$({name})" else value
            for name, value in zip(_FIELDS, row, strict=True)
        }
        if held["TARGET_OF"] == "deb" and held["CREATED_BY"] == "Packages":
            target = Target(
                uri=held["REPO_URI"],
                release=held["RELEASE"],
                codename=held["CODENAME"],
                origin=held["ORIGIN"],
                component=held["COMPONENT"],
            )
            found[target] = None
    return tuple(found)


def sources_to_try(
    targets: Iterable[Target], *, suite: str, components: Sequence[str], origin: str = "Debian"
) -> tuple[tuple[str, ...], ...]:
    """Choose the one-line sources (sources.list(5)) to build ``suite`` from, best first.

    The host's own source of ``origin`` for the suite, if there is one. Otherwise the mirrors of
    its other suites, since a mirror mostly carries all of them, and last no line at all, with
    which mmdebstrap takes its own default. A third party's repository that happens to have a
    suite of that name is never taken.
    """
    usable = [item for item in targets if _SCHEME.match(item.uri) and item.origin == origin]
    exact = [item for item in usable if suite in {item.release, item.codename}]
    siblings = [
        item
        for item in usable
        if _SUITE.match(item.codename or item.release) and item.component in components
    ]
    uris = dict.fromkeys(item.uri for item in (exact or siblings))
    lines = tuple((f"deb {uri} {suite} {' '.join(components)}",) for uri in uris)
    return lines[:1] if exact else (*lines, ())


def lacks_origins(targets: Iterable[Target]) -> bool:
    """Say whether apt has fetched no list yet, so that it cannot tell who a source is from."""
    return all(not item.origin for item in targets)


def forwarded_settings(text: str) -> str:
    """Pick how the host reaches its mirror (proxies, CA files) from what ``SETTINGS`` prints.

    mmdebstrap's apt does not read the host's configuration. What would let an unsigned or weakly
    signed source pass is not handed on; how old an index may be is the host's choice (a frozen
    mirror's indexes are past their date).
    """
    kept = [line for line in text.splitlines() if _FORWARDED.match(line)]
    return "".join(f"{line}\n" for line in kept)


def credential_settings(environment: str) -> str:
    """Let mmdebstrap's apt read the host's own files with a mirror's credentials.

    ``environment`` is what ``CREDENTIALS`` prints. The files are named, never copied: nothing of
    them gets into the image or onto a command line.
    """
    held = dict(_ASSIGNMENT.findall(environment))
    return "".join(
        f'{setting} "{held[name]}";\n' for name, setting in _CREDENTIALS.items() if name in held
    )
