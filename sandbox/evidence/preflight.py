"""What is known of a task image before an expensive run: its facts, and what each harness will do.

``sandbox preflight --json`` writes a ``PreflightReport``.
"""

from __future__ import annotations

from typing import Literal

from sandbox.evidence.records import Record

Outcome = Literal["works", "works with", "cannot", "unknown"]
Proven = Literal["works", "cannot", "failed", "undecided"]


class PlaceFacts(Record):
    """A folder of the sandbox, as the task's user meets it; ``free_mib`` None: nobody could tell.

    ``options`` are those of its mount that matter here: ro, noexec, nosuid, nodev.
    """

    path: str
    role: Literal["workdir", "home", "other"]
    exists: bool
    writable: bool
    options: tuple[str, ...] = ()
    free_mib: int | None = None


class Note(Record):
    """Something about the image that can surprise; ``subject`` is the key, path or variable."""

    kind: Literal[
        "entrypoint", "command", "healthcheck", "volume", "environment", "project", "user", "place",
        "locale", "tools", "emulation",
    ]  # fmt: skip
    subject: str
    text: str


class Proof(Record):
    """How a cell of ``tool_success`` ended.

    ``undecided``: the engine failed or the run was interrupted, which proves nothing of the image.
    """

    outcome: Proven
    reason: str = ""


class Forecast(Record):
    """What one harness will do in the image.

    ``brings`` are the pinned artifacts that come along because the image is not counted on for
    them; ``needs_mib`` is the space that the installation takes.
    """

    harness: str
    version: str | None = None
    outcome: Outcome
    brings: tuple[str, ...] = ()
    needs_mib: int | None = None
    reason: str | None = None
    cure: str | None = None
    proof: Proof | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the proof is what was predicted; None when nothing was proven or predicted."""
        if self.proof is None or self.proof.outcome == "undecided" or self.outcome == "unknown":
            return None
        return self.proof.outcome == ("cannot" if self.outcome == "cannot" else "works")


class ImagePreflight(Record):
    """One image. ``error`` says why it could not be looked at; then its facts are empty."""

    name: str
    reference: str | None = None
    image_id: str | None = None
    size: int | None = None
    seconds: float = 0.0
    error: str | None = None
    cure: str | None = None
    platform: str | None = None
    architecture: str | None = None
    distribution: str | None = None
    libc: str | None = None
    libc_version: str | None = None
    loaders: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None
    user: str | None = None
    home: str | None = None
    workdir: str | None = None
    sh: str | None = None
    tools: tuple[str, ...] = ()
    ca_file: str | None = None
    locale: str | None = None
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    healthcheck: tuple[str, ...] = ()
    places: tuple[PlaceFacts, ...] = ()
    notes: tuple[Note, ...] = ()
    forecasts: tuple[Forecast, ...] = ()


class PreflightReport(Record):
    """All images in the order in which they were named."""

    schema_version: Literal["1.0"] = "1.0"
    images: tuple[ImagePreflight, ...]
    seconds: float
    jobs: int
    engine: str
    conditions: tuple[str, ...] = ()

    @property
    def proven(self) -> int:
        """How many predictions were put to the proof."""
        return sum(forecast.agrees is not None for forecast in self._forecasts())

    @property
    def undecided(self) -> tuple[str, ...]:
        """Name the pairs ``harness/image`` whose cell proves nothing."""
        return tuple(
            f"{forecast.harness}/{image.name}"
            for image in self.images
            for forecast in image.forecasts
            if forecast.proof is not None and forecast.proof.outcome == "undecided"
        )

    @property
    def disagreements(self) -> tuple[str, ...]:
        """Name the pairs ``harness/image`` whose proof is not what was predicted."""
        return tuple(
            f"{forecast.harness}/{image.name}"
            for image in self.images
            for forecast in image.forecasts
            if forecast.agrees is False
        )

    def _forecasts(self) -> tuple[Forecast, ...]:
        return tuple(forecast for image in self.images for forecast in image.forecasts)
