"""Which server a TLS client wants to talk to, read from the first octets that it sends.

Formats: records as of RFC 8446 5.1, the handshake message around a ClientHello 4 and 4.1.2 (the
same since TLS 1.0), the extension ``server_name`` RFC 6066 3. A ClientHello may be cut into several
records, and a record may come in any pieces. With encrypted ClientHello the name is the outer one.
"""

from __future__ import annotations

HANDSHAKE_RECORD = 22
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_HOST_NAME = 0
_MAX_RECORD = 1 << 14
_RANDOM = 32


class Incomplete(Exception):
    """What is there so far may be the beginning of a ClientHello."""


class NoClientHello(Exception):
    """These octets are not what a TLS client sends first."""


def server_name(stream: bytes) -> str | None:
    """Return the host name that a ClientHello at the start of ``stream`` asks for; None: none.

    Raises:
        Incomplete: more octets are needed.
        NoClientHello: whatever comes next, this is none.
    """
    hello = _Reader(_message(stream))
    hello.take(2 + _RANDOM)  # the version of old, random
    hello.vector(1)  # session id
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression methods
    if not hello.left:
        return None  # before extensions were invented
    extensions = _Reader(hello.vector(2))
    if hello.left:
        raise NoClientHello("octets after the extensions")
    while extensions.left:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            return _host_name(body)
    return None


def _message(stream: bytes) -> bytes:
    """Bring the handshake message together from its records."""
    message = b""
    rest = stream
    while (size := _size(message)) is None or len(message) < size:
        if rest[:1] not in (b"", bytes([HANDSHAKE_RECORD])) or rest[1:2] not in (b"", b"\x03"):
            raise NoClientHello("no handshake record")
        if len(rest) < 5:
            raise Incomplete
        length = int.from_bytes(rest[3:5])
        if not 0 < length <= _MAX_RECORD:
            raise NoClientHello(f"a record of {length} octets")
        message += rest[5 : 5 + length]
        if message[:1] not in (b"", bytes([_CLIENT_HELLO])):
            raise NoClientHello("another handshake message")
        if len(rest) < 5 + length and ((size := _size(message)) is None or len(message) < size):
            raise Incomplete
        rest = rest[5 + length :]
    return message[4:size]


def _size(message: bytes) -> int | None:
    """Tell how long the message is with its head; None: its head is not there yet."""
    return 4 + int.from_bytes(message[1:4]) if len(message) >= 4 else None


def _host_name(body: bytes) -> str | None:
    names = _Reader(_Reader(body).vector(2))
    while names.left:
        kind, name = names.number(1), names.vector(2)
        if kind == _HOST_NAME:
            return name.decode("ascii", errors="backslashreplace") or None
    return None


class _Reader:
    """Takes numbers and vectors (a length, then as many octets) off the front."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, size: int) -> bytes:
        if len(self.left) < size:
            raise NoClientHello("a length goes beyond the message")
        taken, self.left = self.left[:size], self.left[size:]
        return taken

    def number(self, octets: int) -> int:
        return int.from_bytes(self.take(octets))

    def vector(self, octets: int) -> bytes:
        return self.take(self.number(octets))
