"""An engine that is reached by TCP with TLS: the kit holds, and clients are refused in words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.inside import Tracking
from sandbox.engine.link import open_link
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import PrerequisiteMissing, UsageError
from sandbox.progress import PlainProgress
from tests.contract.conftest import labelled
from tests.contract.kit import alive, run, said, sh, until
from tests.contract.second_engine import NEEDS
from tests.contract.test_link import GET, echo
from tests.contract.test_podman import PYTEST
from tests.contract.tls_engine import NEEDS_OPENSSL, authority, environment, signed, tls_engine

pytestmark = [pytest.mark.docker, NEEDS_OPENSSL, *NEEDS]
QUIET = PlainProgress(quiet=True)
START_S = 60
KIT = ("test_exec_values.py", "test_files.py")
PROVED = "stdin or streams or binary or round_trip or files_from_memory or test_read"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def environ(keys: Path) -> Iterator[dict[str, str]]:
    with tls_engine(keys) as address:
        yield environment(address, keys)


@pytest.fixture(scope="module")
def engine(environ: dict[str, str]) -> Iterator[Engine]:
    with Engine.connect(environ=environ, timeout_s=START_S) as found:  # waits until it listens
        ensure_image(found, image_definition("alpine-3.23"), QUIET)
        yield found
        assert labelled(found) == []


def test_the_kit_holds(engine: Engine, environ: dict[str, str]) -> None:
    ended = subprocess.run(
        [*PYTEST, "-k", PROVED, *(f"tests/contract/{name}" for name in KIT)],
        capture_output=True,
        text=True,
        env={**os.environ, **environ, "SANDBOX_TEST_IMAGES": "alpine-3.23"},
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-8000:]
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert passed is not None
    assert int(passed[1]) > 20, passed[0]


@pytest.mark.parametrize("channel", [True, False], ids=["channel", "engine"])
def test_what_a_command_still_says_after_its_input_has_ended(
    engine: Engine, *, channel: bool
) -> None:
    owner = Ownership.current(run_id="tls-streams")
    image = ensure_image(engine, image_definition("alpine-3.23"), QUIET).ref
    with Sandbox(engine, image, owner=owner, channel=channel) as box:
        assert said(
            sh(box, "wc -c; head -c 3000000 /dev/zero | wc -c", stdin=b"x" * 3_000_000)
        ) == ("3000000\n3000000\n")
        back = run(box, "cat", stdin=bytes(range(256)) * 12_000, cap_bytes=1 << 22)
        assert back.stdout.data == bytes(range(256)) * 12_000


@pytest.mark.parametrize("tracking", ["cgroup", "scan"])
def test_the_tree_is_gone_at_the_deadline(engine: Engine, tracking: Tracking) -> None:
    owner = Ownership.current(run_id="tls-end")
    image = ensure_image(engine, image_definition("alpine-3.23"), QUIET).ref
    with Sandbox(engine, image, owner=owner, tracking=tracking) as box:
        script = "sleep 4300 & setsid sleep 4300 & yes"
        assert sh(box, script, deadline_s=2.0, cap_bytes=1000).timed_out
        assert until(lambda: not alive(box, "4300"))


def test_a_model_link_by_relay(engine: Engine) -> None:
    owner = Ownership.current(run_id="tls-link")
    image = ensure_image(engine, image_definition("alpine-3.23"), QUIET).ref
    with (
        open_link(engine, owner, isolation="relay", progress=QUIET) as link,
        Sandbox(engine, image, owner=owner, link=link) as box,
        echo(link.listen()),
    ):
        assert said(sh(box, GET["alpine"], link.host, str(link.port))) == "HELLO"


def copied(keys: Path, into: Path, *names: str) -> Path:
    for name in names:
        shutil.copy(keys / name, into)
    return into


def refused(environ: dict[str, str], folder: Path) -> UsageError:
    """Give what connecting with the files of ``folder`` ends with."""
    with pytest.raises(UsageError) as caught:
        Engine.connect(environ=environment(environ["DOCKER_HOST"], folder))
    assert caught.value.cure
    return caught.value


def test_a_client_without_a_certificate(
    engine: Engine, environ: dict[str, str], keys: Path, tmp_path: Path
) -> None:
    error = refused(environ, copied(keys, tmp_path, "ca.pem"))
    assert "refuses a client without a certificate" in error.message
    assert "cert.pem and key.pem" in str(error.cure)


@pytest.mark.parametrize("expired", [True, False], ids=["expired", "of-an-unknown-authority"])
def test_a_client_that_the_engine_does_not_know(
    engine: Engine, environ: dict[str, str], keys: Path, tmp_path: Path, *, expired: bool
) -> None:
    by = keys if expired else authority(tmp_path / "other")
    folder = copied(keys, tmp_path, "ca.pem")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    signed(by, certificate, key, names="extendedKeyUsage=clientAuth", expired=expired)
    assert "refuses the client's certificate" in refused(environ, folder).message


def test_no_tls_where_the_engine_wants_it(engine: Engine, environ: dict[str, str]) -> None:
    with pytest.raises(PrerequisiteMissing) as caught:
        Engine.connect(environ={**environ, "DOCKER_TLS_VERIFY": ""})
    assert "DOCKER_TLS_VERIFY=1" in str(caught.value.cure)
