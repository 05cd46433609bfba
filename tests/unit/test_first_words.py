"""What a TCP client says first: TLS ClientHellos in any pieces, HTTP requests, anything else."""

from __future__ import annotations

import ssl
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox.engine.clienthello import Incomplete, NoClientHello, server_name
from sandbox.engine.firstwords import LONGEST, FirstWords, first_words
from tests.hello import client_hello

REAL = client_hello("api.example.test")


def records(message: bytes, *sizes: int) -> bytes:
    """Cut a handshake message into records of these sizes; the last one takes the rest."""
    stream = b""
    for size in (*sizes, len(message)):
        part, message = message[:size], message[size:]
        stream += b"\x16\x03\x01" + struct.pack("!H", len(part)) + part if part else b""
    return stream


def made(extensions: bytes | None) -> bytes:
    """A ClientHello message by hand; None: of the time before there were extensions."""
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    if extensions is not None:
        body += struct.pack("!H", len(extensions)) + extensions
    return b"\x01" + struct.pack("!I", len(body))[1:] + body


def extension(kind: int, body: bytes) -> bytes:
    return struct.pack("!HH", kind, len(body)) + body


def sni(*names: tuple[int, bytes]) -> bytes:
    listed = b"".join(bytes([kind]) + struct.pack("!H", len(name)) + name for kind, name in names)
    return extension(0, struct.pack("!H", len(listed)) + listed)


def test_the_name_in_a_clients_own_hello() -> None:
    assert server_name(REAL) == "api.example.test"
    assert server_name(REAL + b"what follows") == "api.example.test"
    assert server_name(client_hello(None)) is None


@pytest.mark.parametrize("cut", [(1,), (3,), (4,), (5, 1, 1), (40, 1), (100, 100)])
def test_a_hello_in_several_records(cut: tuple[int, ...]) -> None:
    assert server_name(records(REAL[5:], *cut)) == "api.example.test"


def test_every_piece_of_a_hello_may_become_one() -> None:
    for stream in (REAL, records(REAL[5:], 3, 50)):
        for size in range(len(stream)):
            with pytest.raises(Incomplete):
                server_name(stream[:size])


@pytest.mark.parametrize(
    ("extensions", "name"),
    [
        (None, None),
        (b"", None),
        (extension(16, b"\x00\x03\x02h2"), None),
        (extension(16, b"\x00\x03\x02h2") + sni((0, b"late.test")), "late.test"),
        (sni((7, b"other"), (0, b"second.test")), "second.test"),
        (sni((7, b"other")), None),
        (sni((0, b"")), None),
        (sni((0, b"\xff.test")), "\\xff.test"),
    ],
)
def test_extensions(extensions: bytes | None, name: str | None) -> None:
    assert server_name(records(made(extensions))) == name


@pytest.mark.parametrize(
    "stream",
    [
        b"\x17\x03\x01\x00\x01\x01",  # another kind of record
        b"\x16\x02\x01",  # another version
        b"\x16\x03\x01\x00\x00",  # an empty record
        b"\x16\x03\x01\xff\xff",  # one that is too long
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",  # a ServerHello
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",  # shorter than its parts
        records(made(sni((0, b"a.test"))[:-1])),  # a length beyond the end
        records(made(extension(0, b"\x00\x09\x00\x00\x01a"))),
        records(b"\x01" + struct.pack("!I", len(made(b"")) - 3)[1:] + made(b"")[4:] + b"\x00"),
    ],
)
def test_what_is_no_client_hello(stream: bytes) -> None:
    with pytest.raises(NoClientHello):
        server_name(stream)
    assert first_words(stream, ended=False) == FirstWords(None)


@pytest.mark.parametrize(
    ("request_", "host"),
    [
        ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "a.test"),
        ("GET / HTTP/1.1\r\nAccept: x\r\nhOST:  A.test:8080 \r\n\r\nbody", "a.test"),
        ("POST /x?y HTTP/1.0\n\n", None),
        ("GET http://b.test:80/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "b.test"),
        ("GET http://user@b.test/x HTTP/1.1\r\n\r\n", "b.test"),
        ("CONNECT c.test:443 HTTP/1.1\r\nHost: proxy.test\r\n\r\n", "c.test"),
        ("GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", "2001:db8::1"),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", None),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", None),
    ],
)
def test_requests(request_: str, host: str | None) -> None:
    said = request_.encode()
    assert first_words(said, ended=False) == FirstWords("http", host)
    head = said.index(b"\n\r\n" if b"\r" in said else b"\n\n") + 1
    for size in range(head):
        assert first_words(said[:size], ended=False) is None


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-x\r\n", b"\x00\x01", b"GET \x01 HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n", b"HELO"]
)
def test_other_protocols_are_named_by_nobody(said: bytes) -> None:
    assert first_words(said, ended=True) == FirstWords(None)


def test_who_ends_early_has_said_what_was_said() -> None:
    assert first_words(b"", ended=True) == FirstWords(None)
    assert first_words(REAL[:-1], ended=True) == FirstWords(None)
    cut = b"GET / HTTP/1.1\r\nHost: a.test\r\nAcc"
    assert first_words(cut, ended=True) == FirstWords("http", "a.test")


def test_nobody_is_listened_to_for_ever() -> None:
    endless = b"GET / HTTP/1.1\r\nX: " + b"a" * LONGEST
    assert first_words(endless, ended=False) == FirstWords("http", None)


@given(st.binary(max_size=400), st.booleans())
@example(b"\x16", False)
@example(b"\x16\x03\x01\x00\x01\x01" * 60, True)
def test_any_bytes_get_an_answer(said: bytes, ended: bool) -> None:
    words = first_words(said, ended=ended)
    assert words is not None or not ended


@given(st.integers(0, len(REAL) - 1), st.integers(0, 255))
def test_a_damaged_hello_never_breaks_the_listener(place: int, octet: int) -> None:
    damaged = REAL[:place] + bytes([octet]) + REAL[place + 1 :]
    words = first_words(damaged, ended=True)
    assert words is not None
    assert words.host is None or len(words.host) <= 255


def test_the_test_hello_is_a_hello_of_this_pythons_tls() -> None:
    assert ssl.HAS_SNI
    assert REAL[:1] == b"\x16"
