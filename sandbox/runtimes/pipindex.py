"""What a Python package index says of a project's files: hash, time of upload, provenance.

Only pip knows which indexes are asked, so it is run once with its log, which names each page that
it reads; the pages themselves are then read as JSON (PEP 691, times: PEP 700, provenance: PEP 740).
An index that answers with HTML only says none of this.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.errors import FetchError
from sandbox.runtimes.client import run_client
from sandbox.runtimes.download import Access, Http
from sandbox.runtimes.pip import Pip

_JSON = "application/vnd.pypi.simple.v1+json"
_PAGE = re.compile(r"^\s*Getting page (https?://\S+)$", re.MULTILINE)
_CURE = "check index-url in `pip config list`: that index has to serve JSON (PEP 691)"


class IndexFile(BaseModel):
    """One file of a project; what is not read here is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    filename: str
    hashes: Mapping[str, str] = Field(default_factory=dict)
    uploaded: datetime | None = Field(default=None, alias="upload-time")
    provenance: str | None = None


class _Project(BaseModel):
    model_config = ConfigDict(extra="ignore")

    files: tuple[IndexFile, ...]


class PipIndex:
    """The indexes of a pip configuration.

    Args:
        pip: asked which they are.
        http: reads their pages.
    """

    def __init__(self, pip: Pip, http: Http) -> None:
        self._pip, self._http = pip, http
        self._homes: tuple[str, ...] | None = None

    def files(self, name: str) -> dict[str, IndexFile]:
        """Return every file of a project that the indexes hold, by file name.

        Raises:
            FetchError: no index answers, or none in JSON.
        """
        project = re.sub(r"[-_.]+", "-", name).lower()
        found: dict[str, IndexFile] = {}
        failed: FetchError | None = None
        for home in self._indexes(project):
            try:
                found = self._page(f"{home}{project}/", name) | found
            except FetchError as error:
                failed = failed or error
        if not found:
            raise failed or FetchError(f"no index that pip knows holds {name}", cure=_CURE)
        return found

    def json(self, url: str, *, what: str) -> object:
        """Return what an address that a page names answers with."""
        return self._http.json(url, {"Accept": "application/json"}, what=what)

    def _page(self, url: str, name: str) -> dict[str, IndexFile]:
        answer = self._http.json(url, {"Accept": _JSON}, what=name)
        try:
            return {one.filename: one for one in _Project.model_validate(answer).files}
        except ValidationError as error:
            raise FetchError(
                f"{name}: the index answers with no project page", cure=_CURE
            ) from error

    def _indexes(self, project: str) -> tuple[str, ...]:
        if self._homes is None:
            argv = [*self._pip.argv, "-vv", "index", "versions", project, "--no-color"]
            code, out, errors = run_client(argv, env=self._pip.env, deadline_s=120)
            pages = [url for url in _PAGE.findall(out) if url.endswith(f"/{project}/")]
            self._homes = tuple(url.removesuffix(f"{project}/") for url in pages)
            if not self._homes or any("****" in home for home in self._homes):
                said = errors.splitlines()[-1] if code and errors else "its log names no page"
                self._homes = None
                raise FetchError(f"pip cannot say where {project} is: {said}", cure=_CURE)
        return self._homes


def releases(files: Mapping[str, IndexFile]) -> dict[str, datetime]:
    """Return when each version was first uploaded, by the names of its wheels."""
    found: dict[str, datetime] = {}
    for name, file in files.items():
        if name.endswith(".whl") and file.uploaded:
            version = name.split("-")[1]
            found[version] = min(file.uploaded, found.get(version, file.uploaded))
    return found


def pip_access(pip: Pip) -> Access:
    """Return the proxy and certificates that pip is configured with."""
    argv = [*pip.argv, "config", "list"]
    _, out, _ = run_client(argv, env=pip.env, deadline_s=60)
    said = dict(map(_setting, filter(lambda line: "=" in line, out.splitlines())))
    proxies = {"all://": said["proxy"]} if said.get("proxy") else {}
    return Access(proxies=proxies, ca_files=tuple(filter(None, [said.get("cert")])))


def _setting(line: str) -> tuple[str, str]:
    """``global.cert='/x'`` or ``:env:.cert='/x'``; the later line is the stronger one."""
    key, _, value = line.partition("=")
    with suppress(ValueError):
        value = shlex.split(value)[0]
    return key.rpartition(".")[2], value


IndexFiles = Callable[[str], Mapping[str, IndexFile]]
