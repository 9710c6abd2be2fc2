"""Nodes that do not wait for each other: their interface, and a driver in real time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from eigenmesh.errors import DeadlineError
from eigenmesh.transports import Transport

# Arrays that one node sends to one neighbour.
Message: TypeAlias = tuple[np.ndarray, ...]


class Paced(Protocol):
    """A node without a clock: its driver calls ``tick``, passes on messages, and runs its work."""

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
        """Raise if a neighbour has been silent for too long."""
        ...

    def begin(self) -> Callable[[], Any] | None: ...
    def end(self, done: Any) -> None: ...


@dataclass(frozen=True)
class Pace:
    """Seconds between two ticks of a node. With ``common`` all nodes tick by one clock, not each by its own."""

    tick_s: float
    common: bool

    def round_at(self, now: float) -> int:
        """Number of the tick at ``now``, the same at all nodes with a common clock."""
        return math.floor(now / self.tick_s + 1e-6)

    def next_tick(self, now: float) -> float:
        """Time of the next tick after one at ``now``."""
        return (self.round_at(now) + 1) * self.tick_s if self.common else now + self.tick_s


def drive(node: Paced, transport: Transport, pace: Pace) -> int:
    """Drive a node in real time until it is ready to meet and idle, and return its ticks. Work runs in another thread.

    Work that takes longer than the transport's deadline ends the run: the neighbours still hear this node, and would
    wait for its product for ever.
    """
    ticks, tick_at, end_at, work = 0, time.monotonic(), math.inf, None
    future: Future[Any] | None = None
    pool = ThreadPoolExecutor(1, thread_name_prefix=f"work-{node.rank}")
    try:
        while node.working or not node.ready_to_meet:
            if time.monotonic() >= tick_at:
                _post_tick(node, transport)
                if not node.ready_to_meet:
                    # Nodes that are done fall silent, which is no fault once all are ready.
                    node.require_heard()
                ticks, tick_at = ticks + 1, pace.next_tick(time.monotonic())
            if future is not None and future.done():
                node.end(future.result())
                future = None
            if future is None and (work := node.begin()) is not None:
                future, end_at = pool.submit(work), time.monotonic() + transport.deadline_s
            if future is not None and time.monotonic() > end_at:
                what = f"node {node.rank} has worked for {transport.deadline_s:g} s on one product"
                raise DeadlineError(f"{what}; it is stuck, or has too many samples.")
            take_in(node, transport, tick_at - time.monotonic())
    finally:
        # If the run has failed, do not wait for work that may be stuck.
        pool.shutdown(wait=False)
    # A last message, so that the neighbours learn that all are ready.
    _post_tick(node, transport)
    return ticks + 1


def _post_tick(node: Paced, transport: Transport) -> None:
    for receiver, message in node.tick():
        transport.post(receiver, message)


def take_in(node: Paced, transport: Transport, timeout_s: float) -> None:
    """Pass all received messages to the node. If there are none, wait for one until the timeout."""
    received = transport.collect(timeout_s)
    while received is not None:
        node.receive(*received)
        received = transport.collect(0.0)
