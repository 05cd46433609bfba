"""The first octets of a real TLS client, as this Python's TLS library makes them."""

from __future__ import annotations

import ssl
from contextlib import suppress


def client_hello(name: str | None) -> bytes:
    """Return the ClientHello of a client that asks for ``name``; None: for none."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()
