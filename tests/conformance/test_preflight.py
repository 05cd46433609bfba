"""Preflight on a real engine: what is seen of images, and that the seed says the same."""

import io
import tarfile
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.agents.contract import EpisodeId, SeedRequest, TaskId, UnprocessableError
from sandbox.agents.setup import Setup
from sandbox.conformance.forecast import foretell, seen_roots
from sandbox.conformance.imagenames import image_name
from sandbox.conformance.preflight import preflight
from sandbox.engine.client import Engine
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.limits import Limits
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.evidence.preflight import ImagePreflight
from sandbox.harnesses.registry import registered
from sandbox.progress import PlainProgress
from sandbox.runtimes.library import RuntimeLibrary

pytestmark = pytest.mark.docker
QUIET = PlainProgress(quiet=True)
DOCKERFILE = """
FROM {base}
RUN mkdir -p /root/.codex /srv/task && echo x > /srv/task/AGENTS.md
ENV OPENAI_API_KEY=sk-never-shown NODE_OPTIONS=--x LANG=C.UTF-8
VOLUME /srv
HEALTHCHECK CMD /bin/check
WORKDIR /srv/task
ENTRYPOINT ["/start.sh"]
"""


@pytest.fixture
def strange(engine: Engine) -> Iterator[str]:
    """An image with everything that a task image may have and should not."""
    base = ensure_image(engine, image_definition("alpine-3.23"), QUIET)
    name = f"test-{uuid.uuid4().hex[:12]}:1"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        data = DOCKERFILE.format(base=base.image_id).encode()
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    context.seek(0)
    events = engine.sdk.api.build(
        fileobj=context, custom_context=True, tag=name, rm=True, forcerm=True, decode=True
    )
    problems = [event["error"] for event in events if "error" in event]
    try:
        assert problems == []
        yield name
    finally:
        engine.sdk.images.remove(name, force=True)


def look(engine: Engine, *names: str) -> tuple[ImagePreflight, ...]:
    with RuntimeLibrary() as library:
        return preflight(engine, names, registered().harnesses, library, QUIET).images


def test_a_strange_image_an_ordinary_one_and_none(engine: Engine, strange: str) -> None:
    odd, plain, lost = look(
        engine, image_name(strange), "alpine-3.23-nonroot", "a/b@sha256:" + "0" * 64
    )
    assert odd.entrypoint == ("/start.sh",)
    assert odd.volumes == ("/srv",)
    found = {(note.kind, note.subject) for note in odd.notes}
    assert found >= {
        ("entrypoint", "/start.sh"),
        ("volume", "/srv"),
        ("healthcheck", "/bin/check"),
        ("environment", "OPENAI_API_KEY"),
        ("environment", "NODE_OPTIONS"),
        ("project", "/srv/task/AGENTS.md"),
        ("project", "/root/.codex"),
    }
    assert "sk-never-shown" not in odd.model_dump_json()
    assert {one.outcome for one in odd.forecasts} <= {"works", "works with"}
    assert (plain.uid, plain.user, plain.home) == (1001, "agent", "/home/agent")
    places = {place.path: place for place in plain.places}
    assert places["/srv/tasks/one"].writable
    assert places["/tmp"].options == ("nosuid", "nodev")
    assert places["/tmp"].free_mib == 1024
    assert not places["/run"].writable
    assert lost.error is not None
    assert lost.forecasts == ()


def test_an_image_without_a_shell_is_read_and_refused(engine: Engine) -> None:
    (none,) = look(engine, "no-shell")
    assert (none.libc, none.libc_version, none.sh) == ("glibc", "2.36", "none")
    assert {one.outcome for one in none.forecasts} == {"cannot"}
    assert all("no /bin/sh" in (one.reason or "") and one.cure for one in none.forecasts)


class Reached(Exception):
    """The seed refused nothing: it is about to fetch the runtime."""


class NothingFetched:
    """Stands for the runtimes of a seed; what is asked of the lock is answered, then it ends."""

    def __init__(self, library: RuntimeLibrary) -> None:
        self._library = library

    def refusals(self, *asked: Any) -> Any:
        return self._library.refusals(*asked)

    def bundle(self, harness: str, platform: str) -> Any:
        self._library.needs(harness, platform)
        raise Reached

    def room(self, *_: object) -> int:
        raise AssertionError("nothing is fetched, so nobody asks")

    def install(self, *_: object) -> Any:
        raise AssertionError("nothing is to be installed")


@pytest.mark.parametrize("image", ["alpine-3.23-nonroot", "busybox-only"])
@pytest.mark.parametrize("limits", [Limits(), Limits(tmp_mib=64)], ids=["plain", "tiny-tmp"])
def test_the_seed_says_what_was_foretold(engine: Engine, image: str, limits: Limits) -> None:
    """No second rule book: where a seed goes on, preflight foretells no refusal, and back."""
    ref = ensure_image(engine, image_definition(image), QUIET).ref
    owner = Ownership.current(run_id="test", cell_id="preflight")
    with RuntimeLibrary() as library, Sandbox(engine, ref, owner=owner, limits=limits) as box:
        seen = seen_roots(box, box.facts())
        for harness in registered().harnesses.values():
            told = foretell(harness, library, box.facts(), seen, lambda size: 2 * size)
            setup = Setup(
                harness=harness,
                runtimes=NothingFetched(library),
                cancel=threading.Event(),
                made=lambda _: None,
            )
            request = SeedRequest(
                agent_session_id="s1",
                episode_id=EpisodeId(rollout_id="r1", attempt=1),
                task_id=TaskId(task_source="test", task_id="t1"),
            )
            try:
                setup.prepare(request, box)
            except Reached:
                refused = None
            except UnprocessableError as error:
                refused = error.message
            if refused is not None:
                assert told.reason == refused
            elif told.outcome == "cannot":
                assert "MiB needed" in (told.reason or ""), "only the size is asked for later"
