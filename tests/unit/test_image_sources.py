"""Which mirror a Debian image is built from, and what of the host's apt settings goes along."""

import pytest

from sandbox.engine.imagebuild.sources import (
    Target,
    credential_settings,
    forwarded_settings,
    lacks_origins,
    parse_targets,
    sources_to_try,
)

MIRROR = "http://mirror.invalid/debian/"
OTHER = "https://other.invalid/apt/"


def target(
    uri: str = MIRROR,
    release: str = "bookworm",
    codename: str | None = None,
    origin: str = "Debian",
    component: str = "main",
) -> Target:
    return Target(
        uri=uri,
        release=release,
        codename=release if codename is None else codename,
        origin=origin,
        component=component,
    )


def chosen(*targets: Target, suite: str = "bookworm") -> tuple[tuple[str, ...], ...]:
    return sources_to_try(targets, suite=suite, components=("main",))


def test_what_apt_prints_is_read() -> None:
    text = (
        f"deb\tPackages\t{MIRROR}\tbookworm\tbookworm\tDebian\tmain\n"
        f"deb\tTranslations\t{MIRROR}\tbookworm\tbookworm\tDebian\tmain\n"
        f"deb-src\tSources\t{MIRROR}\tbookworm\tbookworm\tDebian\tmain\n"
        f"deb\tPackages\t{MIRROR}\tbookworm\tbookworm\tDebian\tmain\n"
        f"deb\tPackages\t{OTHER}\tbookworm\t$(CODENAME)\t$(ORIGIN)\tmain\n"
        "W: something else\n"
    )
    assert parse_targets(text) == (target(), target(OTHER, codename="", origin=""))


def test_without_lists_apt_cannot_say_who_a_source_is_from() -> None:
    assert lacks_origins([])
    assert lacks_origins([target(origin="")])
    assert not lacks_origins([target(origin=""), target()])


LINE = (f"deb {MIRROR} bookworm main",)
DEFAULT = ()


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        pytest.param([target()], (LINE,), id="the-suite"),
        pytest.param([target(release="oldstable", codename="bookworm")], (LINE,), id="by-codename"),
        pytest.param([target(), target(OTHER)], (LINE,), id="the-first-of-two"),
        pytest.param([target(OTHER, origin="Docker"), target()], (LINE,), id="not-a-third-party"),
        pytest.param([target(OTHER, origin="Docker")], (DEFAULT,), id="only-a-third-party"),
        pytest.param([target(release="bookworm-backports")], (DEFAULT,), id="only-backports"),
        pytest.param(
            [target(release="bookworm-updates"), target()], (LINE,), id="updates-and-the-suite"
        ),
        pytest.param([target(release="trixie")], (LINE, DEFAULT), id="mirror-of-another-suite"),
        pytest.param(
            [target(release="trixie"), target(OTHER, release="trixie-security")],
            (LINE, DEFAULT),
            id="never-the-security-mirror",
        ),
        pytest.param(
            [target(OTHER, release="noble", origin="Ubuntu")], (DEFAULT,), id="an-ubuntu-host"
        ),
        pytest.param([target(origin="")], (DEFAULT,), id="unknown-origin"),
        pytest.param([], (DEFAULT,), id="no-sources"),
        pytest.param([target("cdrom://[x]/")], (DEFAULT,), id="a-disc"),
        pytest.param([target("file:/srv/debian/")], (DEFAULT,), id="a-local-folder"),
        pytest.param(
            [target("mirror+file:/etc/apt/mirrors/debian.list")],
            (("deb mirror+file:/etc/apt/mirrors/debian.list bookworm main",),),
            id="a-mirror-list",
        ),
    ],
)
def test_the_mirror(targets: list[Target], expected: tuple[tuple[str, ...], ...]) -> None:
    assert chosen(*targets) == expected


def test_only_how_to_reach_the_mirror_is_handed_on() -> None:
    text = """\
Acquire "";
Acquire::http::Proxy "http://127.0.0.1:3142";
Acquire::https::CAInfo "/etc/ssl/own.pem";
Acquire::Retries "3";
Acquire::Check-Valid-Until "false";
Acquire::AllowInsecureRepositories "true";
Acquire::AllowWeakRepositories "true";
Acquire::AllowDowngradeToInsecureRepositories "true";
Acquire::httpx "no";
APT::Get::AllowUnauthenticated "true";
"""
    assert forwarded_settings(text) == (
        'Acquire::http::Proxy "http://127.0.0.1:3142";\n'
        'Acquire::https::CAInfo "/etc/ssl/own.pem";\n'
        'Acquire::Retries "3";\n'
        'Acquire::Check-Valid-Until "false";\n'
    )


def test_credential_files_are_named_and_not_copied() -> None:
    text = "FILE='/etc/apt/auth.conf'\nPARTS='/etc/apt/auth.conf.d/'\nX='y'\n"
    assert credential_settings(text) == (
        'Dir::Etc::netrc "/etc/apt/auth.conf";\nDir::Etc::netrcparts "/etc/apt/auth.conf.d/";\n'
    )
    assert credential_settings("") == ""
