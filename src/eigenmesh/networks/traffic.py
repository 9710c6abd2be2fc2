"""Traffic of a network, and the meter that counts it: the only place where rounds, messages and bytes are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging import LinearRound


@dataclass
class Traffic:
    """Traffic of a run over the whole network."""

    rounds: int = 0
    """Synchronous neighbour exchanges."""
    messages: int = 0
    """Directed sends."""
    matrices: int = 0
    """Matrices that a node sends to each neighbour. FAST-PCA sends two per iteration."""
    bytes: int = 0
    """Bytes of payload."""

    def copy(self) -> Traffic:
        """A copy of the current counts."""
        return Traffic(self.rounds, self.messages, self.matrices, self.bytes)

    def __add__(self, other: Traffic) -> Traffic:
        total = self.copy()
        total += other
        return total

    def __iadd__(self, other: Traffic) -> Traffic:
        # In place, because a network may share its counts with what else counts for it.
        self.rounds += other.rounds
        self.messages += other.messages
        self.matrices += other.matrices
        self.bytes += other.bytes
        return self

    def __sub__(self, earlier: Traffic) -> Traffic:
        return self + Traffic(-earlier.rounds, -earlier.messages, -earlier.matrices, -earlier.bytes)


class Meter:
    """Counts what the whole network sends, as rounds are requested. Every process counts the same.

    Attributes
    ----------
    traffic : Traffic
        The counts so far.
    exchanges : Counter
        Number of rounds by exchange and bytes of a message. All-reduces use no link of the graph and are left out.
    """

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.exchanges: Counter[tuple[LinearRound, int]] = Counter()
        self._sizes: dict[tuple[type, Any, Any], tuple[int, int]] = {}

    def count(self, messages: int, arrays: tuple[Array, ...], rounds: int = 1, extra: int = 0) -> int:
        """Count rounds of messages that each carry one node's part of the arrays, and return the bytes of a message.

        Parameters
        ----------
        messages : int
            Messages of a round.
        arrays : tuple of arrays of shape (nodes, ...)
            What is sent.
        rounds : int
            Number of rounds.
        extra : int
            Bytes in each message besides the arrays.
        """
        sizes, traffic = [self.size(array) for array in arrays], self.traffic
        sent = extra + sum(size for _, size in sizes)
        traffic.rounds += rounds
        traffic.messages += messages * rounds
        traffic.matrices += rounds * sum(matrices for matrices, _ in sizes)
        traffic.bytes += messages * rounds * sent
        return sent

    def count_rounds(self, exchange: LinearRound, arrays: tuple[Array, ...], rounds: int = 1, extra: int = 0) -> int:
        """Count rounds over the links of an exchange, with parameters and result as for ``count``."""
        sent = self.count(exchange.messages, arrays, rounds, extra)
        self.exchanges[exchange, sent] += rounds
        return sent

    def size(self, array: Array) -> tuple[int, int]:
        """Matrices and bytes in one node's part of the array. They are cached, because every round needs it."""
        # The type is part of the key, because some libraries cannot compare their dtypes with those of others.
        key = (type(array), array.shape, array.dtype)
        if key not in self._sizes:
            shape = array.shape[1:]
            # Packed numbers are bytes.
            item = 1 if isinstance(array, np.ndarray) and array.dtype == np.uint8 else ea.ITEM_BYTES
            self._sizes[key] = (int(len(shape) >= 2), prod(shape) * item)
        return self._sizes[key]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count what is sent meanwhile."""
        before = self.traffic.copy(), self.exchanges.copy()
        try:
            yield
        finally:
            self.traffic, self.exchanges = before

    def by_link(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Messages and bytes so far over each link of the graph, by (sender, receiver)."""
        messages, sent = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for (exchange, size), rounds in self.exchanges.items():
            receivers, senders = exchange.sends
            for link in zip(senders.tolist(), receivers.tolist(), strict=True):
                messages[link] += rounds
                sent[link] += rounds * size
        return {link: (messages[link], sent[link]) for link in sorted(messages)}
