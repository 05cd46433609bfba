"""Starts, commands, copies and ends of sandboxes: ours, by hand, and of other packages."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from sandbox.conformance.timing import DOCKER, OURS, Clock, Subject, Way, in_turn
from sandbox.engine.peers.contender import Contender
from sandbox.errors import SandboxError
from sandbox.evidence.benches import Measure, Unmeasured

FILES, FILE_BYTES = 1000, 100_000
MANY_FILES, MANY_FILE_BYTES = 20_000, 200
EXEC_LIMIT_S = 0.005
EXEC_ROUNDS = 4
EXEC = "exec true"
TAR = "tar through exec"
Makers = Mapping[str, Callable[[], Contender]]
"""Make a sandbox that is not started yet, by who does: ``OURS``, then what it is beside."""


def bench_engine(
    image: str, makers: Makers, *, rounds: int, part: str
) -> Iterator[Measure | Unmeasured]:
    """Measure lives, commands and copies, ``rounds`` times each in turn.

    Args:
        image: what the measures are named after.
        makers: whose sandboxes.
        rounds: how often; commands four times that.
        part: the part of the bench.
    """
    lives = Subject(part=part, image=image)
    yield from in_turn(
        lives,
        "start and close",
        {name: partial(_life, make) for name, make in makers.items()},
        rounds=rounds,
    )
    with running(makers) as (alive, broken), _tree(FILES, FILE_BYTES) as tree:
        for name, error in broken.items():
            yield lives.broken("start", error, by=name)
        yield from in_turn(
            Subject(part=part, image=image),
            EXEC,
            {name: partial(_exec, one) for name, one in alive.items()},
            rounds=rounds * EXEC_ROUNDS,
            limits={EXEC: EXEC_LIMIT_S},
        )
        copies = Subject(part=part, image=image, most={DOCKER: 1.0})
        yield from _copies(copies, alive, tree, "100 MB in 1000 files", rounds=rounds)


def bench_many_files(image: str, makers: Makers, *, rounds: int) -> Iterator[Measure | Unmeasured]:
    """Measure copies of very many small files beside a tar through exec."""
    with running(makers) as (alive, broken), _tree(MANY_FILES, MANY_FILE_BYTES) as tree:
        subject = Subject(part="files", image=image, most={TAR: 1.0})
        for name, error in broken.items():
            yield subject.broken("start", error, by=name)
        yield from _copies(subject, alive, tree, "20000 files", rounds=rounds)


def _copies(
    subject: Subject, alive: Mapping[str, Contender], tree: Path, what: str, *, rounds: int
) -> Iterator[Measure | Unmeasured]:
    sources: dict[str, str] = {}

    def keep(name: str, path: str) -> None:
        """Leave the first copy where it is, to be copied out; the others go at once."""
        if sources.setdefault(name, path) != path:
            alive[name].exec(["rm", "-rf", path])

    puts: dict[str, Way] = {
        name: partial(_put, one, tree, f"put {what}", partial(keep, name))
        for name, one in alive.items()
    }
    yield from in_turn(subject, f"put {what}", puts, rounds=rounds)
    with tempfile.TemporaryDirectory(dir=tree.parent) as folder:
        gets: dict[str, Way] = {
            name: partial(_get, alive[name], path, Path(folder), f"get {what}")
            for name, path in sources.items()
        }
        yield from in_turn(subject, f"get {what}", gets, rounds=rounds)


def _life(make: Callable[[], Contender]) -> dict[str, float]:
    contender = make()
    try:
        with Clock() as start:
            contender.start()
    except BaseException:
        with suppress(SandboxError):  # the first error is the one to tell
            contender.close()
        raise
    with Clock() as close:
        contender.close()
    return {
        "start": start.seconds,
        "close": close.seconds,
        "start and close": start.seconds + close.seconds,
    }


def _exec(contender: Contender) -> dict[str, float]:
    with Clock() as clock:
        contender.exec(["true"])
    return {EXEC: clock.seconds}


def _put(
    contender: Contender, tree: Path, operation: str, keep: Callable[[str], None]
) -> dict[str, float]:
    path = f"/var/tmp/bench-{secrets.token_hex(6)}"  # noqa: S108 - in a sandbox, in its layer
    with Clock() as clock:
        contender.put(tree, path)
    keep(path)
    return {operation: clock.seconds}


def _get(contender: Contender, path: str, folder: Path, operation: str) -> dict[str, float]:
    target = folder / secrets.token_hex(6)
    with Clock() as clock:
        contender.get(path, target)
    shutil.rmtree(target)
    return {operation: clock.seconds}


@contextmanager
def running(
    makers: Makers,
) -> Iterator[tuple[Mapping[str, Contender], Mapping[str, SandboxError]]]:
    """Start one sandbox of each, and give those that run, and why others do not.

    Raises:
        SandboxError: ours does not start.
    """
    alive: dict[str, Contender] = {}
    broken: dict[str, SandboxError] = {}
    with ExitStack() as stack:
        for name, make in makers.items():
            contender = make()
            stack.callback(_close, contender)
            try:
                contender.start()
            except SandboxError as error:
                if name == OURS:
                    raise
                broken[name] = error
            else:
                alive[name] = contender
        yield alive, broken


def _close(contender: Contender) -> None:
    """Remove a sandbox; what others leave, or never had, is not what is measured."""
    with suppress(SandboxError):
        contender.close()


@contextmanager
def _tree(files: int, size: int) -> Iterator[Path]:
    """Make a tree of files with bytes that do not shrink, a thousand a folder."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for number in range(files):
            place = tree / f"{number // 1000:02}"
            if number % 1000 == 0:
                place.mkdir(parents=True)
            (place / f"{number:05}").write_bytes(os.urandom(size))
        yield tree
