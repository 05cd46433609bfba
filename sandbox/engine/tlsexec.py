"""Asks an engine behind TLS by hand: once who it is, and for each exec the connection itself.

The request is the engine API's "Exec start" with "Upgrade: tcp"; what follows the answer's header
is the command's streams. The SDK cannot give this connection: see ``tlsstream``.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import docker.utils
import requests
from docker.tls import TLSConfig

from sandbox.engine.tls import DEFAULT_PORT, context, context_of, explain
from sandbox.engine.tlsstream import TlsConnection

MAX_HEADER = 64 * 1024
_END = b"\r\n\r\n"
_FIRST_ERROR = 400


def greet(place: str, config: TLSConfig, timeout_s: float) -> None:
    """Shake hands with the engine at ``place`` and hear it once, to tell what is wrong if it is.

    With TLS 1.3 an engine tells only after the handshake that it refuses the client.

    Raises:
        UsageError: certificates, key or address are not those of this engine.
        PrerequisiteMissing: nothing answers there.
    """
    until = time.monotonic() + timeout_s
    address = str(docker.utils.parse_host(place, tls=True))
    keys = context(
        verify=(config.ca_cert or True) if config.verify else False, certificate=config.cert
    )
    try:
        with closing(_open(address, keys, until)) as connection:
            connection.say(_request("GET", "/_ping", address), until)
            connection.hear(until)
    except OSError as error:
        raise explain(error, place, has_certificate=config.cert is not None) from error


def start_exec(api: Any, exec_id: str) -> TlsConnection:
    """Start exec ``exec_id`` on a connection of its own.

    Raises what the SDK raises, and ``OSError`` where there is no connection.
    """
    until = time.monotonic() + api.timeout
    url = api._url("/exec/{0}/start", exec_id)  # noqa: SLF001 - with the version of the API
    connection = _open(api.base_url, context_of(api), until)
    try:
        body = json.dumps({"Detach": False, "Tty": False}).encode()
        asked = _request("POST", urlsplit(url).path, api.base_url, body, Upgrade="tcp")
        connection.say(asked, until)
        header, rest = _header(connection, until)
        status = int(header.split(None, 2)[1])
        if status >= _FIRST_ERROR:
            answer = _refusal(connection, header, rest, until)
            answer.status_code, answer.url = status, url
            api._raise_for_status(answer)  # noqa: SLF001 - gives each status its class
        connection.unhear(rest)
    except BaseException:
        connection.close()
        raise
    return connection


def _open(place: str, keys: ssl.SSLContext, until: float) -> TlsConnection:
    where = urlsplit(place)
    name = where.hostname or "localhost"
    left = max(0.001, until - time.monotonic())
    sock = socket.create_connection((name, where.port or DEFAULT_PORT), timeout=left)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = TlsConnection(sock, keys, name)
        connection.shake_hands(until)
    except BaseException:
        sock.close()
        raise
    return connection


def _request(method: str, path: str, place: str, body: bytes = b"", **headers: str) -> bytes:
    if headers:
        headers["Connection"] = "Upgrade"
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {urlsplit(place).netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + _END + body


def _header(connection: TlsConnection, until: float) -> tuple[bytes, bytes]:
    """Read the answer's header; give what came behind it too."""
    said = b""
    while _END not in said:
        more = connection.hear(until)
        if not more or len(said) > MAX_HEADER:
            raise http.client.BadStatusLine(said[:80].decode(errors="replace"))
        said += more
    header, _, rest = said.partition(_END)
    return header, rest


def _refusal(
    connection: TlsConnection, header: bytes, body: bytes, until: float
) -> requests.Response:
    """Read the rest of an answer that is none to go on with, as the SDK wants it."""
    _, _, fields = header.partition(b"\r\n")
    headers = http.client.parse_headers(io.BytesIO(fields + _END))
    while len(body) < min(int(headers.get("Content-Length", 0)), MAX_HEADER):
        more = connection.hear(until)
        if not more:
            break
        body += more
    answer = requests.Response()
    answer.raw = io.BytesIO(body)
    answer.headers.update(headers.items())
    return answer
