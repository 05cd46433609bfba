"""Packets that want to leave: which of them begin something, and where they were to go."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.engine.counters import RouteCounter, without_route
from sandbox.engine.packets import Attempt, attempt_in
from sandbox.engine.sink import SinkNames

TCP, UDP, ICMP = 6, 17, 1


def packet(
    protocol: int, body: bytes, *, to: str = "192.0.2.7", options: bytes = b"", offset: int = 0
) -> bytes:
    head = struct.pack(
        "!BBHHHBBH", 0x45 + len(options) // 4, 0, 20 + len(options) + len(body), 1, offset, 64,
        protocol, 0,
    )  # fmt: skip
    return head + socket.inet_aton("192.0.2.1") + socket.inet_aton(to) + options + body


def segment(flags: int) -> bytes:
    return struct.pack("!HHIIBBHHH", 40000, 443, 1, 0, 0x50, flags, 1000, 0, 0)


DATAGRAM = struct.pack("!HHHH", 40000, 53, 8, 0)


@pytest.mark.parametrize(
    ("given_", "kind", "port"),
    [
        (packet(TCP, segment(0x02)), "tcp", 443),
        (packet(TCP, segment(0xC2)), "tcp", 443),  # with congestion notification
        (packet(TCP, segment(0x02), options=b"\x01" * 8), "tcp", 443),
        (packet(UDP, DATAGRAM), "udp", 53),
        (packet(ICMP, b"\x08\x00" + bytes(6)), "icmp", None),
    ],
)
def test_what_begins_something(given_: bytes, kind: str, port: int | None) -> None:
    found = attempt_in(given_)
    assert found is not None
    assert (found.kind, found.address, found.port) == (kind, "192.0.2.7", port)
    assert found.source == "192.0.2.1"
    assert found.source_port == (None if kind == "icmp" else 40000)


@pytest.mark.parametrize(
    "given_",
    [
        packet(TCP, segment(0x12)),  # an answer
        packet(TCP, segment(0x10)),
        packet(TCP, segment(0x04)),
        packet(TCP, segment(0x02), to="127.0.0.53"),
        packet(UDP, DATAGRAM, to="127.0.0.1"),
        packet(UDP, DATAGRAM, offset=7),  # a later fragment
        packet(UDP, DATAGRAM[:7]),
        packet(TCP, segment(0x02)[:13]),
        packet(ICMP, b"\x00\x00"),
        packet(ICMP, b""),
        packet(47, bytes(20)),
        b"\x60" + bytes(60),  # IPv6
        b"\x41" + bytes(40),  # a head that is too short
        b"",
    ],
)
def test_what_does_not(given_: bytes) -> None:
    assert attempt_in(given_) is None


@given(st.binary(max_size=120))
def test_any_bytes_are_read(data: bytes) -> None:
    found = attempt_in(data)
    assert found is None or isinstance(found, Attempt)


def test_a_name_keeps_its_address() -> None:
    names = SinkNames()
    first = names.address_of("One.test")
    assert first is not None
    assert names.address_of("two.test") not in {first, None}
    assert names.address_of("one.TEST") == first
    assert names.name_of(first) == "one.test"
    assert names.name_of("192.0.2.1") is None


def test_there_are_only_so_many_addresses() -> None:
    names = SinkNames(IPv4Network("198.18.0.0/29"))
    given_ = [names.address_of(f"{number}.test") for number in range(6)]
    assert given_ == [f"198.18.0.{number}" for number in range(1, 7)]
    assert names.address_of("one-more.test") is None
    assert names.address_of("5.test") == given_[5]


def test_the_kernel_counts_what_has_no_route() -> None:
    counted = "Ip: OutRequests OutNoRoutes\nIp: 9 4\nIpExt: InNoRoutes\nIpExt: 7\n"
    assert without_route(counted) == 4
    assert without_route(counted + "Ip6OutNoRoutes \t2\n") == 6
    assert without_route("IpExt: InNoRoutes\nIpExt: 7\n") is None
    counter = RouteCounter()
    try:
        before = counter.read()
        assert counter.read() >= before >= 0
    finally:
        counter.close()
