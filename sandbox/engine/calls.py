"""Counts what is asked of an engine: one HTTP request each, by method and kind of path.

Paths: the Docker Engine API (``/v1.41/containers/{id}/json`` and the like). Ids and names are left
out, so that the counts of two cells can be compared.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from sandbox.engine.client import Engine

_VERSION = re.compile(r"^/v\d+\.\d+(?=/)")
_OBJECT = re.compile(r"^/(containers|exec|networks|volumes)/(?!create$|json$|prune$)[^/]+")
_IMAGE = re.compile(r"^/images/(?!create$|json$|load$|prune$|get$).+(?=/(?:json|history|tag|get)$)")


class EngineCalls:
    """The requests that one engine answered while they were counted; threads may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()

    def add(self, method: str, url: str, seconds: float) -> None:
        """Count one answered request; ``seconds`` is from its sending to the answer's header."""
        kind = call_kind(method, url)
        with self._lock:
            self._counts[kind] += 1
            self._seconds[kind] += seconds  # type: ignore[assignment]  # a Counter adds floats too

    @property
    def counts(self) -> Mapping[str, int]:
        """How many there were of each kind, by name."""
        with self._lock:
            return dict(sorted(self._counts.items()))

    @property
    def seconds(self) -> Mapping[str, float]:
        """How long all calls of a kind took together, by name."""
        with self._lock:
            return {kind: float(spent) for kind, spent in sorted(self._seconds.items())}


def call_kind(method: str, url: str) -> str:
    """Name a request by its method and its path without version, id and query.

    ``POST http+docker://localhost/v1.41/containers/3f2a/start?t=1`` is
    ``POST /containers/{id}/start``.
    """
    path = _VERSION.sub("", urlsplit(url).path)
    path = _OBJECT.sub(r"/\1/{id}", path)
    return f"{method} {_IMAGE.sub('/images/{name}', path)}"


@contextmanager
def counted_calls(engine: Engine) -> Iterator[EngineCalls]:
    """Count what ``engine`` is asked from now on until the end, by all threads."""
    calls = EngineCalls()
    hooks = engine.sdk.api.hooks["response"]

    def answered(response: Any, *_: object, **__: object) -> None:
        asked = response.request
        calls.add(asked.method, asked.url, response.elapsed.total_seconds())

    hooks.append(answered)
    try:
        yield calls
    finally:
        hooks.remove(answered)
