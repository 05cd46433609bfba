"""The lifecycle of agent sessions in a real ``sandbox serve`` process, over its socket."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from sandbox.agents.contract import ConflictError
from tests.agents.plug import NAME, Plug
from tests.conformance.cli import Served, sandbox, serving
from tests.unit.agent_server import Clients, Slow
from tests.unit.lifecycle_machine import Lifecycle
from tests.unit.session_fakes import activate_request, close_request, in_thread, seed_request

NUMBERS = itertools.count()


@dataclass
class Plugged:
    """A process that serves, what does its hooks, and who asks it."""

    process: Served
    plug: Plug
    clients: Clients


@contextmanager
def plugged(folder: Path, *words: str) -> Iterator[Plugged]:
    with (
        Plug() as plug,
        serving(NAME, *words, env=plug.env(folder)) as process,
        Clients(process.url) as clients,
    ):
        yield Plugged(process, plug, clients)


class LifecycleOfProcess(Lifecycle):
    """The same machine; its sessions' names are new in each run, for the process remembers them."""

    def __init__(self, served: Plugged) -> None:
        super().__init__()
        self.served, self.number = served, next(NUMBERS)

    @initialize()
    def start(self) -> None:
        super().start()
        self.served.plug.agent = self.agent
        self.sessions = self.served.clients  # type: ignore[assignment]

    def own(self, name: str) -> str:
        return f"{name}-{self.number}"

    @rule()
    def wait(self) -> None:
        """Nothing moves the process's clock: instead of old names that are free again, take new."""
        self.number = next(NUMBERS)

    def teardown(self) -> None:
        for name, expected in getattr(self, "known", {}).items():
            if expected.seeded and not expected.answer:
                rollout = expected.seeded.episode_id.rollout_id
                self.served.clients.close(close_request(name, rollout=rollout))


def test_every_order_of_requests_to_a_served_process(tmp_path: Path) -> None:
    few = settings(max_examples=20, stateful_step_count=25, deadline=None)
    with plugged(tmp_path) as served:
        run_state_machine_as_test(lambda: LifecycleOfProcess(served), settings=few)  # type: ignore[no-untyped-call]


def test_a_process_that_ends_closes_every_session(tmp_path: Path) -> None:
    with plugged(tmp_path) as served:
        agent, slow = served.plug.agent, Slow()
        agent.while_active = slow
        served.clients.seed(seed_request("a"))
        served.clients.seed(seed_request("b"))
        thread, results = in_thread(lambda: served.clients.activate(activate_request("b")))
        assert slow.begun.wait(60)
        assert served.process.end() == 0
        thread.join(60)
    assert slow.told.is_set()
    assert [held.released for held in agent.made] == [1, 1]
    assert results


def test_a_forgotten_session_is_closed_when_its_lease_runs_out(tmp_path: Path) -> None:
    with plugged(tmp_path, "--lease", "0.3") as served:
        served.clients.seed(seed_request())
        until = time.monotonic() + 30
        while not served.plug.agent.made[0].released and time.monotonic() < until:
            time.sleep(0.02)
        assert served.clients.close(close_request()).agent_observations is not None
        with pytest.raises(ConflictError, match="lease"):
            served.clients.activate(activate_request())
        assert [held.released for held in served.plug.agent.made] == [1]


def test_what_a_served_agent_cannot_be_told_is_refused(tmp_path: Path) -> None:
    with Plug() as plug:
        ended = sandbox("serve", NAME, "--image", "alpine-3.23", env=plug.env(tmp_path))
    assert (ended.code, "--image" in ended.err) == (2, True), ended.err
