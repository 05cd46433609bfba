"""npm's configuration: which npm is asked, what it reports, and the credentials it hides."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import FetchError, PrerequisiteMissing, UsageError
from sandbox.runtimes.npm import npm_settings
from sandbox.runtimes.npmrc import NpmSettings, parse_npmrc, read_settings

REPORT: dict[str, Any] = {
    "registry": "https://mirror.example/npm",
    "@scope:registry": "https://other.example/",
    "proxy": None,
    "https-proxy": None,
    "noproxy": [""],
    "cafile": None,
    "ca": None,
    "strict-ssl": True,
    "some-other-key": 7,
}


def settings(
    *, env: dict[str, str] | None = None, project: Path | None = None, **changes: Any
) -> NpmSettings:
    return read_settings(REPORT | changes, env=env or {}, project=project)


def test_registry_and_scopes_are_npms_own_words() -> None:
    found = settings()
    assert found.registry_for("tool") == "https://mirror.example/npm/"
    assert found.registry_for("@scope/tool") == "https://other.example/"
    assert found.registry_for("@else/tool") == "https://mirror.example/npm/"


def test_credentials_come_from_user_global_project_and_variables(tmp_path: Path) -> None:
    user, everyone = tmp_path / "user", tmp_path / "global"
    everyone.write_text("//a.example/:_authToken=global\n//b.example/:_authToken=global\n")
    user.write_text("//b.example/:_authToken = user\n//c.example/:_authToken=user\n")
    (tmp_path / ".npmrc").write_text("//c.example/:_authToken=project\n")
    found = settings(
        env={"npm_config_//d.example/:_authToken": "variable"},
        project=tmp_path,
        userconfig=str(user),
        globalconfig=str(everyone),
    )
    assert found.credentials == {
        "//a.example/": "Bearer global",
        "//b.example/": "Bearer user",
        "//c.example/": "Bearer project",
        "//d.example/": "Bearer variable",
    }


def test_every_kind_of_login_becomes_a_header(tmp_path: Path) -> None:
    secret = base64.b64encode(b"pass word").decode()
    (tmp_path / ".npmrc").write_text(
        "//a.example/:_auth=QUJD\n"
        f"//b.example/:username=me\n//b.example/:_password={secret}\n"
        "//c.example/:email=me@example\n"
    )
    both = base64.b64encode(b"me:pass word").decode()
    assert settings(project=tmp_path).credentials == {
        "//a.example/": "Basic QUJD",
        "//b.example/": f"Basic {both}",
    }


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("https://mirror.example/npm/tool", "Bearer npm"),
        ("https://mirror.example/npm/@scope%2ftool/-/tool.tgz", "Bearer npm"),
        ("https://mirror.example/npm/deep/tool", "Bearer deep"),
        ("https://mirror.example/files/tool.tgz", "Bearer npm"),  # the registry's own host
        ("https://mirror.example.evil/npm/tool", None),
        ("https://evil.example/mirror.example/npm/tool", None),
        ("https://other.example/tool", None),
    ],
)
def test_a_login_goes_to_its_place_only(tmp_path: Path, url: str, header: str | None) -> None:
    (tmp_path / ".npmrc").write_text(
        "//mirror.example/npm/:_authToken=npm\n//mirror.example/npm/deep/:_authToken=deep\n"
    )
    found = settings(project=tmp_path).headers_for(url)
    assert found == ({"Authorization": header} if header else {})


def test_proxies_certificates_and_exceptions(tmp_path: Path) -> None:
    access = settings(
        **{"proxy": "http://p:1", "https-proxy": "http://s:2", "noproxy": [".corp", "localhost"]},
        cafile="/ca.pem",
        ca=["PEM"],
        env={"NODE_EXTRA_CA_CERTS": "/extra.pem"},
        **{"strict-ssl": False},
    ).access
    assert access.proxies == {
        "http://": "http://p:1",
        "https://": "http://s:2",
        "all://corp": None,
        "all://*.corp": None,
        "all://localhost": None,
        "all://*.localhost": None,
    }
    assert access.ca_files == ("/ca.pem", "/extra.pem")
    assert access.ca_text == "PEM"
    assert not access.verify


def test_without_a_proxy_the_environment_decides() -> None:
    assert settings(noproxy=["corp"]).access.proxies == {}


@pytest.mark.parametrize("report", [{}, {"registry": 7}, {"registry": "x", "strict-ssl": "maybe"}])
def test_a_report_that_is_none_is_refused(report: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="npm config list"):
        read_settings(report, env={})


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("k=v", "v"),
        ("  k  =  v  ", "v"),
        ('k="a b"', "a b"),
        ("k='a b'", "a b"),
        ("k=a=b", "a=b"),
        ("k=${HERE}", "found"),
        ("k=x${HERE}y", "xfoundy"),
        ("k=${GONE}", "${GONE}"),
        ("k=${GONE?}", ""),
        ("# k=v", None),
        ("; k=v", None),
        ("[k=v]", None),
        ("k", None),
        ("k=", ""),
    ],
)
def test_lines_of_an_npmrc(line: str, value: str | None) -> None:
    assert parse_npmrc(f"a=1\n{line}\nb=2\n", {"HERE": "found"}).get("k") == value


@given(st.text(max_size=200))
def test_no_npmrc_breaks_the_parser(text: str) -> None:
    assert all(isinstance(value, str) for value in parse_npmrc(text, {}).values())


def fake_npm(path: Path, script: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def never() -> tuple[str, ...]:
    raise AssertionError("the pinned npm was asked")


def says(registry: str) -> str:
    return f"test \"$*\" = 'config list --json' && echo '{json.dumps({'registry': registry})}'"


def test_the_hosts_npm_is_asked_first(tmp_path: Path) -> None:
    npm = fake_npm(tmp_path / "bin/npm", says("https://host.example"))
    env = {"PATH": f"{Path(npm).parent}:/usr/bin:/bin"}
    assert npm_settings(never, env=env).registry == "https://host.example/"


@pytest.mark.parametrize("script", [None, "exit 127", "echo not json", "echo '[]'"])
def test_the_pinned_npm_stands_in(tmp_path: Path, script: str | None) -> None:
    if script:
        fake_npm(tmp_path / "bin/npm", script)
    pinned = fake_npm(tmp_path / "pinned/npm", says("https://pinned.example"))
    env = {"PATH": str(tmp_path / "bin")}
    assert npm_settings(lambda: (pinned,), env=env).registry == "https://pinned.example/"


def test_a_configuration_that_npm_rejects_is_said(tmp_path: Path) -> None:
    pinned = fake_npm(tmp_path / "pinned/npm", "echo 'bad key in .npmrc' >&2; exit 3")
    with pytest.raises(FetchError, match=r"exit code 3: bad key in \.npmrc"):
        npm_settings(lambda: (pinned,), env={"PATH": ""})


def test_a_pinned_npm_that_cannot_start_is_a_missing_prerequisite(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteMissing, match="cannot start"):
        npm_settings(lambda: (str(tmp_path / "gone"),), env={"PATH": ""})
