"""The round trip time of a connection, as the kernel has measured it."""

import socket
import struct
from typing import Any

# The field tcpi_min_rtt of Linux's struct tcp_info, since 4.6: the shortest recent round trip, in microseconds.
_LEAST = struct.Struct("@I")
LEAST_AT = 148
# The value before the first measurement.
NOT_YET = 2**32 - 1


def round_trip_s(connected: Any) -> float:
    """The shortest round trip of the last five minutes over a TCP socket; 0 if the system does not provide it.

    ``connected`` is the socket of a connection, or None once the connection has ended.

    Kernels answer each other, so it includes neither the work of a site nor the load of its computer. It costs no
    message.
    """
    if connected is None or not hasattr(socket, "TCP_INFO"):
        return 0.0
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LEAST_AT + _LEAST.size)
    except (OSError, ValueError):
        # The socket is closed.
        return 0.0
    if len(info) < LEAST_AT + _LEAST.size:
        return 0.0
    (least,) = _LEAST.unpack_from(info, LEAST_AT)
    return 0.0 if least == NOT_YET else float(least) / 1e6
