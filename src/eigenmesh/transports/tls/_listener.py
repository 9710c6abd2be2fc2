"""The port of a site: it admits callers with a certificate of the authority, and limits handshakes with others."""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.transports.tls._connection import CONNECT_S, LEAVE_S, Connection
from eigenmesh.transports.tls._security import names_of, parse_address, plain_reason

logger = logging.getLogger("eigenmesh.transports.tls")

Work = Coroutine[Any, Any, None]
# Pause after a failed accept, such as when the process has no file descriptors left.
PAUSE_S = 0.1


class Listener:
    """Accepts callers at ``address``; at most ``most`` callers from one host may be in their handshake."""

    def __init__(self, address: str, context: ssl.SSLContext, max_bytes: int, most: int) -> None:
        self._context, self._max_bytes, self._most = context, max_bytes, most
        self._in_handshake: Counter[str] = Counter()
        self._socket = _bound(address)

    async def serve(
        self, start: Callable[[Work, str], None], admit: Callable[[Connection, tuple[str, ...], str], Work]
    ) -> None:
        """Accept callers until this task is cancelled; ``start`` gets the work of each handshake, and a name.

        After a handshake ``admit`` gets the connection, the names in its certificate, and its address.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                caller, (host, port, *_) = await loop.sock_accept(self._socket)
            except OSError as error:
                logger.debug("no caller can be accepted: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            if self._in_handshake[host] < self._most:
                self._in_handshake[host] += 1
                start(self._greet(caller, host, port, admit), f"greet {host}:{port}")
            else:
                caller.close()

    def close(self) -> None:
        """Close the port."""
        self._socket.close()

    async def _greet(self, caller: socket.socket, host: str, port: int, admit: Callable[..., Work]) -> None:
        connection = Connection(self._max_bytes)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                caller,
                ssl=self._context,
                ssl_handshake_timeout=CONNECT_S,
                ssl_shutdown_timeout=LEAVE_S,
            )
        except OSError as error:
            logger.warning("refused a TLS handshake from %s: %s", host, plain_reason(error))
            caller.close()
            return
        finally:
            self._in_handshake -= Counter([host])
        await admit(connection, names_of(connection.transport.get_extra_info("peercert")), f"{host}:{port}")


def _bound(address: str) -> socket.socket:
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=host == "::")
    except OSError as error:
        why = f"{plain_reason(error)}; give another port, or an address of this machine"
        raise InputError(f"cannot listen on {address}: {why}.") from None
    listener.setblocking(False)
    return listener
