"""The parts of a started sandbox, put together for one container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.engine.archive import Owner
from sandbox.engine.channel import Channel
from sandbox.engine.client import Engine
from sandbox.engine.executor import Executor
from sandbox.engine.inside import Tracking, choose
from sandbox.engine.owner import is_ending
from sandbox.engine.runner import Runner
from sandbox.engine.transfer import Transfer

ROOT = frozenset({"", "0", "root"})


def is_root(user: str) -> bool:
    """Tell whether a "name", "uid" or "uid:gid" (or none) is the image's root."""
    return user.partition(":")[0] in ROOT


@dataclass(frozen=True, kw_only=True)
class Running:
    """What there is of a sandbox from ``start`` to ``close``."""

    container: str
    user: str
    image_env: Mapping[str, str]
    executor: Executor
    transfer: Transfer

    @classmethod
    def assemble(
        cls,
        engine: Engine,
        container: str,
        config: Mapping[str, Any],
        *,
        user: str,
        workdir: str | None,
        tracking: Tracking,
        path: str | None = None,
    ) -> Running:
        """Put the parts together; asks the engine nothing.

        Args:
            engine: where the container runs.
            container: its id.
            config: the image's "Config" as the engine tells it.
            user: whom commands run as.
            workdir: where commands run, instead of the image's folder.
            tracking: see ``choose``.
            path: the PATH of commands, for a kept channel; without it there is none.
        """
        api, info = engine.sdk.api, engine.info
        seen = {"ending": is_ending} if info.can_enter_namespaces else {}
        runner = Runner(api, container, user=user or "0", **seen)
        folder = workdir or str(config.get("WorkingDir") or "/")
        channel = (
            None
            if path is None
            else Channel(api, container, runner, user=user or "0", workdir=folder, path=path)
        )
        executor = Executor(
            runner,
            lambda script: choose(
                info, container, pid=runner.expect_container, run_script=script, tracking=tracking
            ),
            workdir=folder,
            channel=channel,
        )
        return cls(
            container=container,
            user=user,
            image_env=variables_of(config),
            executor=executor,
            transfer=Transfer(api, container, executor, as_root=is_root(user)),
        )

    def owner(self) -> Owner | None:
        """Give the user's numbers where its name alone tells them."""
        uid, _, gid = self.user.partition(":")
        if uid in ROOT and gid in ROOT:
            return Owner(uid=0, gid=0)
        if uid.isdecimal() and gid.isdecimal():
            return Owner(uid=int(uid), gid=int(gid))
        return None


def variables_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Give the environment in an image's or container's "Config"."""
    pairs = (line.partition("=") for line in config.get("Env") or ())
    return {name: value for name, _, value in pairs}
