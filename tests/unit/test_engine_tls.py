"""TLS with an engine: what is wrong is told, and a connection whose one half has ended goes on."""

from __future__ import annotations

import select
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.output import Demultiplexer
from sandbox.engine.pump import Ending, Pump
from sandbox.engine.tls import context, settings
from sandbox.engine.tlsstream import TlsConnection
from sandbox.errors import PrerequisiteMissing, UsageError
from tests.contract.tls_engine import NEEDS_OPENSSL, authority, environment, signed

pytestmark = NEEDS_OPENSSL
PATIENCE_S = 20.0
Talk = Callable[[ssl.SSLSocket], None]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder of an authority, an engine's certificate, and one that has expired."""
    folder = authority(tmp_path_factory.mktemp("keys"))
    signed(folder, folder / "server.pem", folder / "server.key")
    signed(folder, folder / "old.pem", folder / "old.key", expired=True)
    signed(folder, folder / "else.pem", folder / "else.key", names="subjectAltName=DNS:other.test")
    return folder


@contextmanager
def serving(keys: Path, talk: Talk, name: str = "server") -> Iterator[tuple[str, int]]:
    """Shake hands with one client, and let ``talk`` do the rest."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        thread = threading.Thread(target=_serve, args=(port, keys, name, talk))
        thread.start()
        try:
            yield port.getsockname()[:2]
        finally:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def _serve(port: socket.socket, keys: Path, name: str, talk: Talk) -> None:
    serverside = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serverside.load_cert_chain(keys / f"{name}.pem", keys / f"{name}.key")
    port.settimeout(PATIENCE_S)
    sock, _ = port.accept()
    sock.settimeout(PATIENCE_S)
    with sock, suppress(OSError), serverside.wrap_socket(sock, server_side=True) as client:
        talk(client)


@contextmanager
def connected(keys: Path, talk: Talk) -> Iterator[TlsConnection]:
    with serving(keys, talk) as address:
        sock = socket.create_connection(address)
        made = TlsConnection(
            sock, context(verify=str(keys / "ca.pem"), certificate=None), "localhost"
        )
        with closing(made):
            made.shake_hands(time.monotonic() + PATIENCE_S)
            yield made


def heard(connection: TlsConnection, size: int) -> bytes:
    """Read to the end with a buffer of ``size``; wait only where a selector is to be waited for."""
    said, buffer = bytearray(), memoryview(bytearray(size))
    while (got := connection.receive_into(buffer)) != 0:
        said += buffer[: got or 0]
        if not connection.held:
            assert select.select([connection], [], [], PATIENCE_S)[0], "bytes were left lying"
    return bytes(said)


def say_much_after_the_others_end(client: ssl.SSLSocket) -> None:
    size = 0
    while data := client.recv(1 << 16):
        size += len(data)
    client.sendall(b"%d\n" % size + bytes(1_000_000))
    client.unwrap()


@pytest.mark.parametrize("size", [999, 1 << 18])
def test_what_is_said_after_this_sides_end_is_heard(keys: Path, size: int) -> None:
    with connected(keys, say_much_after_the_others_end) as connection:
        data = memoryview(bytes(1_000_000))
        while data:
            sent = connection.send(data)
            data = data[sent:]
            if not sent:
                select.select([], [connection], [], PATIENCE_S)
        connection.close_write()
        assert heard(connection, size) == b"1000000\n" + bytes(1_000_000)


def test_what_came_before_this_sides_end_is_heard(keys: Path) -> None:
    told = threading.Event()

    def talk(client: ssl.SSLSocket) -> None:
        client.sendall(b"before ")
        told.set()
        assert client.recv(1) == b""
        client.sendall(b"after")
        client.unwrap()

    with connected(keys, talk) as connection:
        assert told.wait(PATIENCE_S)
        select.select([connection], [], [], PATIENCE_S)
        connection.close_write()
        assert heard(connection, 4096) == b"before after"


def test_an_end_that_comes_with_the_last_words_is_not_missed(keys: Path) -> None:
    def talk(client: ssl.SSLSocket) -> None:
        client.settimeout(3 * PATIENCE_S)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        client.sendall(b"last words")
        client.unwrap()  # as engines do: the socket stays open, no other end follows

    with connected(keys, talk) as connection:
        assert heard(connection, 4096) == b"last words"


def test_a_connection_that_is_cut_is_no_end(keys: Path) -> None:
    def talk(client: ssl.SSLSocket) -> None:
        client.sendall(b"half")
        socket.socket(fileno=client.detach()).close()  # without TLS's word for the end

    with connected(keys, talk) as connection, pytest.raises(ConnectionResetError):
        heard(connection, 4096)


def test_the_pump_takes_all_of_a_burst(keys: Path) -> None:
    frame = b"\x01\0\0\0" + (300_000).to_bytes(4, "big") + bytes(300_000)

    def talk(client: ssl.SSLSocket) -> None:
        client.sendall(frame)
        client.recv(1)  # nothing more comes until this side has it all
        client.unwrap()

    out = bytearray()
    with connected(keys, talk) as connection:
        whole = Pump(
            connection,
            Demultiplexer(stdout=out.extend, stderr=out.extend),
            None,
            complete=lambda: len(out) == 300_000,
        )
        assert whole.run(time.monotonic() + PATIENCE_S) is Ending.FINISHED


def refused(keys: Path, folder: Path, name: str = "server") -> UsageError:
    with (
        serving(keys, lambda client: None, name) as (host, port),
        pytest.raises(UsageError) as caught,
    ):
        Engine.connect(environ=environment(f"tcp://{host}:{port}", folder))
    assert caught.value.exit_code == 2
    assert caught.value.cure
    return caught.value


@pytest.mark.parametrize(
    ("name", "said"), [("old", "has expired"), ("else", "is for another address")]
)
def test_an_engine_whose_certificate_is_not_valid(keys: Path, name: str, said: str) -> None:
    assert said in refused(keys, keys_of_client(keys), name).message


def keys_of_client(keys: Path) -> Path:
    folder = keys / "client"
    folder.mkdir(exist_ok=True)
    shutil.copy(keys / "ca.pem", folder)
    return folder


def test_an_engine_of_another_authority(keys: Path, tmp_path: Path) -> None:
    error = refused(keys, authority(tmp_path))
    assert "is not signed by the authority in ca.pem" in error.message
    assert "DOCKER_CERT_PATH" in str(error.cure)


def test_a_port_without_tls(keys: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:

        def answer() -> None:
            client, _ = port.accept()
            with client:
                client.recv(4096)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        address = "tcp://{}:{}".format(*port.getsockname())
        with pytest.raises(UsageError, match="does not speak TLS"):
            Engine.connect(environ=environment(address, keys_of_client(keys)))
        thread.join(PATIENCE_S)


def test_files_that_are_missing_or_none(keys: Path, tmp_path: Path) -> None:
    def asked() -> UsageError:
        with pytest.raises(UsageError) as caught:
            Engine.connect(environ=environment("tcp://127.0.0.1:1", tmp_path))
        assert caught.value.cure
        return caught.value

    assert f"there is no {tmp_path}/ca.pem" in asked().message
    shutil.copy(keys / "ca.pem", tmp_path)
    shutil.copy(keys / "server.pem", tmp_path / "cert.pem")
    assert f"there is no {tmp_path}/key.pem" in asked().message
    shutil.copy(keys / "ca.key", tmp_path / "key.pem")
    assert "cannot be used for TLS" in asked().message
    shutil.copy(keys / "server.key", tmp_path / "key.pem")
    with pytest.raises(PrerequisiteMissing, match="by TLS at tcp://127.0.0.1:1"):
        Engine.connect(environ=environment("tcp://127.0.0.1:1", tmp_path))


def test_the_variables_are_the_docker_clis(keys: Path) -> None:
    folder = str(keys_of_client(keys))
    tcp = "tcp://127.0.0.1:2376"
    assert settings(tcp, {"DOCKER_CERT_PATH": folder}) is None
    assert settings("unix:///sock", {"DOCKER_TLS_VERIFY": "1"}) is None
    assert settings(tcp, {"DOCKER_TLS_VERIFY": ""}) is None
    unseen = settings(tcp, {"DOCKER_TLS": "1", "DOCKER_CONFIG": folder})
    assert unseen is not None
    assert (unseen.verify, unseen.ca_cert, unseen.cert) == (False, None, None)
    seen = settings(tcp, {"DOCKER_TLS_VERIFY": "1", "DOCKER_CONFIG": folder})
    assert seen is not None
    assert (seen.verify, seen.ca_cert) == (True, f"{folder}/ca.pem")


def test_no_other_variable_changes_whom_the_engine_is_signed_by(keys: Path) -> None:
    class Session:
        trust_env = True
        verify: object = None
        cert: object = None

    session = Session()
    found = settings(
        "tcp://x:1", {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(keys_of_client(keys))}
    )
    assert found is not None
    found.configure_client(session)
    assert (session.trust_env, session.verify) == (False, f"{keys}/client/ca.pem")
