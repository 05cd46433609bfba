"""The agent that runs any harness under the supervisor, in a borrowed or in its own sandbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.agents.contract import (
    ActivateRequest,
    Agent,
    CloseResponse,
    EpisodeId,
    SeedRequest,
    SetupFailed,
    nothing_observed,
)
from sandbox.agents.launch import launch_context, stopping, write_plan
from sandbox.agents.outcome import ExchangeFacts, exchange_facts, native_facts, outcome_of
from sandbox.agents.ports import Places, Runtimes
from sandbox.agents.response import AgentResponse, respond
from sandbox.agents.sessionstate import Session, SessionEvidence
from sandbox.agents.setup import ROOTS, Setup, remove_folder
from sandbox.agents.snapshot import complete, take_snapshot
from sandbox.agents.supervisor import Command, SupervisionError, Supervisor
from sandbox.errors import ContainerGone, NotFound, SandboxError, UsageError
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.observations import ModelRef, Observations
from sandbox.harnesses.base import Harness, NativeContext

Exchanges = Callable[[EpisodeId], Iterable[Exchange]]


@dataclass(kw_only=True)
class Options:
    """How sessions are run.

    Args:
        native_root: host folder; each episode's native evidence goes to a folder in it.
        exclusive: the sandbox holds nothing but this agent, so every new process is its own.
        grace_s: between TERM and KILL, in seconds.
        exchanges: what the model server saw of an episode; None: the transcript alone tells.
        model_ref: how observations name the model server.
        roots: folders of the sandbox that may hold the private session folder, best first.
        clock: gives seconds since the epoch.
    """

    native_root: Path
    exclusive: bool = True
    grace_s: float = 5.0
    exchanges: Exchanges | None = None
    model_ref: ModelRef | None = None
    roots: Sequence[str] = ROOTS
    clock: Callable[[], float] = field(default=time.time)


class SupervisedAgent(Agent[Session]):
    """One harness as a session agent.

    Args:
        harness: the adapter.
        runtimes: where its bundle comes from and how it is installed.
        places: where sandboxes come from.
        options: how sessions are run.
    """

    def __init__(
        self, harness: Harness, *, runtimes: Runtimes, places: Places, options: Options
    ) -> None:
        self.name = harness.name
        self._harness = harness
        self._runtimes = runtimes
        self._places = places
        self._options = options
        self._sessions: dict[str, Session] = {}

    def evidence(self, agent_session_id: str) -> SessionEvidence:
        """Return what is known of a session, also after its close.

        Raises:
            NotFound: there never was such a session.
        """
        session = self._sessions.get(agent_session_id)
        if session is None:
            raise NotFound(f"no agent session {agent_session_id}")
        return session.evidence(self._native(session))

    def forget_session(self, agent_session_id: str) -> None:
        """Drop the evidence of a session that nobody can ask for any more."""
        self._sessions.pop(agent_session_id, None)

    # --- seed -----------------------------------------------------------------------------------

    def seed_state(self, request: SeedRequest, cancel: threading.Event) -> Session:
        """Install the harness in its own folder of the sandbox."""
        session = self._reach(request)
        self._sessions[request.agent_session_id] = session
        try:
            if session.owned is not None:
                session.owned.start()
            session.sandbox_id = session.place.id

            def made(folder: str) -> None:
                session.folder = folder

            setup = Setup(
                harness=self._harness,
                runtimes=self._runtimes,
                cancel=cancel,
                made=made,
                roots=self._options.roots,
            )
            session.prepared = setup.prepare(request, session.place)
            session.supervisor = Supervisor(
                session.place,
                session.prepared.run_folder,
                exclusive=self._options.exclusive,
                grace_s=self._options.grace_s,
            )
            session.supervisor.install()
        except BaseException as error:  # an interrupt too leaves something to close
            session.error = str(error) or type(error).__name__
            raise SetupFailed(session, error) from error
        return session

    def _reach(self, request: SeedRequest) -> Session:
        """A sandbox of our own is in the session before it starts, so close can release it."""
        if request.sandbox_access is not None:
            place = self._places.borrow(request.sandbox_access)
            return Session(request=request, place=place, owned=None)
        owned = self._places.own()
        return Session(request=request, place=owned, owned=owned)

    # --- activate -------------------------------------------------------------------------------

    def activate_state(
        self, state: Session, request: ActivateRequest, cancel: threading.Event
    ) -> AgentResponse:
        """Launch the harness under the supervisor, wait, and tell how it ended."""
        started = self._options.clock()
        try:
            self._run(state, request, cancel)
        except SupervisionError as error:
            state.error = error.message
        except Exception as error:
            state.error = str(error)
            raise
        observations = self._observe(state)
        assert state.prepared is not None
        assert state.outcome is not None
        facts = self._exchange_facts(state)
        return respond(
            response_id=f"resp-{state.request.episode_id.capture_key}",
            created_at=started,
            model=request.endpoint.model,
            outcome=state.outcome,
            observations=observations,
            receipt=state.receipt,
            harness=self.name,
            version=state.prepared.install.version,
            usage=None if facts is None else facts.usage,
        )

    def _run(self, state: Session, request: ActivateRequest, cancel: threading.Event) -> None:
        assert state.prepared is not None
        assert state.supervisor is not None
        rollout_id = state.request.episode_id.capture_key
        plan = self._harness.plan(launch_context(state.prepared, request, rollout_id=rollout_id))
        state.plan = plan
        write_plan(state.place, state.prepared, plan)
        command = Command(argv=plan.argv, env=plan.env, cwd=state.prepared.workdir)
        with stopping(state.supervisor, cancel):
            state.receipt = state.supervisor.run(command, deadline_s=request.deadline_s)

    def _exchange_facts(self, state: Session) -> ExchangeFacts | None:
        if self._options.exchanges is None:
            return None
        return exchange_facts(self._options.exchanges(state.request.episode_id))

    def _observe(self, state: Session) -> Observations:
        """Copy and read the native evidence, once; only after the supervisor's last word."""
        if state.observations is not None:
            return state.observations
        assert state.prepared is not None
        assert state.plan is not None
        snapshot = take_snapshot(
            state.place,
            run_folder=state.prepared.run_folder,
            base=state.prepared.harness_folder,
            native=state.plan.native,
            proof=state.plan.proof,
            folder=self._native(state),
        )
        told = self._harness.parse(
            snapshot.folder, NativeContext(model_ref=self._options.model_ref)
        )
        state.outcome = outcome_of(
            receipt=state.receipt,
            native=native_facts(told, missing_proof=snapshot.missing_proof),
            exchanges=self._exchange_facts(state),
            log=snapshot.log,
            trouble=state.error,
        )
        state.observations = complete(
            told,
            place=state.place,
            receipt=state.receipt,
            outcome=state.outcome,
            missing=snapshot.missing,
        )
        return state.observations

    def _native(self, state: Session) -> Path:
        return self._options.native_root / state.request.episode_id.capture_key

    # --- close ----------------------------------------------------------------------------------

    def close_state(self, state: Session) -> CloseResponse:
        """Stop what may still run, keep its evidence, and remove the folder or the sandbox."""
        observations = self._last_look(state)
        if not state.released:
            self._release(state)
            state.released = True
        return CloseResponse(
            agent_session_id=state.request.agent_session_id, agent_observations=observations
        )

    def _last_look(self, state: Session) -> Observations:
        if state.observations is None and state.plan is not None:
            try:
                self._settle(state)
                return self._observe(state)
            except SandboxError as error:
                state.error = state.error or str(error)
        if state.observations is None:
            state.observations = nothing_observed(self.name, state.error or "it was not activated")
        return state.observations

    @staticmethod
    def _settle(state: Session) -> None:
        if state.receipt is None and state.supervisor is not None:
            try:
                state.receipt = state.supervisor.settle()
            except SupervisionError as error:
                state.error = error.message

    def _release(self, state: Session) -> None:
        """An own sandbox goes; of a borrowed one, only our folder. A gone container has neither."""
        if state.owned is not None:
            state.owned.close()
            return
        if state.folder is None:
            return
        try:
            remove_folder(state.place, state.folder)
        except SandboxError as error:
            final = state.receipt is not None and not state.receipt.cleanup_confirmed
            gone = isinstance(error, ContainerGone | UsageError)  # or closed by its owner
            if not (final or gone):
                raise
