"""A second engine that listens on TCP with TLS, and the certificates for it.

The engine runs in a network namespace of its own, as every second engine; its listening socket is
one of this process on loopback that it is handed, as systemd does it (sd_listen_fds(3)).
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.second_engine import second_engine

NEEDS_OPENSSL = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl, which makes certificates, is not installed"
)
START = (
    "ip link set lo up; export LISTEN_FDS=1 LISTEN_PID=$$; exec dockerd --data-root $1/data "
    "--exec-root $1/exec --pidfile $1/pid -H fd:// "
    "--tlsverify --tlscacert $2/ca.pem --tlscert $2/server.pem --tlskey $2/server.key "
    "3<&0 </dev/null"
)
UNSHARED = ("unshare", "--net", "sh", "-c")
NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def authority(folder: Path) -> Path:
    """Make an authority of the names ``ca.pem`` and ``ca.key``."""
    folder.mkdir(parents=True, exist_ok=True)
    files = ("-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    openssl("req", "-x509", *KEY, *files, "-days", "2", "-subj", "/CN=authority")
    return folder


def signed(
    by: Path, certificate: Path, key: Path, *, names: str = NAMES, expired: bool = False
) -> None:
    """Let an authority sign a certificate with these names."""
    request, extra = certificate.with_suffix(".csr"), certificate.with_suffix(".ext")
    extra.write_text(names + "\n")
    openssl("req", *KEY, "-keyout", key, "-out", request, "-subj", "/CN=x")
    ca = ("-CA", by / "ca.pem", "-CAkey", by / "ca.key", "-CAcreateserial")
    days = ("-days", "-1" if expired else "2")
    openssl("x509", "-req", "-in", request, "-out", certificate, "-extfile", extra, *ca, *days)


@contextmanager
def tls_engine(folder: Path) -> Iterator[str]:
    """Run an engine whose port wants a client's certificate; give its address.

    In ``folder`` are then ``ca.pem``, ``cert.pem`` and ``key.pem`` for its clients.
    """
    authority(folder)
    signed(folder, folder / "server.pem", folder / "server.key")
    signed(folder, folder / "cert.pem", folder / "key.pem", names="extendedKeyUsage=clientAuth")
    with second_engine() as daemon, socket.create_server(("127.0.0.1", 0), backlog=64) as port:
        root = daemon.state.parent
        with (root / "log").open("wb") as log:
            service = subprocess.Popen(
                [*UNSHARED, START, "sh", str(root), str(folder)], stdin=port, stdout=log, stderr=log
            )
        try:
            yield f"tcp://127.0.0.1:{port.getsockname()[1]}"
        finally:
            service.terminate()
            service.wait(30)


def environment(address: str, folder: Path) -> dict[str, str]:
    """Give the variables by which the docker CLI, and we, reach it."""
    return {"DOCKER_HOST": address, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(folder)}
