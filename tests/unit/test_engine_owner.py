"""Ownership: labels say whose a thing is, and only proof makes an owner dead."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.engine.owner import Ownership, is_ending, owner_is_alive, start_ticks

WORDS = st.text(max_size=30)


@given(
    st.builds(
        Ownership,
        project=WORDS,
        run_id=WORDS,
        cell_id=WORDS,
        pid=st.integers(0, 1 << 22),
        pid_started=st.integers(0, 1 << 50),
        pid_namespace=WORDS,
        boot_id=WORDS,
        machine=WORDS,
    )
)
def test_labels_are_read_back(owner: Ownership) -> None:
    labels = owner.labels()
    assert all(isinstance(value, str) for value in labels.values())
    assert Ownership.from_labels({**labels, "other": "label"}) == owner


@pytest.fixture
def me() -> Ownership:
    return Ownership.current(run_id="r", cell_id="codex/debian-12/tool_success")


def changed(owner: Ownership, **fields: object) -> dict[str, str]:
    return owner.model_copy(update=fields).labels()


def test_this_process_is_alive(me: Ownership) -> None:
    assert me.pid == os.getpid()
    assert owner_is_alive(me.labels())


def test_an_ended_process_is_dead(me: Ownership) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as ended:
        started = start_ticks(ended.pid)
    assert not owner_is_alive(changed(me, pid=ended.pid, pid_started=started))


def test_a_zombie_is_dead(me: Ownership) -> None:
    with subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        assert start_ticks(zombie.pid) is None
        assert is_ending(zombie.pid)
        assert not owner_is_alive(changed(me, pid=zombie.pid))


def test_a_process_that_the_kernel_ends_is_ending(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    for flags, ending in ((0x400100, False), (0x400104, True)):
        (tmp_path / "7/stat").write_text(f"7 (init) S 1 7 7 0 -1 {flags} {'0 ' * 43}\n")
        assert is_ending(7, proc=tmp_path) is ending
    assert is_ending(8, proc=tmp_path)
    assert not is_ending(os.getpid())


def test_a_reused_pid_is_another_process(me: Ownership) -> None:
    assert not owner_is_alive(changed(me, pid_started=me.pid_started - 1))


def test_another_boot_is_dead(me: Ownership) -> None:
    assert not owner_is_alive(changed(me, boot_id="earlier"))


@pytest.mark.parametrize("field", ["machine", "pid_namespace"])
def test_what_cannot_be_seen_from_here_may_live(me: Ownership, field: str) -> None:
    assert owner_is_alive(changed(me, **{field: "elsewhere", "pid_started": 1}))


@pytest.mark.parametrize("name", sorted(Ownership.model_fields))
def test_incomplete_labels_prove_nothing(me: Ownership, name: str) -> None:
    labels = changed(me, boot_id="earlier")
    del labels[f"sandbox.{name}"]
    assert Ownership.from_labels(labels) is None
    assert owner_is_alive(labels)


def test_unreadable_labels_prove_nothing(me: Ownership) -> None:
    assert owner_is_alive({**me.labels(), "sandbox.pid": "many"})
    assert owner_is_alive({})


@given(st.text(alphabet="ab() \n)", min_size=1, max_size=15))
def test_process_names_with_brackets_and_blanks(tmp_path_factory: object, name: str) -> None:
    folder = Path(tmp_path_factory.mktemp("proc")) / "7"  # type: ignore[attr-defined]
    folder.mkdir()
    rest = " ".join(str(number) for number in range(4, 52))
    (folder / "stat").write_text(f"7 ({name}) S {rest}\n")
    assert start_ticks(7, proc=folder.parent) == 22
