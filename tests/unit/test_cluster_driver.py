"""A plan driven through a cluster that tests play: what is told, written, retried and refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from sandbox.conformance.cluster.dispatch import Attempt
from sandbox.conformance.cluster.driver import Driver, Patience
from sandbox.conformance.cluster.ports import Member
from sandbox.conformance.job import CellJob
from sandbox.conformance.plan import CellSpec
from sandbox.engine.images import LoadedImage
from sandbox.errors import (
    ClusterLost,
    EngineFailure,
    IntegrityError,
    PrerequisiteMissing,
    Unsupported,
)

QUICK = Patience(poll=0.001, silence=0.03, workers=0.03, end=0.05)
IMAGE = LoadedImage(
    name="i", image_id="sha256:1", ref="i:1", libc="musl", libc_version="1", arch="x64",
    platform="linux-x64-musl", recipe_sha256="", route="given", size=1,
)  # fmt: skip


def jobs(number: int) -> list[CellJob]:
    return [
        CellJob(
            spec=CellSpec(harness="h", image=str(n), scenario="s"),
            run_id="r", image=IMAGE, image_content="c", pin=None, scenario="d",
        )
        for n in range(number)
    ]  # fmt: skip


@dataclass
class Played:
    """A cluster; ``does`` is what a worker does with a job, ``refuses`` why some are refused."""

    there: dict[str, Member]
    does: Callable[[str, CellJob], object] = lambda worker, job: worker.encode()
    refuses: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False
    beating: bool = True
    cancelled: threading.Event = field(default_factory=threading.Event)

    async def members(self) -> Mapping[str, Member]:
        if self.lost:
            raise ClusterLost("the scheduler is lost")
        if self.beating:
            self.there = {
                name: Member(name=one.name, slots=one.slots, beat=one.beat + (one.beat >= 0))
                for name, one in self.there.items()
            }
        return dict(self.there)

    async def admit(self, worker: str, name: str) -> None:
        if worker in self.refuses:
            raise Unsupported(self.refuses[worker])

    async def run(self, worker: str, job: CellJob, *, number: int) -> bytes:
        answer = self.does(worker, job)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            while not self.cancelled.is_set():
                await asyncio.sleep(0.001)
            return b"interrupted"
        assert isinstance(answer, bytes)
        return answer

    async def cancel(self) -> None:
        self.cancelled.set()

    async def finish(self) -> None: ...


@dataclass
class Written:
    cells: list[tuple[str, bytes]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    cancel: threading.Event = field(default_factory=threading.Event)

    def drive(self, cluster: Played, number: int = 3) -> Driver:
        def write(attempt: Attempt, tar: bytes) -> None:
            if tar == b"rubbish":
                raise IntegrityError("no cell folder")
            self.cells.append((attempt.cell.cell_id, tar))

        driver = Driver(
            cluster=cluster, jobs=jobs(number), write=write, say=self.lines.append,
            cancel=self.cancel, patience=QUICK,
        )  # fmt: skip
        asyncio.run(driver.run())
        return driver


def member(name: str, slots: int = 1, beat: float = 0) -> Member:
    return Member(name=name, slots=slots, beat=beat)


def test_every_cell_is_written_once_by_whom_is_free() -> None:
    written = Written()
    written.drive(Played({"a": member("one"), "b": member("two", 2)}), 5)
    assert sorted(name for name, _ in written.cells) == [f"h/{n}/s" for n in range(5)]
    assert {tar for _, tar in written.cells} == {b"a", b"b"}


def test_a_worker_that_vanishes_is_replaced_and_its_cell_tells_it() -> None:
    cluster, seen = Played({"a": member("one")}), []

    def does(worker: str, job: CellJob) -> object:
        seen.append((worker, [one.reason for one in job.earlier]))
        if worker == "b":
            return b"answer"
        cluster.there = {"b": member("two")}
        return None

    cluster.does = does
    written = Written()
    written.drive(cluster, 1)
    assert seen == [("a", []), ("b", ["worker one is gone while it ran the cell"])]
    assert written.cells == [("h/0/s", b"answer")]
    assert "worker one is gone; 1 cell(s) are tried elsewhere" in written.lines


def test_a_silent_worker_is_given_up_and_its_late_answer_is_not_written() -> None:
    cluster = Played({"mute": member("mute", beat=-1), "b": member("two")})
    cluster.does = lambda worker, job: None if worker == "mute" else b"answer"
    written = Written()
    written.drive(cluster, 2)
    assert [tar for _, tar in written.cells] == [b"answer", b"answer"]
    assert any("worker mute gave no sign of life" in line for line in written.lines)


@pytest.mark.parametrize("wrong", [EngineFailure("no engine"), b"rubbish"], ids=["error", "bytes"])
def test_what_a_worker_cannot_do_is_done_by_another(wrong: object) -> None:
    cluster = Played({"a": member("one"), "b": member("two")})
    cluster.does = lambda worker, job: wrong if worker == "a" else b"answer"
    written = Written()
    driver = written.drive(cluster, 4)
    assert sorted(written.cells) == [(f"h/{n}/s", b"answer") for n in range(4)]
    assert driver.dispatch.given_up == ()
    assert "left out: worker one, which fails time after time" in written.lines


@pytest.mark.parametrize(
    ("there", "refuses", "says"),
    [
        ({}, {}, "has no worker"),
        ({"a": member("one", 0)}, {}, r"no worker declares engine slots \(one\)"),
        ({"a": member("one")}, {"a": "worker one: its pins differ"}, "its pins differ"),
    ],
    ids=["none", "no slots", "refused"],
)
def test_without_a_usable_worker_nothing_begins(
    there: dict[str, Member], refuses: dict[str, str], says: str
) -> None:
    with pytest.raises(PrerequisiteMissing, match=says):
        Written().drive(Played(there, refuses=refuses))


def test_a_refused_worker_does_not_keep_the_others_from_working() -> None:
    cluster = Played({"a": member("one"), "b": member("two")}, refuses={"a": "worker one: old"})
    written = Written()
    written.drive(cluster)
    assert {tar for _, tar in written.cells} == {b"b"}
    assert "left out: worker one: old" in written.lines


def test_what_came_before_the_scheduler_was_lost_is_written() -> None:
    cluster, written = Played({"a": member("one")}), Written()

    def does(worker: str, job: CellJob) -> object:
        cluster.lost = job.spec.image == "1"
        return None if cluster.lost else b"answer"

    cluster.does = does
    with pytest.raises(ClusterLost):
        written.drive(cluster)
    assert written.cells == [("h/0/s", b"answer")]


def test_a_run_whose_last_worker_is_gone_ends() -> None:
    cluster = Played({"a": member("one")})

    def does(worker: str, job: CellJob) -> object:
        cluster.there = {}
        return None

    cluster.does = does
    with pytest.raises(ClusterLost, match="the last worker is gone"):
        Written().drive(cluster)


def test_an_interrupted_run_takes_what_was_seen_and_begins_nothing() -> None:
    written = Written()

    def does(worker: str, job: CellJob) -> object:
        written.cancel.set()
        return None

    written.drive(Played({"a": member("one")}, does), 3)
    assert written.cells == [("h/0/s", b"interrupted")]
