"""Make every IPv4 address one of the network namespace's own, so that what goes anywhere is seen.

A route of type ``local`` over loopback for 0.0.0.0/0, as ``ip route add local 0.0.0.0/0 dev lo``
makes it, by rtnetlink(7): nothing of that is needed in the image or on the host.
"""

from __future__ import annotations

import os
import socket
import struct

_RTM_NEWROUTE = 24
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_EXCL, _NLM_F_CREATE = 0x1, 0x4, 0x200, 0x400
_NLMSG_ERROR = 2
_RT_TABLE_LOCAL, _RTPROT_STATIC, _RT_SCOPE_HOST, _RTN_LOCAL = 255, 4, 254, 2
_RTA_OIF = 4
_HEAD = struct.Struct("=IHHII")


def keep_all_addresses() -> None:
    """Add the route in the network namespace of the calling thread.

    Raises:
        OSError: this process may not, or there is such a route.
    """
    loopback = socket.if_nametoindex("lo")
    body = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, 0, 0, 0,
        _RT_TABLE_LOCAL, _RTPROT_STATIC, _RT_SCOPE_HOST, _RTN_LOCAL, 0,
    ) + struct.pack("=HHI", 8, _RTA_OIF, loopback)  # fmt: skip
    flags = _NLM_F_REQUEST | _NLM_F_ACK | _NLM_F_EXCL | _NLM_F_CREATE
    message = _HEAD.pack(_HEAD.size + len(body), _RTM_NEWROUTE, flags, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(message)
        answer = kernel.recv(4096)
    _, kind, _, _, _ = _HEAD.unpack_from(answer)
    code = struct.unpack_from("=i", answer, _HEAD.size)[0] if kind == _NLMSG_ERROR else 0
    if code:
        raise OSError(-code, os.strerror(-code))
