"""A network in virtual time: links and nodes of given speed, in rounds or at their own pace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.averaging import Averaging, LinearRound
from eigenmesh.errors import DeadlineError
from eigenmesh.events import VirtualTime
from eigenmesh.graphs import Weights
from eigenmesh.networks.own_pace import Message, Pace, Paced
from eigenmesh.networks.stacked import Stacked
from eigenmesh.networks.traffic import Meter, Traffic


class Laws(Protocol):
    """Times of links and nodes, in seconds; ``inf`` means never."""

    def arrives(self, link: tuple[int, int], n_bytes: int, at: float, again: bool) -> float:
        """Arrival time of a message over a link (sender, receiver); ``again``: it is resent until it arrives."""
        ...

    def works(self, node: int, columns: int, at: float) -> float:
        """Time at which a node that starts ``at`` has multiplied its covariance with this many columns."""
        ...

    def awake(self, node: int, at: float) -> float:
        """Earliest time from ``at`` on at which a node can act: later than ``at`` if it is down."""
        ...


class TimedMeter(Meter):
    """A meter that tells of each round over links, with the bytes of its messages, when it is counted."""

    def __init__(self, pass_round: Callable[[LinearRound, int], None]) -> None:
        super().__init__()
        self._pass_round = pass_round

    def count_rounds(self, exchange: LinearRound, arrays: tuple[Array, ...], rounds: int = 1, extra: int = 0) -> int:
        size = super().count_rounds(exchange, arrays, rounds, extra)
        for _ in range(rounds):
            self._pass_round(exchange, size)
        return size


class InVirtualTime(Stacked):
    """All nodes of a network stacked, each with its own clock.

    A node ends a round when all messages of its neighbours have arrived: ``t_i <- max(t_i, max_j arrival_ji)``. Nodes
    at their own pace share one ``VirtualTime`` instead.

    Attributes
    ----------
    clock : array of shape (M,)
        Elapsed seconds at each node.
    """

    def __init__(
        self, weights: Weights, laws: Laws, averaging: Averaging | None = None, time: VirtualTime | None = None
    ) -> None:
        super().__init__(weights, averaging)
        self.meter = TimedMeter(self._pass_round)
        self.laws, self.clock = laws, np.zeros(weights.n_nodes)
        self.time = VirtualTime(0) if time is None else time
        self.watcher: Callable[[Paced], None] | None = None
        self._joined: dict[int, float] = {}
        self._is_paced = False

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start until the last node is done."""
        return max(self.time.now, float(self.clock.max()))

    def multiply(self, columns: int) -> None:
        """Let every node multiply its covariance with this many columns."""
        self._set_clock([self.laws.works(node, columns, at) for node, at in enumerate(self.clock)])

    def _set_clock(self, seconds: Sequence[float]) -> None:
        gone = np.flatnonzero(np.isinf(seconds))
        if len(gone):
            wait = f"all nodes wait for node {gone[0]} forever, from second {self.elapsed_s:.1f} on"
            raise DeadlineError(f"{wait}; give it a restart, or leave it out.")
        self.clock = np.array(seconds)

    def _pass_round(self, exchange: LinearRound, size: int) -> None:
        begins = [self.laws.awake(node, at) for node, at in enumerate(self.clock)]
        self._set_clock(begins)
        ends = list(begins)
        for receiver, sender in zip(*(part.tolist() for part in exchange.sends), strict=True):
            arrival = self.laws.arrives((sender, receiver), size, begins[sender], again=True)
            ends[receiver] = max(ends[receiver], arrival)
        self._set_clock(ends)

    # --- nodes at their own pace -----------------------------------------------------------------------------

    def require_time(self) -> None:
        """Nothing: this network has virtual time."""

    def run_paced(self, nodes: Sequence[Paced], pace: Pace) -> None:
        """Let the nodes act until all are ready to meet; afterwards each clock is the time at which its node was."""
        self._joined = {}
        if not self._is_paced:
            for node, at in zip(nodes, self.clock, strict=True):
                first = math.ceil(at / pace.tick_s) if pace.common else at / pace.tick_s + self.time.random.random()
                self.time.at(first * pace.tick_s, self._tick, node, nodes, pace)
        self._is_paced = True
        self.time.run(math.inf, lambda: len(self._joined) == len(nodes))
        if gone := [str(node.rank) for node in nodes if node.rank not in self._joined]:
            # No events are left, and no running node has noticed their silence.
            raise DeadlineError(f"node {', '.join(gone)} is gone forever; give it a restart, or leave it out.")
        self.clock = np.array([max(self._joined[node.rank], at) for node, at in zip(nodes, self.clock, strict=True)])

    def _tick(self, node: Paced, nodes: Sequence[Paced], pace: Pace) -> None:
        now = self.time.now
        # A node that takes part in a synchronous round sends nothing else.
        awake = self.laws.awake(node.rank, max(now, float(self.clock[node.rank])))
        if awake > now:
            if awake < math.inf:
                self.time.at(awake, self._tick, node, nodes, pace)
            return
        for receiver, message in node.tick():
            self._send(node.rank, nodes[receiver], message)
        node.require_heard()
        if node.rank == 0:
            self.meter.traffic += Traffic(1, 0, 1, 0)
        self._act(node)
        self.time.at(pace.next_tick(now), self._tick, node, nodes, pace)

    def _send(self, sender: int, receiver: Paced, message: Message) -> None:
        size = sum(part.nbytes for part in message)
        self.meter.traffic += Traffic(0, 1, 0, size)
        arrival = self.laws.arrives((sender, receiver.rank), size, self.time.now, again=False)
        if arrival < math.inf and self.laws.awake(receiver.rank, arrival) == arrival:
            self.time.at(arrival, self._receive, receiver, sender, message)

    def _receive(self, node: Paced, sender: int, message: Message) -> None:
        node.receive(sender, message)
        self._act(node)

    def _act(self, node: Paced) -> None:
        """Begin work that is due; a node that is idle and ready to meet has joined."""
        if self.time.now < self.clock[node.rank]:
            # It takes part in a synchronous round.
            return
        work = node.begin()
        if work is not None:
            if self.watcher is not None:
                self.watcher(node)
            done_at = self.laws.works(node.rank, node.work_columns, self.time.now)
            if done_at < math.inf:
                self.time.at(done_at, self._finish, node, work)
        elif node.ready_to_meet and not node.working:
            self._joined.setdefault(node.rank, self.time.now)

    def _finish(self, node: Paced, work: Any) -> None:
        node.end(work())
        self._act(node)
