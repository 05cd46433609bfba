"""HTTP for registries: small JSON answers, and files that resume where a killed process stopped.

The only module of this room that knows httpx. Every failure is a ``FetchError`` that says whether
asking again may help; only those are asked again.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from sandbox.cache import writable
from sandbox.errors import FetchError, IntegrityError, NotServed
from sandbox.progress import Step

_TIMEOUT = httpx.Timeout(60, connect=15)
_METADATA_LIMIT = 64 << 20

Sleep = Callable[[float], None]


@dataclass(frozen=True)
class Access:
    """How the client's own configuration says registries are reached.

    Attributes:
        proxies: httpx mount pattern (``https://``) to proxy address; None: reached directly.
        ca_files: PEM files trusted besides the usual ones.
        ca_text: PEM text trusted besides the usual ones.
        verify: False only when the client's configuration switched certificate checks off.
    """

    proxies: Mapping[str, str | None] = field(default_factory=dict)
    ca_files: tuple[str, ...] = ()
    ca_text: str = ""
    verify: bool = True

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context with all of them; ``FetchError`` names a file that cannot be read."""
        context = httpx.create_ssl_context(verify=self.verify)
        for file in self.ca_files:
            try:
                context.load_verify_locations(cafile=file)
            except (OSError, ssl.SSLError) as error:
                raise FetchError(
                    f"cannot read the CA file {file}: {error}",
                    cure="correct cafile in the npm configuration, or NODE_EXTRA_CA_CERTS",
                ) from error
        if self.ca_text:
            context.load_verify_locations(cadata=self.ca_text)
        return context


def asked_again(*, sleep: Sleep = time.sleep, attempts: int = 5) -> Retrying:
    """Return the retry policy of this room: retryable fetch errors, growing random waits."""
    return Retrying(
        retry=retry_if_exception(lambda e: isinstance(e, FetchError) and e.retryable),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.5, max=15),
        sleep=sleep,
        reraise=True,
    )


class Http:
    """A connection pool to registries; a context manager.

    Args:
        access: proxies and certificates.
        sleep: how to wait between attempts.
        attempts: how often a retryable failure is asked again, the first time included.
    """

    def __init__(
        self, access: Access | None = None, *, sleep: Sleep = time.sleep, attempts: int = 5
    ) -> None:
        access = access or Access()
        context = access.ssl_context()
        mounts = {
            pattern: httpx.HTTPTransport(verify=context, proxy=proxy)
            for pattern, proxy in access.proxies.items()
        }
        self._client = httpx.Client(
            verify=context, mounts=mounts, timeout=_TIMEOUT, follow_redirects=True
        )
        self._retrying = asked_again(sleep=sleep, attempts=attempts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the pool."""
        self._client.close()

    def json(self, url: str, headers: Mapping[str, str], *, what: str) -> Any:
        """Return the JSON that ``url`` answers with.

        Raises:
            FetchError: no answer, an error status, or no JSON.
        """
        return self._retrying.copy()(self._json, url, headers, what)

    def answers(self, url: str, headers: Mapping[str, str], *, timeout_s: float) -> None:
        """Ask once, with a short time-out, and raise ``FetchError`` when nothing useful answers."""
        with _translated("the registry"):
            response = self._client.get(url, headers=headers, timeout=timeout_s)
        if response.status_code >= 500 or response.status_code in {401, 403, 407}:
            raise _status(response, "the registry")

    def _json(self, url: str, headers: Mapping[str, str], what: str) -> Any:
        body = bytearray()
        with _translated(what), self._client.stream("GET", url, headers=headers) as response:
            if response.status_code != 200:
                raise _status(response, what)
            for block in response.iter_bytes():
                body += block
                if len(body) > _METADATA_LIMIT:
                    raise FetchError(f"{what}: the registry's answer has no end")
        try:
            return json.loads(body)
        except ValueError as error:
            raise FetchError(
                f"{what}: the registry did not answer with JSON", cure=_MIRROR
            ) from error

    def download(
        self,
        url: str,
        headers: Mapping[str, str],
        partial: Path,
        *,
        size: int | None,
        step: Step,
        what: str,
        deadline_s: float = 1800,
    ) -> bool:
        """Bring ``url`` to the file ``partial``, going on where that file ends.

        Returns:
            Whether bytes of an earlier process are part of it: a wrong hash may be theirs.

        Raises:
            FetchError: it could not be read to its end; what came is kept for the next time.
            IntegrityError: more bytes came than ``size`` (bytes); the file is removed.
        """
        resumed = partial.exists()
        deadline = time.monotonic() + deadline_s
        with writable(partial):
            counted = _Counted(step, size)
            one = _Download(self._client, url, dict(headers), partial, size, what, deadline)
            self._retrying.copy()(one.attempt, counted)
        return resumed


class _Counted:
    """Tells a step how far the file is; it may go back when a server cannot resume."""

    def __init__(self, step: Step, size: int | None) -> None:
        self._step, self._at = step, 0
        if size:
            step.total(size)

    def at(self, position: int) -> None:
        self._step.advance(position - self._at)
        self._at = position


@dataclass(frozen=True)
class _Download:
    client: httpx.Client
    url: str
    headers: dict[str, str]
    partial: Path
    size: int | None
    what: str
    deadline: float

    def attempt(self, counted: _Counted) -> None:
        have = self.partial.stat().st_size if self.partial.exists() else 0
        if self.size is not None and have == self.size:
            counted.at(have)
            return
        if self.size is None or have > self.size:
            self.partial.unlink(missing_ok=True)
            have = 0
        headers = self.headers | {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with (
            _translated(self.what),
            self.client.stream("GET", self.url, headers=headers) as response,
        ):
            have = self._start(response, have)
            with self.partial.open("ab" if have else "wb") as out:
                for block in response.iter_raw():  # as they come: what came is kept
                    out.write(block)
                    have += len(block)
                    counted.at(have)
                    self._check(have)
        if self.size is not None and have < self.size:
            raise FetchError(
                f"{self.what}: the download ended after {have} of {self.size} bytes",
                cure=_MIRROR,
                retryable=True,
            )

    def _start(self, response: httpx.Response, have: int) -> int:
        status = response.status_code
        resumes = response.headers.get("content-range", "").startswith(f"bytes {have}-")
        if status == 206 and resumes:
            return have
        if status in {206, 416}:  # another part than asked for, or none
            self.partial.unlink(missing_ok=True)
            raise FetchError(f"{self.what}: cannot resume at {have}", cure=_MIRROR, retryable=True)
        if status != 200:
            raise _status(response, self.what)
        offered = response.headers.get("content-length", "")
        if self.size is not None and offered.isdigit() and int(offered) != self.size:
            raise IntegrityError(
                f"{self.what}: the registry offers {offered} bytes, pinned are {self.size}",
                cure=_MIRROR,
            )
        return 0

    def _check(self, have: int) -> None:
        if self.size is not None and have > self.size:
            self.partial.unlink(missing_ok=True)
            raise IntegrityError(
                f"{self.what}: more than the pinned {self.size} bytes arrive", cure=_MIRROR
            )
        if time.monotonic() > self.deadline:
            raise FetchError(f"{self.what}: too slow, stopped after {have} bytes", cure=_MIRROR)


_MIRROR = "check the network, the registry or mirror address and the proxy that npm is set up with"


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise FetchError(
                f"{what}: the registry's certificate is not trusted: {error}",
                cure="name your CA: `npm config set cafile FILE`, or NODE_EXTRA_CA_CERTS",
            ) from error
        retryable = not isinstance(error, (httpx.UnsupportedProtocol, httpx.ProxyError))
        reason = f"{type(error).__name__}: {error}"
        raise FetchError(f"{what}: {reason}", cure=_MIRROR, retryable=retryable) from error
    except (httpx.InvalidURL, httpx.TooManyRedirects) as error:
        raise FetchError(f"{what}: {error}", cure=_MIRROR) from error


def _status(response: httpx.Response, what: str) -> FetchError:
    status = response.status_code
    where = f"{response.request.url.host} answers {status} for {response.request.url.path}"
    if status in {401, 403, 407}:
        return FetchError(
            f"{what}: {where}", cure="log in to that registry or proxy in the npm configuration"
        )
    if status in {404, 405, 410}:
        return NotServed(f"{what}: {where}", cure="the registry does not hold it: use another one")
    retryable = status >= 500 or status in {408, 425, 429}
    return FetchError(f"{what}: {where}", cure=_MIRROR, retryable=retryable)
