"""What is measured of anybody who starts sandboxes, and which others are installed here."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox.errors import EngineFailure, SandboxError
from sandbox.evidence.benches import Peer


class Contender(Protocol):
    """One sandbox, from its start to its end; every method raises what the package raises."""

    def start(self) -> None:
        """Make it and wait until a command can run in it."""

    def exec(self, argv: Sequence[str]) -> None:
        """Run a command to its end; raises when it fails."""

    def put(self, folder: Path, dest: str) -> None:
        """Copy the content of a host folder into a new folder."""

    def get(self, path: str, folder: Path) -> None:
        """Copy a folder of the sandbox to the host, as a new one."""

    def close(self) -> None:
        """Remove it."""


MakeContender = Callable[[str, Mapping[str, str]], Contender]
"""Makes a sandbox of an image that is not started yet; with labels, where the package has them."""

PEERS = {
    "testcontainers": "testcontainers",
    "swe-rex": "swe_rex",
    "inspect_ai": "inspect_ai",
    "harbor": "harbor",
}
"""The peers by the name of their distribution, each with its module beside this one."""


@dataclass(frozen=True)
class FoundPeer:
    """A peer, and how to make its sandboxes when it is installed."""

    peer: Peer
    make: MakeContender | None


def find_peer(distribution: str, module: str) -> FoundPeer:
    """Look for a peer by importing its adapter; what keeps it from being imported is told."""
    try:
        version = importlib.metadata.version(distribution)
        adapter = importlib.import_module(f"{__package__}.{module}")
    except importlib.metadata.PackageNotFoundError:
        return FoundPeer(Peer(name=distribution, missing="not installed"), None)
    except ImportError as error:
        missing = f"installed, and cannot be used: {error}"
        return FoundPeer(Peer(name=distribution, missing=missing), None)
    return FoundPeer(Peer(name=distribution, version=version), adapter.Contender)


def find_peers() -> tuple[FoundPeer, ...]:
    """Look for all peers."""
    return tuple(find_peer(name, module) for name, module in PEERS.items())


class Guarded:
    """A contender whose errors are ``EngineFailure``s, and whose words go to standard error."""

    def __init__(self, name: str, contender: Contender) -> None:
        self._name = name
        self._contender = contender

    def start(self) -> None:
        """Start it."""
        with self._telling("start"):
            self._contender.start()

    def exec(self, argv: Sequence[str]) -> None:
        """Run a command."""
        with self._telling("exec"):
            self._contender.exec(argv)

    def put(self, folder: Path, dest: str) -> None:
        """Copy in."""
        with self._telling("put"):
            self._contender.put(folder, dest)

    def get(self, path: str, folder: Path) -> None:
        """Copy out."""
        with self._telling("get"):
            self._contender.get(path, folder)

    def close(self) -> None:
        """Remove it."""
        with self._telling("close"):
            self._contender.close()

    @contextmanager
    def _telling(self, verb: str) -> Iterator[None]:
        try:
            with redirect_stdout(sys.stderr):
                yield
        except SandboxError:
            raise
        except Exception as error:
            said = " ".join(str(error).split())[:300]
            raise EngineFailure(
                f"{self._name}: {verb} failed: {type(error).__name__}: {said}"
            ) from error
