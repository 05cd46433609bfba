"""The task's side of a legacy run: the agent starts the sandbox, and asks a resources server."""

from __future__ import annotations

from functools import cached_property

from sandbox.agents.contract import ConflictError, UnprocessableError
from sandbox.agents.legacy import (
    SEED_SESSION,
    ResourcesServer,
    SandboxOrder,
    SeedSessionRequest,
    SeedSessionResponse,
    VerifyRequest,
    VerifyResponse,
)
from sandbox.agents.legacyepisode import Order
from sandbox.agents.resources import resources_app
from sandbox.agents.server import LocalServer
from sandbox.agents.stages import may_be_rejected
from sandbox.conformance.task import MODEL, Task
from sandbox.engine.attach import AttachedSandbox, remove_owned
from sandbox.errors import ContainerGone, EngineFailure


class LegacyTask(Task):
    """Resources of one run (``legacyepisode.LegacyResources``, ``resources.SandboxResources``).

    The agent's sandbox is watched from the moment the agent names it until it is graded; when the
    run is over it must be gone, and what is not is removed and noted.
    """

    _observed = False

    def order(self) -> Order:
        """Serve the resources, and say how the sandbox is to be started."""
        link = self._open_link()
        server = self._stack.enter_context(LocalServer(resources_app(self)))
        return Order(
            sandbox=SandboxOrder(
                image=self._image_ref,
                labels=self._owner.labels(),
                create=link.create_options(),
            ),
            resources=ResourcesServer(base_url=server.url),
            model=MODEL,
        )

    @property
    def reward(self) -> float | None:
        """What the verifier said; None: it was not asked."""
        return None if self._verified is None else self._verified.reward

    def connect(self, asked: SeedSessionRequest) -> SeedSessionResponse:
        """Watch the agent's sandbox and connect the model."""
        if self.sandbox is not None:
            raise ConflictError("this run has its sandbox already")
        box = AttachedSandbox(self._world.engine, asked.container_id)
        try:
            box.start()
        except ContainerGone as error:
            raise UnprocessableError(error.message) from error
        assert self.link is not None
        self.link.attach(box)
        self.sandbox = box
        endpoint, workdir = self._connect(box, self.link)
        self.ended("seed")  # the image has the runtime: nothing is installed after this
        return SeedSessionResponse(endpoint=endpoint, workdir=workdir)

    def grade(self, asked: VerifyRequest) -> VerifyResponse:
        """Look at the sandbox, which the agent removes next; grade it if that may be."""
        if self.sandbox is None or self.sandbox.id != asked.container_id:
            raise UnprocessableError(
                f"the run's sandbox is not {asked.container_id}", cure=f"POST {SEED_SESSION}"
            )
        said = asked.response
        rejected = may_be_rejected(said) and self.rejection() is not None
        reward = self.verify(said) if said.gradable or rejected else None
        self._observe(self._beside)
        self._observed = True
        return VerifyResponse(reward=reward)

    def release(self) -> None:
        """Stop the servers; remove what the agent left, and note it."""
        if self.witness is not None and not self._observed:
            self._observe(self._beside)
        try:
            left = remove_owned(self._world.engine, self._owner)
        except EngineFailure as error:
            left = (error.message,)
        self._beside += [f"the agent left its sandbox: {name}" for name in left]
        self._end(self._beside)
        if left and self.seen.teardown is not None:
            teardown = self.seen.teardown.model_copy(update={"container_gone": False})
            self.seen = self.seen.model_copy(update={"teardown": teardown})

    @cached_property
    def _beside(self) -> list[str]:
        """What went wrong while looking and releasing."""
        return []
