"""How long a packet takes to the other end of a connection and back, as the kernel has seen it."""

import socket
import struct
from typing import Any

# In Linux's struct tcp_info, since 4.6: the least round trip of the last minutes, in microseconds.
_LEAST = struct.Struct("@I")
LEAST_AT = 148
# What it says before the first one.
NOT_YET = 2**32 - 1


def round_trip_s(connected: Any) -> float:
    """The least round trip of the last five minutes over a TCP socket; 0 where the system does not tell.

    Kernels answer each other, so neither the work of a site nor the load of its machine is in it. It costs no message.
    """
    if not hasattr(socket, "TCP_INFO"):
        return 0.0
    try:
        told = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LEAST_AT + _LEAST.size)
    except (OSError, ValueError):
        # It is closed.
        return 0.0
    if len(told) < LEAST_AT + _LEAST.size:
        return 0.0
    (least,) = _LEAST.unpack_from(told, LEAST_AT)
    return 0.0 if least == NOT_YET else float(least) / 1e6
