"""What the first octets of a TCP client say: which protocol it speaks, and to whom.

TLS by its ClientHello; HTTP by its request's head: the host is that of an absolute target, of a
CONNECT, or else the Host header (RFC 9112 3.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from sandbox.engine.clienthello import HANDSHAKE_RECORD, Incomplete, NoClientHello, server_name

LONGEST = 64 * 1024
"""Octets after which nothing more is waited for."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"  # RFC 9110 5.6.2
_METHOD = re.compile(rb"%s{0,20}$|%s{1,20} " % (_TOKEN, _TOKEN))
_REQUEST = re.compile(rb"(%s+) ([\x21-\x7e]+) HTTP/\d(?:\.\d)?" % _TOKEN)
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LONGEST_NAME = 255


@dataclass(frozen=True)
class FirstWords:
    """``protocol`` None: something else; ``host`` None: it names none."""

    protocol: Literal["tls", "http"] | None
    host: str | None = None


SILENT = FirstWords(None)


def first_words(data: bytes, *, ended: bool) -> FirstWords | None:
    """Tell what a client says; None: more octets are needed, and ``ended`` says none will come."""
    ended = ended or len(data) >= LONGEST
    if not data:
        return SILENT if ended else None
    return _tls(data, ended=ended) if data[0] == HANDSHAKE_RECORD else _http(data, ended=ended)


def _tls(data: bytes, *, ended: bool) -> FirstWords | None:
    try:
        return FirstWords("tls", _short(server_name(data)))
    except NoClientHello:
        return SILENT
    except Incomplete:
        return SILENT if ended else None


def _http(data: bytes, *, ended: bool) -> FirstWords | None:
    if not _METHOD.match(data):
        return SILENT
    head = _HEAD_END.split(data, maxsplit=1)
    if len(head) == 1 and not ended:
        return None
    first, *lines = head[0].splitlines()
    request = _REQUEST.fullmatch(first)
    if request is None:
        return SILENT
    method, target = request[1], request[2].decode("ascii")
    return FirstWords("http", _short(_target_host(method, target) or _header_host(lines)))


def _target_host(method: bytes, target: str) -> str | None:
    if method == b"CONNECT":
        return _without_port(target)
    try:
        return _without_port(urlsplit(target).netloc.rpartition("@")[2])
    except ValueError:
        return None


def _header_host(lines: list[bytes]) -> str | None:
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon and name.lower() == b"host":
            return _without_port(value.strip().decode("ascii", errors="backslashreplace"))
    return None


def _without_port(authority: str) -> str | None:
    return re.sub(r":\d*$", "", authority).strip("[]").lower() or None


def _short(host: str | None) -> str | None:
    return None if host is None else host[:_LONGEST_NAME]
