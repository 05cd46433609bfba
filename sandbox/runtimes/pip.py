"""Wheels through pip, which knows index, mirrors, find-links, proxies, certificates and logins.

With a hash pip itself checks the file before it looks inside, and we check it again.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.cache import writable
from sandbox.errors import FetchError, IntegrityError, PrerequisiteMissing
from sandbox.progress import Step
from sandbox.runtimes.client import run_client
from sandbox.runtimes.integrity import Integrity

_HASH_WORDS = "DO NOT MATCH THE HASHES"
_ABSENT = re.compile(r"No matching distribution found|Could not find a version")
_LINK = re.compile(r"\b(?:connection|timed out|timeout|resolve|50[0-9] |429 |reset by peer)", re.I)


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

    def answers(self, name: str, *, deadline_s: float) -> None:
        """Ask the index for one project's versions; ``FetchError`` when it cannot be reached."""
        argv = [*self.argv, "index", "versions", name, "--retries", "0", "--timeout", "5"]
        code, _, errors = run_client(argv, env=self.env, deadline_s=deadline_s)
        if code:
            raise _failure(name, errors)

    def _argv(self, tag: str, wheels: Path, wanted: Path) -> list[str]:
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
        options += ["--disable-pip-version-check", "--quiet", "--progress-bar=off"]
        options += ["--platform", tag, "--python-version", "3.11", "--dest", str(wheels)]
        return [*self.argv, "download", *options, "--requirement", str(wanted)]


def _failure(what: str, errors: str) -> FetchError | IntegrityError | PrerequisiteMissing:
    if "No module named pip" in errors:
        return PrerequisiteMissing(
            f"{sys.executable} has no pip", cure=f"run `{sys.executable} -m ensurepip`"
        )
    if _HASH_WORDS in errors:
        return IntegrityError(
            f"{what}: the index serves a file with another hash than the pinned one",
            cure="nothing of it was used; suspect the mirror or the proxy",
        )
    said = " / ".join(line for line in errors.splitlines() if "WARNING" not in line)[-500:]
    unreachable = _LINK.search(errors) is not None
    if _ABSENT.search(errors) and not unreachable:
        return FetchError(f"pip cannot find {what}: {said}", cure="check `pip config list`")
    return FetchError(
        f"pip cannot fetch {what}: {said}",
        cure="check the network and index-url, proxy and cert in `pip config list`",
        retryable=unreachable,
    )
