"""Wheels through pip, which knows index, mirrors, find-links, proxies, certificates and logins.

With a hash pip itself checks the file before it looks inside, and we check it again.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.cache import writable
from sandbox.errors import (
    CacheUnusable,
    FetchError,
    IntegrityError,
    PrerequisiteMissing,
    SandboxError,
)
from sandbox.progress import Step
from sandbox.runtimes.client import run_client
from sandbox.runtimes.integrity import Integrity

_HASH_WORDS = "DO NOT MATCH THE HASHES"
_LINK = re.compile(
    r"[^:\n]*(?:connection broken|timed out|timeout|name resolution|reset by peer|429 Client|"
    r"5\d\d (?:Server|Internal)|HTTP error 5\d\d|too many 5\d\d|Connection aborted)[^\n]*",
    re.IGNORECASE,
)
_ERRNO = re.compile(r"\[Errno [^\]]+\] [^'\n]*")


@dataclass(frozen=True)
class Pip:
    """The pip of this Python, with the user's configuration.

    Attributes:
        argv: how pip is started.
        env: its environment; pip's files and variables are found through it.
    """

    argv: tuple[str, ...] = (sys.executable, "-m", "pip")
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def download(
        self,
        name: str,
        version: str,
        tag: str,
        folder: Path,
        *,
        integrity: Integrity | None,
        step: Step,
        deadline_s: float = 1800,
    ) -> Path:
        """Fetch one wheel into ``folder`` and return its path.

        Args:
            name: project name.
            version: exact version.
            tag: platform tag to ask for; any Python.
            folder: an empty folder on the file system where the wheel is to stay.
            integrity: the pinned hash; None while locking.
            step: told the bytes as they come.
            deadline_s: after so many seconds pip is stopped.

        Raises:
            FetchError: pip could not get it.
            IntegrityError: the index served another file.
            PrerequisiteMissing: this Python has no pip.
        """
        wheels, work = folder / "wheels", folder / "work"
        with writable(folder), tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
            work.mkdir()
            hashed = f" --hash={integrity.algorithm}:{integrity.hexdigest}" if integrity else ""
            wanted.write(f"{name}=={version}{hashed}\n")
            wanted.flush()
            argv = self._argv(tag, wheels, Path(wanted.name))
            env = dict(self.env) | {"TMPDIR": str(work), "PIP_CONSTRAINT": os.devnull}
            code, _, errors = run_client(
                argv, env=env, deadline_s=deadline_s, watch=folder, step=step
            )
        found = sorted(wheels.glob("*.whl"))
        if code == 0 and len(found) == 1:
            return found[0]
        raise _failure(f"{name} {version} ({tag})", errors)

    def download_all(
        self,
        requirements: Path,
        tags: Sequence[str],
        python: str,
        folder: Path,
        *,
        step: Step,
        deadline_s: float = 1800,
    ) -> list[Path]:
        """Fetch the wheels of a hash-locked requirements file and return their paths.

        Args:
            requirements: every package with version and hashes; nothing else is fetched.
            tags: the platform tags to take, the best first.
            python: version of CPython, as "3.13".
            folder: an empty folder on the file system where the wheels are to stay.
            step: told the bytes as they come.
            deadline_s: after so many seconds pip is stopped.

        Raises:
            FetchError: pip could not get them all.
            IntegrityError: the index served another file.
        """
        wheels, work = folder / "wheels", folder / "work"
        with writable(folder):
            work.mkdir()
            wheels.mkdir()
        abi = f"cp{python.replace('.', '')}"
        wanted = [word for tag in tags for word in ("--platform", tag)]
        wanted += ["--implementation", "cp", "--python-version", python]
        wanted += [word for one in (abi, "abi3", "none") for word in ("--abi", one)]
        argv = [*self._download(wheels, requirements), *wanted, "--require-hashes"]
        env = dict(self.env) | {"TMPDIR": str(work), "PIP_CONSTRAINT": os.devnull}
        code, _, errors = run_client(argv, env=env, deadline_s=deadline_s, watch=folder, step=step)
        if code:
            raise _failure(f"what {requirements} lists", errors)
        return sorted(wheels.glob("*.whl"))

    def versions(self, name: str, *, python: str, deadline_s: float = 120) -> tuple[str, ...]:
        """Return the versions of a project that the index holds for that CPython, newest first.

        Raises:
            FetchError: it could not be asked, or knows no such project.
        """
        argv = [*self.argv, "index", "versions", name, "--python-version", python]
        code, out, errors = run_client(argv, env=self.env, deadline_s=deadline_s)
        found = re.search(r"Available versions: (.*)", out)
        if code or not found:
            raise _failure(name, errors)
        return tuple(found[1].split(", "))

    def answers(self, name: str, *, deadline_s: float) -> None:
        """Ask the index for one project's versions; ``FetchError`` when it cannot be reached."""
        argv = [*self.argv, "index", "versions", name, "--retries", "1", "--timeout", "5"]
        code, _, errors = run_client(argv, env=self.env, deadline_s=deadline_s)
        if code:
            raise _failure(name, errors)

    def _argv(self, tag: str, wheels: Path, wanted: Path) -> list[str]:
        chosen = ["--platform", tag, "--python-version", "3.11"]
        return [*self._download(wheels, wanted), *chosen]

    def _download(self, wheels: Path, wanted: Path) -> list[str]:
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
        options += ["--disable-pip-version-check", "--quiet", "--progress-bar=off"]
        options += ["--dest", str(wheels), "--requirement", str(wanted)]
        return [*self.argv, "download", *options]


def _failure(what: str, errors: str) -> SandboxError:
    if "No module named pip" in errors:
        return PrerequisiteMissing(
            f"{sys.executable} has no pip", cure=f"run `{sys.executable} -m ensurepip`"
        )
    if os.strerror(errno.ENOSPC) in errors:
        return CacheUnusable(
            f"no space for {what} in the cache or the temporary folder", cure="free space there"
        )
    if _HASH_WORDS in errors:
        return IntegrityError(
            f"{what}: the index serves a file with another hash than the pinned one",
            cure="nothing of it was used; suspect the mirror or the proxy",
        )
    if unreachable := _LINK.search(errors):
        return FetchError(
            f"pip cannot fetch {what}: {(_ERRNO.search(errors) or unreachable)[0].strip()[:300]}",
            cure="check the network and index-url, proxy and cert in `pip config list`",
            retryable=True,
        )
    said = " / ".join(line for line in errors.splitlines() if "WARNING" not in line)[-500:]
    cure = "check that the index of `pip config list` holds that version"
    return FetchError(f"pip cannot fetch {what}: {said}", cure=cure)
