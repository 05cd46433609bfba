"""One place that turns errors of the docker SDK, requests and Testcontainers into ours.

Classes come from the error's type and the engine's status code, and from which question was
asked; never from words in a command's output. A command that fails is no error here at all.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import docker.errors
import requests.exceptions
import urllib3.exceptions
from testcontainers.core.exceptions import ContainerConnectException, ContainerStartException

from sandbox.errors import ContainerGone, EngineFailure, NotFound, SandboxError, Unsupported

ENGINE_CURE = "check that the engine answers: docker version"
TRANSPORT = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
)
FOREIGN = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    ContainerStartException,
    ContainerConnectException,
    *TRANSPORT,
)


def translate(
    error: BaseException, doing: str, *, missing: type[EngineFailure] = NotFound
) -> SandboxError:
    """Give our error for ``error``, which was met while ``doing`` something.

    Args:
        error: what the SDK, requests or Testcontainers raised; one of ours is given back as is.
        doing: what was asked of the engine, as "start sandbox x", for the message.
        missing: what a 404 means for this question (``ContainerGone`` where only the container
            can be missing); a 409 means the same there, since the engine answers 409 for a
            container that is not running.
    """
    if isinstance(error, SandboxError):
        return error
    if isinstance(error, docker.errors.APIError) and error.status_code is not None:
        return _from_status(error, doing, missing)
    if isinstance(error, docker.errors.InvalidVersion):
        return Unsupported(f"cannot {doing}: {error}", cure="use a newer Docker engine")
    if isinstance(error, docker.errors.DockerException):
        return EngineFailure(f"cannot {doing}: {error}")
    if isinstance(error, TRANSPORT):
        return EngineFailure(
            f"the engine did not answer: cannot {doing}: {error}", cure=ENGINE_CURE
        )
    return EngineFailure(f"cannot {doing}: {type(error).__name__}: {error}")


def _from_status(
    error: docker.errors.APIError, doing: str, missing: type[EngineFailure]
) -> SandboxError:
    said = f"cannot {doing}: the engine says {error.status_code}: {error.explanation}"
    if isinstance(error, docker.errors.ImageNotFound):
        return NotFound(said, cure="build or load the image first: make images")
    if error.status_code == 404:
        return missing(said)
    if error.status_code == 409 and issubclass(missing, ContainerGone):
        return missing(said)
    if error.status_code == 501:
        return Unsupported(said)
    return EngineFailure(said)


def each(chunks: Iterable[bytes], doing: str) -> Iterator[bytes]:
    """Give the chunks of an engine's answer, with its errors translated; see ``translate``."""
    with engine_errors(doing):
        yield from chunks


@contextmanager
def engine_errors(doing: str, *, missing: type[EngineFailure] = NotFound) -> Iterator[None]:
    """Translate what the block raises; see ``translate``."""
    try:
        yield
    except FOREIGN as error:
        raise translate(error, doing, missing=missing) from error
