"""Ask a registry through the engine: pull an image, tell which digest a name has.

The engine's own configuration counts: its proxies, mirrors and trusted registries, and the
credentials in the Docker client's configuration (DOCKER_CONFIG).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import docker.errors

from sandbox.engine.client import Engine
from sandbox.engine.failure import TRANSPORT, translate
from sandbox.errors import FetchError, IntegrityError, UsageError

_NAME = re.compile(
    r"(?P<name>[a-zA-Z0-9][a-zA-Z0-9.-]*(:[0-9]+(?=/))?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*)"
    r"(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_REFUSED = {401, 403, 404}  # the registry answered: it does not have it, or not for us
# Docker gives status 500 and these words of the registry for a wrong or missing password.
_DENIED = ("no basic auth credentials", "unauthorized:", "denied:")
# What the engine (not a registry) says of bytes that are not what their digest says.
_OTHER_BYTES = "verification failed for digest"
_LOGIN = "docker login REGISTRY, as the user who runs this"


def split_reference(reference: str) -> tuple[str, str | None, str | None]:
    """Split ``name[:tag][@sha256:digest]`` (grammar: distribution/reference).

    Raises:
        UsageError: it is no reference.
    """
    found = _NAME.fullmatch(reference)
    if found is None:
        raise UsageError(
            f"{reference!r} is no image reference",
            cure="write name:tag, name@sha256:<64 digits>, or registry/name:tag",
        )
    return found["name"], found["tag"], found["digest"]


def pull(engine: Engine, reference: str, *, what: str) -> None:
    """Pull an image by its name, with tag or digest; the digest counts where there are both.

    Args:
        engine: it pulls.
        reference: see ``split_reference``; without tag and digest the tag is "latest".
        what: whose image it is, for the messages.

    Raises:
        FetchError: the registry does not answer (``retryable``), or refuses (not ``retryable``).
        IntegrityError: it gives bytes that are not what the digest says.
    """
    name, tag, digest = split_reference(reference)
    doing = f"pull {reference}"
    with _registry_errors(doing, what):
        for event in engine.sdk.api.pull(
            name, tag=digest or tag or "latest", stream=True, decode=True
        ):
            if "error" in event:
                raise _told(str(event["error"]), doing, what)


def digest_of(engine: Engine, reference: str, *, what: str) -> str:
    """Ask the registry which digest (of a manifest or an index) the name has now.

    Raises:
        FetchError: see ``pull``.
    """
    doing = f"ask for the digest of {reference}"
    with _registry_errors(doing, what):
        said: Any = engine.sdk.api.inspect_distribution(reference)
        return str(said["Descriptor"]["digest"])


def _told(said: str, doing: str, what: str) -> Exception:
    if _OTHER_BYTES in said:
        return IntegrityError(
            f"{what}: cannot {doing}: {said}",
            cure="the registry or a proxy on the way serves other bytes: do not use them",
        )
    denied = _is_denied(said)
    return FetchError(
        f"{what}: cannot {doing}: {said}", cure=_LOGIN if denied else None, retryable=not denied
    )


def _is_denied(said: str) -> bool:
    return any(word in said for word in _DENIED)


@contextmanager
def _registry_errors(doing: str, what: str) -> Iterator[None]:
    try:
        yield
    except docker.errors.APIError as error:
        denied = _is_denied(str(error))
        refused = denied or error.status_code in _REFUSED
        raise FetchError(
            f"{what}: {translate(error, doing)}",
            cure=_LOGIN if denied else None,
            retryable=not refused,
        ) from error
    except TRANSPORT as error:
        raise translate(error, doing) from error
