"""A connection joined with a command's streams: every byte both ways, and each end on its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.engine.output import STDERR, STDOUT
from sandbox.engine.splice import Splice
from sandbox.engine.stream import HijackedConnection


def framed(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@contextmanager
def spliced(early: bytes = b"") -> Iterator[tuple[socket.socket, socket.socket, threading.Event]]:
    """Give the client's end, the command's end, and what stops; the splice ends with the block."""
    client, near = socket.socketpair()
    command, far = socket.socketpair()
    far.settimeout(0.0)
    stop = threading.Event()
    splice = Splice(near, HijackedConnection(far, None, early))
    thread = threading.Thread(target=splice.run, args=(stop.is_set,))
    thread.start()
    try:
        with client, command, near, far:
            for one in (client, command):
                one.settimeout(10)
            yield client, command, stop
            command.close()
            thread.join(10)
            assert not thread.is_alive()
    finally:
        stop.set()
        thread.join(10)


def received(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := peer.recv(1 << 16)):
        data += more
    return data


def test_small_words_go_at_once_and_ends_go_one_by_one() -> None:
    with spliced(early=framed(STDOUT, b"early ")) as (client, command, _):
        command.sendall(framed(STDOUT, b"words"))
        assert received(client, 11) == b"early words"
        client.sendall(b"asked")
        assert received(command, 5) == b"asked"
        command.sendall(framed(STDERR, b"11\n"))
        assert client.recv(10) == b""  # the command's output has ended,
        client.sendall(b"more")
        assert received(command, 4) == b"more"  # its input goes on
        client.shutdown(socket.SHUT_WR)
        assert command.recv(10) == b""


def test_much_more_than_fits_arrives_whole_both_ways() -> None:
    much = bytes(range(256)) * 8192
    with spliced() as (client, command, _):
        sending = [
            threading.Thread(target=client.sendall, args=(much,)),
            threading.Thread(target=command.sendall, args=(framed(STDOUT, much),)),
        ]
        for one in sending:
            one.start()
        assert received(command, len(much)) == much
        assert received(client, len(much)) == much
        for one in sending:
            one.join()


def test_the_count_may_come_before_the_bytes() -> None:
    with spliced() as (client, command, _):
        command.sendall(framed(STDOUT, b"some ") + framed(STDERR, b"1"))
        command.sendall(framed(STDERR, b"0\n"))
        assert received(client, 5) == b"some "
        command.sendall(framed(STDOUT, b"bytes"))
        assert received(client, 6) == b"bytes"  # and then the end


def test_the_commands_end_ends_the_connection_after_its_last_words() -> None:
    with spliced() as (client, command, _):
        command.sendall(framed(STDOUT, b"last"))
        command.close()
        assert received(client, 4) == b"last"


def test_it_stops_when_it_is_told_so() -> None:
    with spliced() as (_, _, stop):
        stop.set()
