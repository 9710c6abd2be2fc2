"""Traffic, and the one place where it is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

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
    """Matrices that a node sends to each neighbour; FAST-PCA sends two per iteration."""
    bytes: int = 0
    """Bytes of payload."""

    def copy(self) -> Traffic:
        """A copy of the current counts."""
        return replace(self)

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def __iadd__(self, other: Traffic) -> Traffic:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)))


class Counted:
    """Counts the messages of the whole network as rounds are requested."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        # Number of rounds, by exchange and bytes per message; all-reduces use no link of the graph and are left out.
        self.exchanges: Counter[tuple[LinearRound, int]] = Counter()
        self._riding_bytes = 0
        self._sizes: dict[tuple[type, Any, Any], tuple[int, int]] = {}

    def link_traffic(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Messages and bytes so far over each link of the graph, by (sender, receiver)."""
        messages, sent = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for (exchange, size), rounds in self.exchanges.items():
            receivers, senders = exchange.sends
            for link in zip(senders.tolist(), receivers.tolist(), strict=True):
                messages[link] += rounds
                sent[link] += rounds * size
        return {link: (messages[link], sent[link]) for link in sorted(messages)}

    def _count_rounds(self, exchange: LinearRound, arrays: tuple[Array, ...], rounds: int = 1, riding: int = 0) -> None:
        self.exchanges[exchange, self._count(exchange.messages, arrays, rounds, riding)] += rounds

    def _count(self, messages: int, arrays: tuple[Array, ...], rounds: int = 1, riding: int = 0) -> int:
        """Count rounds of ``messages`` messages, each of the arrays and ``riding`` bytes; returns the bytes of one."""
        traffic, sent = self.traffic, riding
        traffic.rounds += rounds
        traffic.messages += messages * rounds
        for array in arrays:
            matrices, size = self._size(array)
            traffic.matrices += rounds * matrices
            sent += size
        traffic.bytes += messages * rounds * sent
        return sent

    def _size(self, array: Array) -> tuple[int, int]:
        """Matrices and bytes in one node's part of the array; cached, because every round needs it."""
        # The type is part of the key, because some libraries cannot compare their dtypes with those of others.
        key = (type(array), array.shape, array.dtype)
        if key not in self._sizes:
            shape = array.shape[1:]
            self._sizes[key] = (int(len(shape) >= 2), prod(shape) * ea.ITEM_BYTES)
        return self._sizes[key]
