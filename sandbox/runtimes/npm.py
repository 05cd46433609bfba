"""npm tarballs: which npm to ask for the configuration, and the registry it names.

Only npm knows where its registry is when nobody configured one, and no address is written down
here. The host's npm is asked when there is one (it knows its own global configuration), otherwise
the pinned one. Bytes come over HTTP, so that a killed download resumes and shows how far it is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from sandbox.errors import FetchError, IntegrityError, NotServed, SandboxError
from sandbox.progress import Step
from sandbox.runtimes.client import run_client
from sandbox.runtimes.download import Http
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.npmrc import NpmSettings, read_settings

_ABBREVIATED = "application/vnd.npm.install-v1+json"


def npm_settings(pinned: Callable[[], tuple[str, ...]], *, env: Mapping[str, str]) -> NpmSettings:
    """Ask npm for its configuration.

    Args:
        pinned: gives the argv of the pinned npm, fetching it if need be; called only when PATH
            has no npm, or one that does not answer.
        env: the environment npm runs with, PATH included.
    """
    report = None
    if host := shutil.which("npm", path=env.get("PATH", "")):
        try:
            report = _report((host,), env)
        except SandboxError:
            report = None  # too old, or without its Node: the pinned one will do
    if report is None:
        report = _report(pinned(), env)
    return read_settings(report, env=env, project=Path.cwd())


def _report(argv: tuple[str, ...], env: Mapping[str, str]) -> dict[str, object]:
    code, out, errors = run_client([*argv, "config", "list", "--json"], env=env, deadline_s=60)
    try:
        report = json.loads(out)
    except ValueError:
        report = None
    if code or not isinstance(report, dict):
        raise FetchError(
            f"`npm config list --json` failed with exit code {code}: {errors[-500:]}",
            cure="correct the npm configuration (~/.npmrc, npm_config_* variables)",
        )
    return report


@dataclass(frozen=True)
class Dist:
    """What the registry says about one version: addresses to try, the hash, and what is published
    with it: registry signatures, attestations of provenance.
    """

    urls: tuple[str, ...]
    integrity: Integrity
    signed: bool = False
    attested: bool = False


class NpmRegistry:
    """The registries of an npm configuration; a context manager that closes its connections."""

    def __init__(self, settings: NpmSettings, http: Http) -> None:
        self._settings, self._http = settings, http
        self._packages: dict[str, dict[str, object]] = {}

    def dist(self, name: str, version: str) -> Dist:
        """Return where a version is and what it hashes to.

        Raises:
            FetchError: no registry, no package, no such version, or no usable hash.
        """
        registry = self._settings.registry_for(name)
        if name not in self._packages:
            url = registry + quote(name, safe="@")
            headers = {"Accept": _ABBREVIATED} | self._settings.headers_for(url)
            answer = self._http.json(url, headers, what=name)
            self._packages[name] = answer if isinstance(answer, dict) else {}
        try:
            said = self._packages[name]["versions"][version]["dist"]  # type: ignore[index]
            url, text = str(said["tarball"]), str(said["integrity"])
            integrity = Integrity.parse(text)
        except (KeyError, TypeError, ValueError) as error:
            raise NotServed(
                f"the registry has no {name} {version} with a sha512 integrity",
                cure="check the version in pins.toml, or use a registry that holds it",
            ) from error
        return Dist(
            _addresses(url, registry),
            integrity,
            signed=bool(said.get("signatures")),
            attested=bool(said.get("attestations")),
        )

    def download(
        self,
        name: str,
        version: str,
        partial: Path,
        *,
        integrity: Integrity | None,
        size: int | None,
        step: Step,
    ) -> tuple[Integrity, str, bool]:
        """Fetch a tarball into ``partial``; its hash is not checked here.

        Args:
            name: package name, scope included.
            version: exact version.
            partial: the file to write, or to go on with.
            integrity: the pinned hash; None while locking.
            size: the pinned size in bytes; None while locking.
            step: told the bytes as they come.

        Returns:
            The hash to check, the tarball's file name, and whether an earlier part was used.

        Raises:
            IntegrityError: the registry says another hash than the pinned one.
        """
        what = f"{name} {version}"
        dist = self.dist(name, version)
        if integrity and _comparable(dist.integrity, integrity):
            raise IntegrityError(
                f"{what}: the registry names {dist.integrity.text}, pinned is {integrity.text}",
                cure="nothing was fetched; suspect the mirror, or the pin",
            )
        resumed = self._first(dist.urls, partial, size=size, step=step, what=what)
        return dist.integrity, urlsplit(dist.urls[0]).path.rpartition("/")[2], resumed

    def download_known(
        self, name: str, file: str, partial: Path, *, size: int | None, step: Step
    ) -> bool:
        """Fetch a tarball from where registries keep them, ``<name>/-/<file>``, unasked.

        Returns:
            Whether it was there; a registry that keeps them elsewhere has to be asked.
        """
        url = f"{self._settings.registry_for(name)}{name}/-/{quote(file)}"
        headers = self._settings.headers_for(url)
        try:
            self._http.download(url, headers, partial, size=size, step=step, what=file)
        except FetchError as error:
            if error.retryable:
                raise
            return False
        return True

    def releases(self, name: str) -> dict[str, datetime | None]:
        """Return every version that the registry holds, with its time of publication.

        Raises:
            FetchError: no registry, or no such package.
        """
        url = self._settings.registry_for(name) + quote(name, safe="@")
        answer = self._http.json(url, self._settings.headers_for(url), what=name)
        said = answer if isinstance(answer, dict) else {}
        times = said.get("time", {})
        return {version: _time(times.get(version)) for version in said.get("versions", {})}

    def answers(self, name: str, *, timeout_s: float) -> None:
        """Ask the registry for a package once; ``FetchError`` when it does not answer."""
        url = self._settings.registry_for(name) + quote(name, safe="@")
        headers = {"Accept": _ABBREVIATED} | self._settings.headers_for(url)
        self._http.answers(url, headers, timeout_s=timeout_s)

    def _first(
        self, urls: tuple[str, ...], partial: Path, *, size: int | None, step: Step, what: str
    ) -> bool:
        failed: FetchError | None = None
        for url in urls:
            headers = self._settings.headers_for(url)
            try:
                return self._http.download(url, headers, partial, size=size, step=step, what=what)
            except FetchError as error:
                failed = failed or error
        raise failed or FetchError(f"{what}: no address")


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def _comparable(said: Integrity, pinned: Integrity) -> bool:
    return said.algorithm == pinned.algorithm and said.hexdigest != pinned.hexdigest


def _addresses(tarball: str, registry: str) -> tuple[str, ...]:
    """Prefer the configured registry's host: many mirrors pass on addresses of what they mirror."""
    parts, home = urlsplit(tarball), urlsplit(registry)
    if parts.netloc == home.netloc:
        return (tarball,)
    path = home.path.rstrip("/") + parts.path
    moved = urlunsplit((home.scheme, home.netloc, path, parts.query, ""))
    return (moved, tarball)
