"""A network on which calls are refused or arrive twice, and a site opens streams of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from eigenmesh.rehearsal.virtual_time import VirtualTime
from eigenmesh.rehearsal.world import Link, Process, VirtualNetwork, VirtualStream

# Index of the caller among the two ends of a stream.
CALLER = 0


class FaultyNetwork(VirtualNetwork):
    """A network whose messages travel for between one and two times ``delay_s``.

    Attributes
    ----------
    twice_until : by sender and receiver, before this time the listener sees every call twice.
    """

    def __init__(self, time: VirtualTime, delay_s: Mapping[Link, float]) -> None:
        super().__init__(time, delay_s, self._drawn_s)
        self.twice_until: dict[Link, float] = {}

    def _drawn_s(self, link: Link, n_bytes: int) -> float:
        return self._delay(link) * (1.0 + self.time.random.random())

    def _connect(self, caller: Process | None, listener: Process, name: str) -> VirtualStream:
        connection = super()._connect(caller, listener, name)
        if caller is not None and self.twice_until.get((name, listener.site), 0.0) > self.time.now:
            ghost = super()._connect(None, listener, name)
            # The second stream sends a copy of the greeting, or nothing.
            if self.time.random.random() < 0.5:
                caller.watch_greeting(connection.number, partial(self._carry, ghost, CALLER))
            self.time.after(12.0, self.close, ghost, CALLER, "the copy ends")
        return connection

    def open_as(self, caller: Process, target: str) -> int | None:
        """Open a stream in addition to those of the machine, on which the site can misbehave."""
        listener = self.listener_of(target)
        return None if listener is None else self._connect(None, listener, caller.site).number

    def send_as_caller(self, number: int, data: bytes) -> None:
        connection = self.connections.get(number)
        if connection is not None:
            self._carry(connection, CALLER, data)

    def between(self, first: str, second: str) -> Iterator[VirtualStream]:
        """The open streams of a link."""
        return (one for one in list(self.connections.values()) if set(one.names) == {first, second})
