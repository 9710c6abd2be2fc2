"""One TLS connection: it carries messages, each with its length in front."""

import asyncio
import struct
from collections.abc import Callable
from typing import cast

from eigenmesh.transports.tls._round_trip import round_trip_s
from eigenmesh.transports.tls._security import plain_reason

_LENGTH = struct.Struct("<Q")
# The first message of a listener; it tells the caller that its certificate was accepted.
WELCOME = b"eigenmesh"
# Longest time for a handshake, and for the rest of the data when a connection is closed.
CONNECT_S, LEAVE_S = 10.0, 1.0


def prefixed(message: bytes) -> bytes:
    """A message as it is sent: its length, then its bytes."""
    return _LENGTH.pack(len(message)) + message


class MessageReader:
    """Splits the incoming bytes into messages; none may be longer than ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._got, self._end = bytearray(), 0

    def add(self, data: bytes) -> list[bytes]:
        """The messages that are now complete; raises ValueError if a message is announced that is too long."""
        self._got += data
        whole = []
        while len(self._got) >= (self._end or _LENGTH.size):
            if self._end:
                whole.append(bytes(memoryview(self._got)[_LENGTH.size : self._end]))
                del self._got[: self._end]
                self._end = 0
            else:
                (length,) = _LENGTH.unpack_from(self._got)
                if length > self._max_bytes:
                    raise ValueError(f"a message of {length} bytes is announced; at most {self._max_bytes} are read.")
                self._end = _LENGTH.size + length
        return whole


class Connection(asyncio.Protocol):
    """Reads and writes messages.

    Attributes
    ----------
    take : called with each message; a message that comes before it is set ends the connection.
    ended : called with the reason when the connection has ended.
    silent : ticks since the last byte arrived; counted by the caller.
    round_trip_s : round trip time of a packet at the last ``look``; 0 if unknown.
    """

    transport: asyncio.Transport

    def __init__(self, max_bytes: int) -> None:
        self._incoming, self._reason = MessageReader(max_bytes), ""
        self.take: Callable[[bytes], object] = lambda message: self.abort("it sent a message before it was asked")
        self.ended: Callable[[str], object] = lambda reason: None
        self.silent, self.round_trip_s = 0, 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.silent = 0
        try:
            messages = self._incoming.add(data)
        except ValueError as error:
            self.abort(str(error))
            return
        for message in messages:
            self.take(message)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended(self._reason or (plain_reason(error) if error else ""))

    def look(self) -> None:
        """Update the round trip time."""
        self.round_trip_s = round_trip_s(self.transport.get_extra_info("socket")) or self.round_trip_s

    def write(self, message: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(prefixed(message))

    def close(self) -> None:
        """End the connection after everything is written."""
        self.transport.close()

    def abort(self, reason: str) -> None:
        """End the connection at once."""
        self._reason = self._reason or reason
        self.transport.abort()
