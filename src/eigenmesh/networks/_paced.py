"""Nodes that do not wait for each other: what drives them, and what they are driven by."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from eigenmesh.transports._base import Transport

# Arrays that one node sends to one neighbour.
Message: TypeAlias = tuple[np.ndarray, ...]


class Paced(Protocol):
    """A node without a clock: it is told when to tick, what has come in, and what work is done."""

    @property
    def rank(self) -> int: ...
    @property
    def ready_to_meet(self) -> bool:
        """Whether all nodes have ended the work before their next meeting."""
        ...

    @property
    def working(self) -> bool: ...
    @property
    def work_columns(self) -> int: ...
    def tick(self) -> list[tuple[int, Message]]: ...
    def receive(self, sender: int, message: Message) -> None: ...
    def require_heard(self) -> None:
        """Raise if a neighbour is silent for too long."""
        ...

    def begin(self) -> Callable[[], Any] | None: ...
    def end(self, done: Any) -> None: ...


@dataclass(frozen=True)
class Pace:
    """Seconds between two ticks of a node; ``common``: on one clock for all, not on each node's own."""

    tick_s: float
    common: bool

    def round_at(self, now: float) -> int:
        """The number of the tick at ``now``, the same at all nodes where they have one clock."""
        return math.floor(now / self.tick_s + 1e-6)

    def next_tick(self, now: float) -> float:
        """When the tick after one at ``now`` is."""
        return (self.round_at(now) + 1) * self.tick_s if self.common else now + self.tick_s


def drive(node: Paced, transport: Transport, pace: Pace) -> int:
    """Drive a node in real time until it is called and has no work; gives its ticks. Work is done in another thread."""
    ticks, tick_at, work = 0, time.monotonic(), None
    future: Future[Any] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix=f"work-{node.rank}") as pool:
        while node.working or not node.ready_to_meet:
            if time.monotonic() >= tick_at:
                _post_tick(node, transport)
                if not node.ready_to_meet:
                    # Who has come to the end is silent.
                    node.require_heard()
                ticks, tick_at = ticks + 1, pace.next_tick(time.monotonic())
            if future is not None and future.done():
                node.end(future.result())
                future = None
            if future is None and (work := node.begin()) is not None:
                future = pool.submit(work)
            take_in(node, transport, tick_at - time.monotonic())
    # So that the neighbours hear that all have come.
    _post_tick(node, transport)
    return ticks + 1


def _post_tick(node: Paced, transport: Transport) -> None:
    for receiver, message in node.tick():
        transport.post(receiver, message)


def take_in(node: Paced, transport: Transport, timeout_s: float) -> None:
    """Give the node all that has come, and wait for something if there is nothing yet."""
    received = transport.collect(timeout_s)
    while received is not None:
        node.receive(*received)
        received = transport.collect(0.0)
