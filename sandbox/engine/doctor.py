"""What this machine has and lacks, as findings with cures.

It looks at everything and changes nothing, but that the cache folder is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from sandbox.cache import cache_root
from sandbox.engine import enginechecks, hostchecks
from sandbox.engine.client import Engine
from sandbox.engine.finding import Finding
from sandbox.engine.hostcommands import HostCommands, LocalCommands
from sandbox.errors import CouldNotFindOut, ExitCode, SandboxError

Check = Callable[[], Iterable[Finding]]


def examine(
    *,
    cache: Path | None = None,
    connect: Callable[[], Engine] = Engine.connect,
    commands: HostCommands | None = None,
    to_build: Callable[[Engine | None], Sequence[str]] = hostchecks.images_to_build,
    more: Iterable[tuple[str, Check]] = (),
) -> tuple[Finding, ...]:
    """Look at everything; an error while looking is a finding too.

    Args:
        cache: the cache folder, which need not exist.
        connect: how the engine is reached.
        commands: the host.
        to_build: names the images that mmdebstrap has yet to make.
        more: name and check of what other rooms look at, such as registries and the store.
    """
    host = commands or LocalCommands()
    with ExitStack() as stack:
        engine: Engine | None = None
        try:
            engine = stack.enter_context(connect())
            findings = [enginechecks.engine_answers(engine)]
        except SandboxError as error:
            findings = [Finding.of_error("engine", error)]
        checks: list[tuple[str, Check]] = [
            ("engine step", lambda: [hostchecks.engine_step(engine, host)]),
            ("cache", lambda: [hostchecks.cache_space(cache or cache_root())]),
            ("image tools", lambda: [hostchecks.image_tools(engine, host, to_build)]),
        ]
        if engine is not None:
            checks += _of_engine(engine)
        for name, check in (*checks, *more):
            findings += _guarded(name, check)
    return tuple(findings)


def exit_code(findings: Iterable[Finding]) -> ExitCode:
    """Return the code to end with: the first missing thing's; what is found first comes first."""
    return next((item.exit_code for item in findings if item.ok is False), ExitCode.OK)


def _of_engine(engine: Engine) -> list[tuple[str, Check]]:
    return [
        ("model link", lambda: [enginechecks.model_link(engine)]),
        ("init", lambda: [enginechecks.init_program(engine)]),
        ("engine disk", lambda: [enginechecks.disk(engine)]),
        ("control groups", lambda: [enginechecks.control_groups(engine)]),
        ("clock", lambda: [enginechecks.clock(engine)]),
        ("guarantees", lambda: enginechecks.promises(engine)),
    ]


def _guarded(name: str, check: Check) -> list[Finding]:
    try:
        return list(check())
    except SandboxError as error:
        return [Finding.of_error(name, error)]
    except OSError as error:
        cannot = CouldNotFindOut(
            f"cannot be looked at: {error}", cure="look at the file or folder that it names"
        )
        return [Finding.of_error(name, cannot)]
