"""The pump: standard input goes in, output comes out, and something always ends it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from sandbox.engine.output import Demultiplexer
from sandbox.engine.pump import BUFFER_BYTES, HELD_S, Ending, Pump
from sandbox.engine.stream import HijackedConnection


@pytest.fixture
def ends() -> Iterator[tuple[HijackedConnection, socket.socket]]:
    near, far = socket.socketpair()
    near.settimeout(0.0)
    connection = HijackedConnection(near, None, b"")
    yield connection, far
    connection.close()
    connection.close()
    far.close()


def soon(seconds: float = 30.0) -> float:
    return time.monotonic() + seconds


def pump(connection: HijackedConnection, out: bytearray, stdin: list[bytes] | None = None) -> Pump:
    return Pump(connection, Demultiplexer(stdout=out.extend, stderr=out.extend), stdin)


def frame(data: bytes) -> bytes:
    return b"\x01\0\0\0" + len(data).to_bytes(4, "big") + data


def test_it_ends_with_the_output(ends: tuple[HijackedConnection, socket.socket]) -> None:
    connection, far = ends
    far.sendall(frame(b"hello"))
    far.shutdown(socket.SHUT_WR)
    out = bytearray()
    assert pump(connection, out).run(soon()) is Ending.FINISHED
    assert out == b"hello"


def test_bytes_that_came_early_are_not_lost() -> None:
    near, far = socket.socketpair()
    near.settimeout(0.0)
    connection = HijackedConnection(near, None, frame(b"early"))
    far.sendall(frame(b" late"))
    far.close()
    out = bytearray()
    assert pump(connection, out).run(soon()) is Ending.FINISHED
    assert out == b"early late"
    connection.close()


def test_large_input_while_output_flows(ends: tuple[HijackedConnection, socket.socket]) -> None:
    connection, far = ends

    def echo() -> None:
        while data := far.recv(1 << 16):
            far.sendall(frame(data))
        far.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=echo)
    thread.start()
    out, pieces = bytearray(), [bytes([number]) * 100_000 for number in range(50)]
    assert pump(connection, out, [*pieces, b""]).run(soon(20)) is Ending.FINISHED
    thread.join()
    assert out == b"".join(pieces)


def test_input_that_nobody_takes_is_dropped(ends: tuple[HijackedConnection, socket.socket]) -> None:
    connection, far = ends
    far.close()
    assert pump(connection, bytearray(), [b"x" * 10_000_000]).run(soon()) is Ending.FINISHED


def test_the_deadline_ends_it(ends: tuple[HijackedConnection, socket.socket]) -> None:
    connection, far = ends
    far.sendall(frame(b"part"))
    out = bytearray()
    assert pump(connection, out).run(soon(0.1)) is Ending.TIMED_OUT
    assert out == b"part"


def test_cancelling_ends_it(ends: tuple[HijackedConnection, socket.socket]) -> None:
    cancel = threading.Event()
    threading.Timer(0.1, cancel.set).start()
    assert pump(ends[0], bytearray()).run(soon(), cancel=cancel) is Ending.CANCELLED


def test_an_ended_command_whose_output_is_held_open(
    ends: tuple[HijackedConnection, socket.socket],
) -> None:
    assert pump(ends[0], bytearray()).run(soon(), ended=lambda: HELD_S) is Ending.FINISHED


def test_output_after_the_end_was_seen_still_counts(
    ends: tuple[HijackedConnection, socket.socket],
) -> None:
    connection, far = ends
    out = bytearray()
    asked = []

    def ended() -> float | None:
        asked.append(len(asked))
        if asked == [0, 1, 2]:
            far.sendall(frame(b"late"))  # while it is asked for what would be the last time
        return None if asked == [0] else HELD_S

    assert pump(connection, out).run(soon(), ended=ended) is Ending.FINISHED
    assert out == b"late"


def test_output_that_is_on_its_way_is_waited_for(
    ends: tuple[HijackedConnection, socket.socket],
) -> None:
    connection, far = ends

    def come() -> None:
        far.sendall(frame(b"much later"))
        far.shutdown(socket.SHUT_WR)

    out = bytearray()
    timer = threading.Timer(4 * HELD_S, come)
    timer.start()
    assert pump(connection, out).run(soon(60), ended=lambda: 30.0) is Ending.FINISHED
    timer.join()
    assert out == b"much later"


def test_drain_takes_what_is_left(ends: tuple[HijackedConnection, socket.socket]) -> None:
    connection, far = ends
    far.sendall(frame(b"rest"))
    out = bytearray()
    pump(connection, out, [b"never sent"]).drain(0.1)
    assert out == b"rest"


def test_bytes_that_wake_no_selector_are_taken_at_once() -> None:
    near, far = socket.socketpair()
    near.settimeout(0.0)
    early = frame(bytes(3 * BUFFER_BYTES))
    connection = HijackedConnection(near, None, early)
    out = bytearray()
    output = Demultiplexer(stdout=out.extend, stderr=out.extend)
    whole = Pump(connection, output, None, complete=lambda: len(out) == 3 * BUFFER_BYTES)
    assert whole.run(soon()) is Ending.FINISHED
    connection.close()
    far.close()


class HeldAtTheEnd(HijackedConnection):
    """Finds, when its input is ended, bytes that no selector tells of, as TLS may."""

    def close_write(self) -> None:
        self._early = frame(b"held")


def test_bytes_that_turn_up_with_the_inputs_end_are_taken_at_once() -> None:
    near, far = socket.socketpair()
    near.settimeout(0.0)
    connection = HeldAtTheEnd(near, None, b"")
    out = bytearray()
    output = Demultiplexer(stdout=out.extend, stderr=out.extend)
    whole = Pump(connection, output, [b"x"], complete=lambda: out == b"held")
    assert whole.run(soon()) is Ending.FINISHED
    connection.close()
    far.close()
