"""Runs that must end badly, quickly and everywhere: what the nodes do in them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import numpy as np

from eigenmesh.transports import Transport

# The node that misbehaves, of three.
CULPRIT = 1
# Longer than any launch is given.
FOR_EVER_S = 10_000.0
# Threads cannot be killed: a sleep is waited for there.
SLEEP_S = 4.0


def rounds_without_end(transport: Transport, misbehave: Callable[[], None]) -> dict[str, np.ndarray]:
    """Exchange with all others; after some rounds the culprit does what it must not do."""
    others = [rank for rank in range(transport.size) if rank != transport.rank]
    links = transport.links(others, others)
    until = time.monotonic() + FOR_EVER_S
    turn = 0
    while time.monotonic() < until:
        turn += 1
        if turn == 20 and transport.rank == CULPRIT:
            misbehave()
        transport.exchange((np.ones((1, 100)),), links)
    return {}


def leave(transport: Transport) -> dict[str, np.ndarray]:
    """The culprit believes that the run is over."""
    others = [rank for rank in range(transport.size) if rank != transport.rank]
    links = transport.links(others, others)
    for _ in range(20 if transport.rank == CULPRIT else 21):
        transport.exchange((np.ones(3),), links)
    return {}


def _raise() -> None:
    raise ValueError("no such data here")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def unlike(own: np.ndarray, culprits: np.ndarray) -> Callable[[Transport], dict[str, np.ndarray]]:
    """The culprit sends another kind of message than the others."""

    def work(transport: Transport) -> dict[str, np.ndarray]:
        others = [rank for rank in range(transport.size) if rank != transport.rank]
        array = culprits if transport.rank == CULPRIT else own
        transport.exchange((array,), transport.links(others, others))
        return {}

    return work


def unlike_later(transport: Transport) -> dict[str, np.ndarray]:
    """As ``unlike``, when both kinds of message have gone over the links before."""
    others = [rank for rank in range(transport.size) if rank != transport.rank]
    links = transport.links(others, others)
    kinds = np.ones(3), np.ones(4)
    for array in kinds:
        transport.exchange((array,), links)
    transport.exchange((kinds[int(transport.rank == CULPRIT)],), links)
    return {}


def reduce_alone(transport: Transport) -> dict[str, np.ndarray]:
    """All but the culprit call an all-reduce."""
    if transport.rank == CULPRIT:
        time.sleep(SLEEP_S)
    transport.all_reduce(np.ones(3), "sum")
    return {}


SCENARIOS: dict[str, Callable[[Transport], dict[str, np.ndarray]]] = {
    "raises": lambda transport: rounds_without_end(transport, _raise),
    "dies": lambda transport: rounds_without_end(transport, _die),
    "sleeps": lambda transport: rounds_without_end(transport, lambda: time.sleep(SLEEP_S)),
    "leaves": leave,
    "unlike-size": unlike(np.ones(3), np.ones(40)),
    "unlike-dtype": unlike(np.ones(3), np.ones(3, dtype=np.int64)),
    "unlike-shape": unlike(np.ones((3, 2)), np.ones((2, 3))),
    "unlike-big": unlike(np.ones(3), np.ones(1_000_000)),
    "unlike-later": unlike_later,
    "reduces-alone": reduce_alone,
}
