"""Debian packages through apt, which knows the archive, its keys, mirrors and proxies.

Nothing is installed on this machine. The host's own package lists are tried first; when they do not
hold the package (never updated, or another architecture) fresh ones are read into a private folder.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.cache import writable
from sandbox.errors import (
    CacheUnusable,
    FetchError,
    NotServed,
    PrerequisiteMissing,
    SandboxError,
)
from sandbox.progress import Step
from sandbox.runtimes.client import run_client

# Nothing outside our folder is written; root keeps its rights, since that folder is root's own.
_OPTIONS = (
    *(
        "-q",
        "-o",
        "APT::Sandbox::User=",
        "-o",
        "Acquire::Retries=3",
        "-o",
        "Acquire::Languages=none",
    ),
    *("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="),
)
_UNKNOWN = re.compile(
    r"Unable to locate package|was not found|no installation candidate|Can't find"
)


@dataclass(frozen=True)
class Apt:
    """The apt of this host, with its configuration.

    Attributes:
        program: how apt-get is started.
        env: its environment.
    """

    program: str = "apt-get"
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def check(self, what: str) -> None:
        """Raise ``PrerequisiteMissing`` when this machine has no apt to bring ``what``."""
        if not shutil.which(self.program, path=self.env.get("PATH", os.defpath)):
            raise PrerequisiteMissing(
                f"this machine has no {self.program}, which brings {what}",
                cure="use a Debian or Ubuntu machine; or put the file, from the store of one, into"
                " this machine's store under the same name: its hash is checked",
            )

    def download(
        self,
        name: str,
        version: str,
        architecture: str,
        folder: Path,
        *,
        step: Step,
        deadline_s: float = 600,
    ) -> Path:
        """Fetch one package into ``folder`` and return its path; its hash is not checked here.

        Args:
            name: binary package.
            version: exact version.
            architecture: Debian's word, this machine's or another.
            folder: an empty folder.
            step: told the bytes as they come.
            deadline_s: after so many seconds apt is stopped.

        Raises:
            FetchError: no configured archive offers that version, or none answers.
            PrerequisiteMissing: the host has no apt.
        """
        what = f"{name} {version} ({architecture})"
        self.check(what)
        debs, lists = folder / "debs", folder / "lists"
        with writable(folder):
            debs.mkdir()
            (lists / "partial").mkdir(parents=True)
        wanted = f"{name}:{architecture}={version}"
        own = [*_private(lists), *_only(architecture)]
        for options, command in _tries(own, ["download", wanted]):
            argv = [self.program, *_OPTIONS, *options, *command]
            env = dict(self.env) | {"LC_ALL": "C"}
            code, _, errors = run_client(
                argv, env=env, deadline_s=deadline_s, cwd=debs, watch=debs, step=step
            )
            found = sorted(debs.glob("*.deb"))
            if code == 0 and len(found) == 1:
                return found[0]
        raise _failure(what, errors)

    def offered(
        self, name: str, version: str, architecture: str, folder: Path, *, deadline_s: float = 300
    ) -> str:
        """Return the sha256 that the archive's signed index has for a package; no download.

        Args:
            name: binary package.
            version: exact version.
            architecture: Debian's word, this machine's or another.
            folder: an empty folder, for package lists if the host's do not hold it.
            deadline_s: after so many seconds apt is stopped.

        Raises:
            FetchError: no configured archive offers that version with a sha256, or none answers.
            PrerequisiteMissing: the host has no apt.
        """
        what = f"{name} {version} ({architecture})"
        self.check(what)
        (folder / "partial").mkdir(parents=True)
        own = [*_private(folder), *_only(architecture)]
        wanted = f"{name}:{architecture}={version}"
        for options, command in _tries(own, ["download", "--print-uris", wanted]):
            argv = [self.program, *_OPTIONS, *options, *command]
            env = dict(self.env) | {"LC_ALL": "C"}
            code, out, errors = run_client(argv, env=env, deadline_s=deadline_s, cwd=folder)
            if code == 0 and (found := re.search(r" SHA256:([0-9a-f]{64})\b", out)):
                return found[1]
        raise _failure(what, errors)


def _tries(own: list[str], command: list[str]) -> tuple[tuple[list[str], list[str]], ...]:
    """Ask the host's own lists, then fresh ones."""
    return (([], command), (own, ["update"]), (own, command))


def _private(lists: Path) -> list[str]:
    return ["-o", f"Dir::State::Lists={lists}"]


def _only(architecture: str) -> list[str]:
    chosen = f"={architecture}"
    return ["-o", f"APT::Architecture{chosen}", "-o", f"APT::Architectures{chosen}"]


def _failure(what: str, errors: str) -> SandboxError:
    if os.strerror(errno.ENOSPC) in errors:
        return CacheUnusable(f"no space for {what} in the cache", cure="free space there")
    said = " / ".join(line for line in errors.splitlines() if line.startswith("E:"))[-500:]
    if _UNKNOWN.search(errors):
        return NotServed(
            f"no archive that apt knows here offers {what}: {said}",
            cure="add an archive that does to apt's sources, or pin a version that it has and"
            " run `sandbox pins lock`",
        )
    return FetchError(
        f"apt cannot fetch {what}: {said or errors[-500:]}",
        cure="check the network and apt's sources and proxy (`apt-get update` shows them)",
        retryable=True,
    )
