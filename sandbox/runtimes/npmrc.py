"""npm's configuration, as npm reports it, plus the credentials that it does not report.

`npm config list --json` answers with registry, scopes, proxies and certificates after npm has
merged its files and variables, but hides every ``//host/path/:key``. Those are read here from the
same files (format: `npm help npmrc`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sandbox.errors import UsageError
from sandbox.runtimes.download import Access


class _Report(BaseModel):
    """The keys of npm's report that matter here; it has about 150 others."""

    model_config = ConfigDict(frozen=True, extra="allow")

    registry: str
    proxy: str | bool | None = None
    https_proxy: str | bool | None = Field(default=None, alias="https-proxy")
    noproxy: tuple[str, ...] = ()
    cafile: str | None = None
    ca: tuple[str, ...] = ()
    strict_ssl: bool = Field(default=True, alias="strict-ssl")
    userconfig: str | None = None
    globalconfig: str | None = None

    @field_validator("noproxy", "ca", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if value is None:
            return ()
        return (value,) if isinstance(value, str) else value


@dataclass(frozen=True)
class NpmSettings:
    """Where packages come from and how to get there.

    Attributes:
        registry: address for names without a scope of their own, ending in "/".
        scopes: ``@scope`` to registry address.
        credentials: ``//host/path/`` to the Authorization header for addresses below it.
        access: proxies and certificates.
    """

    registry: str
    scopes: Mapping[str, str]
    credentials: Mapping[str, str]
    access: Access

    def registry_for(self, name: str) -> str:
        """Return the registry address for a package, ending in "/"."""
        scope = name.partition("/")[0] if name.startswith("@") else ""
        return self.scopes.get(scope, self.registry)

    def headers_for(self, url: str) -> dict[str, str]:
        """Return the headers that prove who asks; none for a place no credential is for."""
        for address in (url, self.registry):
            if urlsplit(address).netloc != urlsplit(url).netloc:
                continue
            _, _, place = address.partition(":")
            for known in sorted(self.credentials, key=len, reverse=True):
                if place.startswith(known):
                    return {"Authorization": self.credentials[known]}
        return {}


def read_settings(
    report: Mapping[str, object], *, env: Mapping[str, str], project: Path | None = None
) -> NpmSettings:
    """Join npm's report with the credentials in its files and variables.

    Args:
        report: what `npm config list --json` printed.
        env: the environment npm was run with.
        project: the folder whose ``.npmrc`` counts, if any.
    """
    try:
        said = _Report.model_validate(report)
    except ValidationError as error:
        raise UsageError(
            f"npm reports a configuration that cannot be used: {error}",
            cure="see `npm config list`",
        ) from error
    files = [said.globalconfig, said.userconfig, project and str(project / ".npmrc")]
    secrets = _secrets([Path(file) for file in files if file], env)
    scopes = {
        key.removesuffix(":registry"): _slash(str(value))
        for key, value in report.items()
        if key.startswith("@") and key.endswith(":registry")
    }
    return NpmSettings(
        registry=_slash(said.registry),
        scopes=scopes,
        credentials=_credentials(secrets),
        access=_access(said, env),
    )


def parse_npmrc(text: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the ``key = value`` lines of an npmrc, with ``${NAME}`` and ``${NAME?}`` filled in."""
    values: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith(("#", ";", "[")) or "=" not in line:
            continue
        key, _, value = line.partition("=")
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        values[_filled(key.strip(), env)] = _filled(value, env)
    return values


def _filled(text: str, env: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        missing = "" if match[2] else match[0]
        return env.get(match[1], missing)

    return re.sub(r"\$\{([^}?]+)(\?)?\}", fill, text)


def _secrets(files: Iterable[Path], env: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for file in files:
        if file.is_file():
            values |= parse_npmrc(file.read_text("utf-8", errors="replace"), env)
    for key, value in env.items():
        if key.lower().startswith("npm_config_//"):
            values[key[len("npm_config_") :]] = value
    return {key: value for key, value in values.items() if key.startswith("//")}


def _credentials(secrets: Mapping[str, str]) -> dict[str, str]:
    places: dict[str, dict[str, str]] = {}
    for key, value in secrets.items():
        place, _, name = key.rpartition(":")
        places.setdefault(_slash(place), {})[name] = value
    return {place: header for place, found in places.items() if (header := _header(found))}


def _header(found: Mapping[str, str]) -> str | None:
    if "_authToken" in found:
        return f"Bearer {found['_authToken']}"
    if "_auth" in found:
        return f"Basic {found['_auth']}"
    if "username" in found and "_password" in found:
        password = base64.b64decode(found["_password"]).decode()
        pair = f"{found['username']}:{password}"
        return "Basic " + base64.b64encode(pair.encode()).decode()
    return None


def _access(said: _Report, env: Mapping[str, str]) -> Access:
    http = said.proxy or None
    https = said.https_proxy or said.proxy or None
    proxies: dict[str, str | None] = {}
    if isinstance(http, str):
        proxies["http://"] = http
    if isinstance(https, str):
        proxies["https://"] = https
    if proxies:  # without one, httpx reads HTTP_PROXY and its kin from the environment, as npm does
        for host in said.noproxy:
            if host := host.strip().lstrip("."):
                proxies[f"all://{host}"] = None
                proxies[f"all://*.{host}"] = None
    extra = env.get("NODE_EXTRA_CA_CERTS", "")
    return Access(
        proxies=proxies,
        ca_files=tuple(file for file in (said.cafile, extra) if file),
        ca_text="\n".join(said.ca),
        verify=said.strict_ssl,
    )


def _slash(address: str) -> str:
    return address if address.endswith("/") else address + "/"
