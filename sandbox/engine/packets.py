"""Packets that want to leave a sandbox, seen on its loopback interface by a packet socket.

Formats: IPv4 RFC 791, TCP RFC 9293 3.1, UDP RFC 768, ICMP RFC 792; the filter is classic BPF
(linux/filter.h). Only what begins something is taken: the SYN of a connection, a datagram, an echo
request; and nothing to 127.0.0.0/8, which is the sandbox itself.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Literal

from sandbox.engine.serving import stamp_arrivals

SNAP = 128
"""Octets of a packet that are needed: the largest heads of IPv4 and TCP."""

_ETH_P_IP = 0x0800
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_BUFFER = 4 << 20
_ICMP, _TCP, _UDP = 1, 6, 17
_SYN, _ACK, _ECHO = 0x02, 0x10, 8
_FILTER: tuple[tuple[int, int, int, int], ...] = (
    (0x20, 0, 0, 16),  # the destination
    (0x54, 0, 0, 0xFF000000),
    (0x15, 8, 0, 127 << 24),  # loopback: drop
    (0x30, 0, 0, 9),  # the protocol
    (0x15, 7, 0, _UDP),  # keep
    (0x15, 6, 0, _ICMP),  # keep
    (0x15, 0, 4, _TCP),  # anything else: drop
    (0xB1, 0, 0, 0),  # X = the length of the head
    (0x50, 0, 0, 13),  # the flags
    (0x54, 0, 0, _SYN | _ACK),
    (0x15, 1, 0, _SYN),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, SNAP),
)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The beginning of something to ``address``; ports are None of an echo request."""

    kind: Literal["tcp", "udp", "icmp"]
    source: str
    source_port: int | None
    address: str
    port: int | None


def attempt_in(packet: bytes) -> Attempt | None:
    """Read an IPv4 packet's heads; None: it begins nothing, or goes to the sandbox itself."""
    if len(packet) < 20 or packet[0] >> 4 != 4 or packet[16] == 127:
        return None
    size = 4 * (packet[0] & 0xF)
    source, address = str(IPv4Address(packet[12:16])), str(IPv4Address(packet[16:20]))
    protocol, body = packet[9], packet[size:]
    if int.from_bytes(packet[6:8]) & 0x1FFF or size < 20:
        return None  # a later fragment has no head of its own
    if protocol == _ICMP and body[:1] == bytes([_ECHO]):
        return Attempt(kind="icmp", source=source, source_port=None, address=address, port=None)
    begins = len(body) >= 14 and body[13] & (_SYN | _ACK) == _SYN
    if len(body) < 8 or not (protocol == _UDP or (protocol == _TCP and begins)):
        return None
    ports = struct.unpack_from("!HH", body)
    return Attempt(
        kind="udp" if protocol == _UDP else "tcp",
        source=source,
        source_port=ports[0],
        address=address,
        port=ports[1],
    )


def packet_socket() -> socket.socket:
    """Make the socket in the network namespace of the calling thread.

    Raises:
        OSError: this process may not.
    """
    made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)  # hears nothing before its filter
    try:
        _attach(made)
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        stamp_arrivals(made)
        made.bind(("lo", _ETH_P_IP))
    except BaseException:
        made.close()
        raise
    return made


def _attach(made: socket.socket) -> None:
    code = b"".join(struct.pack("HBBI", *one) for one in _FILTER)
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HP", len(_FILTER), ctypes.addressof(kept))
    made.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def lost(made: socket.socket) -> int:
    """Tell how many packets there was no room for since this was asked last."""
    told = made.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
    return int(struct.unpack("II", told)[1])
