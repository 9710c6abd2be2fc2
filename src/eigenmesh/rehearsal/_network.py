"""Streams between processes: messages stay in order; streams may be slow, broken, or blocked one way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from eigenmesh.events import VirtualTime
from eigenmesh.protocol import Bytes, Closed, Opened, Unreachable

if TYPE_CHECKING:
    from eigenmesh.rehearsal._process import Process


Link = tuple[str, str]


class VirtualStream:
    """One stream. ``ends`` are its processes; an end is None once it has closed, or if it never had a process."""

    __slots__ = ("addresses", "ends", "free_at", "names", "number")

    def __init__(self, number: int, caller: Process | None, listener: Process, caller_name: str) -> None:
        self.number = number
        self.ends: list[Process | None] = [caller, listener]
        self.names = (caller_name, listener.site)
        # Faults of links are kept by address. A second process of a site has its own address.
        self.addresses = (caller.address if caller else caller_name, listener.address)
        # By sender: the arrival time of the last message.
        self.free_at = [0.0, 0.0]


class VirtualNetwork:
    """All streams, and the faults of the links.

    Attributes
    ----------
    delay_s : by link, for one or both directions, the shortest travel time of a message.
    travel_s : travel time of a message, from its sender and receiver and its size, without faults.
    held_until : by sender and receiver, nothing arrives before this time.
    refuses_until : by sender and receiver, calls fail before this time.
    """

    def __init__(
        self,
        time: VirtualTime,
        listener_of: Callable[[str], Process | None],
        delay_s: Mapping[Link, float],
        travel_s: Callable[[Link, int], float],
    ) -> None:
        self.time, self._listener_of, self.delay_s, self.travel_s = time, listener_of, delay_s, travel_s
        self.held_until: dict[Link, float] = {}
        self.refuses_until: dict[Link, float] = {}
        self.connections: dict[int, VirtualStream] = {}
        self._count = 0

    def dial(self, caller: Process, target: str) -> None:
        if not caller.alive:
            return
        listener = self._listener_of(target)
        there = target if listener is None else listener.address
        link, back = (caller.address, there), (there, caller.address)
        now, trip = self.time.now, 3 * self._delay((caller.site, target))
        held = max(self.held_until.get(link, 0.0), self.held_until.get(back, 0.0))
        if held > now:
            self.time.after(min(held - now, 2.0) + trip, caller.feed, Unreachable(target, "no answer"))
        elif listener is None or self.refuses_until.get(link, 0.0) > now:
            self.time.after(trip, caller.feed, Unreachable(target, "connection refused"))
        else:
            self.time.after(trip, self._open, caller, listener)

    def _open(self, caller: Process, listener: Process) -> None:
        if not caller.alive:
            return
        if not listener.alive:
            caller.feed(Unreachable(listener.site, "connection reset"))
            return
        connection = self._connect(caller, listener, caller.site)
        caller.feed(Opened(connection.number, (listener.site,), listener.site))

    def _connect(self, caller: Process | None, listener: Process, name: str) -> VirtualStream:
        self._count += 1
        connection = VirtualStream(self._count, caller, listener, name)
        self.connections[self._count] = connection
        listener.feed(Opened(connection.number, (name,)))
        return connection

    def send(self, sender: Process, number: int, data: bytes) -> None:
        connection = self.connections.get(number)
        if connection is not None and sender in connection.ends:
            self._carry(connection, connection.ends.index(sender), data)

    def _carry(self, connection: VirtualStream, side: int, data: bytes) -> None:
        self.time.at(self._arrival(connection, side, len(data)), self._arrive, connection, 1 - side, data)

    def _arrive(self, connection: VirtualStream, side: int, data: bytes) -> None:
        end = connection.ends[side]
        if end is not None and connection.number in self.connections:
            end.feed(Bytes(connection.number, data))

    def _arrival(self, connection: VirtualStream, side: int, n_bytes: int) -> float:
        link = connection.names[side], connection.names[1 - side]
        arrival = self.time.now + self.travel_s(link, n_bytes)
        way = connection.addresses[side], connection.addresses[1 - side]
        arrival = max(arrival, connection.free_at[side], self.held_until.get(way, 0.0))
        connection.free_at[side] = arrival
        return arrival

    def _delay(self, link: Link) -> float:
        return self.delay_s.get(link) or self.delay_s.get((link[1], link[0]), 0.01)

    def cut(self, process: Process, number: int) -> None:
        connection = self.connections.get(number)
        if connection is not None and process in connection.ends:
            self.close(connection, connection.ends.index(process), "")
        else:
            # The stream is broken, but this end had not noticed yet.
            self.time.after(0.0, process.feed, Closed(number, ""))

    def close(self, connection: VirtualStream, side: int, reason: str) -> None:
        """Close one end, after everything that it has written."""
        end, connection.ends[side] = connection.ends[side], None
        if end is not None:
            self.time.after(0.0, end.feed, Closed(connection.number, reason))
        self.time.at(self._arrival(connection, side, 0), self._hang_up, connection, 1 - side, reason)

    def _hang_up(self, connection: VirtualStream, side: int, reason: str) -> None:
        end, connection.ends[side] = connection.ends[side], None
        if end is not None:
            end.feed(Closed(connection.number, reason))
        self.connections.pop(connection.number, None)

    def break_off(self, connection: VirtualStream, notice_s: tuple[float, float]) -> None:
        """Break a stream: messages on their way are lost, and each end notices after its time."""
        self.connections.pop(connection.number, None)
        for side, late in enumerate(notice_s):
            self.time.after(late, self._hang_up, connection, side, "connection reset")

    def of(self, process: Process) -> Iterator[tuple[VirtualStream, int]]:
        """The streams of a process, each with the index of its end."""
        for connection in list(self.connections.values()):
            for side, end in enumerate(connection.ends):
                if end is process:
                    yield connection, side
