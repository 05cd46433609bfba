"""Digests of exchanges, to compare what arrived with what was saved as multisets."""

from __future__ import annotations

import hashlib
import json

from pydantic import JsonValue

from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.unicode import storable


def canonical(value: JsonValue) -> str:
    """Write a JSON value in the one form that equal values share, as it is stored."""
    return storable(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def digest(*, method: str, path: str, request: JsonValue, status_code: int) -> str:
    """Return the sha256 of one exchange: method, path with query, request body as JSON, status.

    A body that is empty or not JSON counts as the value that the exchange stores for it.
    """
    text = canonical([method.upper(), path, request, status_code])
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(exchange: Exchange) -> str:
    """Return the digest of a saved exchange."""
    return digest(
        method=exchange.method,
        path=exchange.path,
        request=exchange.request,
        status_code=exchange.status_code,
    )
