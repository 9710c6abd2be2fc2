"""Integer averaging: sums modulo 2^64, which have the same bits in any order, on any tree and at every node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging.base import LinearNetwork
from eigenmesh.averaging.tree import AllReduce, AllReduceAverage, Tree, TreeAverage
from eigenmesh.errors import DataError, InputError
from eigenmesh.graphs import Weights

# Real numbers as integers modulo 2^64, so that sums over the nodes have the same bits in any order.


# A sum may be as large as 2^BITS. One further bit is for the sign, and one so that a single wrong node causes no
# overflow.
BITS = 62
# Without a known bound, numbers are in units of 2^-FRACTION.
FRACTION = 64


class FixedPoint(Protocol):
    """A format for each node's numbers as 64-bit words that can be summed."""

    def encode(self, values: np.ndarray, ids: Sequence[int]) -> np.ndarray:
        """Numbers of the nodes as words: (nodes, ...) -> (nodes, ...) uint64. DataError if one is too large."""
        ...

    def decode(self, total: np.ndarray) -> np.ndarray:
        """Numbers from words summed modulo 2^64: (..) uint64 -> (..) float64."""
        ...


@dataclass(frozen=True, eq=False)
class Scaled:
    """One word per number: ``q = rint(x 2^(62 - e))`` with ``2^e >= sum over nodes of |x_i|``.

    exponents : e, broadcast to one node's array. They are public: equal at all nodes, and not derived from one node.
    """

    exponents: np.ndarray

    @classmethod
    def within(cls, bound: np.ndarray | float) -> Scaled:
        """For numbers with ``sum over nodes of |x_i| <= bound``."""
        # Unlike log2, frexp gives the same result on every processor.
        return cls(np.frexp(np.asarray(bound, dtype=np.float64))[1])

    def encode(self, values: np.ndarray, ids: Sequence[int]) -> np.ndarray:
        scaled = np.rint(values * np.ldexp(1.0, BITS - self.exponents))
        too_large = ~(np.abs(scaled) <= 2.0**BITS)
        if too_large.any():
            node, *place = np.argwhere(too_large)[0].tolist()
            value, limit = values[node, *place], np.broadcast_to(np.ldexp(1.0, self.exponents), values.shape[1:])
            raise DataError(
                f"node {ids[node]} would send {value:.4g} in row {place[0] if place else 0}, beyond the common scale "
                f"{limit[tuple(place)]:.4g}, so nothing is sent. Samples changed during the fit, a product is wrong, "
                "or the solver multiplied columns longer than 1."
            )
        return np.asarray(scaled.astype(np.int64).view(np.uint64))

    def decode(self, total: np.ndarray) -> np.ndarray:
        return np.asarray(total.view(np.int64) * np.ldexp(1.0, self.exponents - BITS))


@dataclass(frozen=True)
class Wide:
    """Two words per number, without a known bound: multiples of 2^-64, at most ``2^(t - 1) / M`` per node.

    The two words are summed separately, so the lower one has ``t = 64 - ceil(log2 M)`` bits, and its sum still fits:
    ``x = (high 2^t + low) 2^-64`` with ``0 <= low < 2^t``. Words of (nodes, n) are (nodes, 2 n): low, then high.
    """

    n_nodes: int

    @property
    def low_bits(self) -> int:
        return FRACTION - max(1, (self.n_nodes - 1).bit_length())

    @property
    def limit(self) -> float:
        """Upper bound of a number of one node, so that the sum over all nodes does not overflow."""
        return 2.0 ** (self.low_bits - 1) / self.n_nodes

    @property
    def resolution(self) -> float:
        """Largest error of a sum over all nodes."""
        return self.n_nodes * 2.0 ** -(FRACTION + 1)

    def encode(self, values: np.ndarray, ids: Sequence[int]) -> np.ndarray:
        too_large = ~(np.abs(values) < self.limit)
        if too_large.any():
            node, *place = np.argwhere(too_large)[0].tolist()
            raise DataError(
                f"node {ids[node]} would send {values[node, *place]:.4g}, but its counts, sums and squares must stay "
                f"below {self.limit:.4g} to be summed as integers; nothing is sent. Divide the data by a constant."
            )
        units = np.rint(np.ldexp(np.abs(values), FRACTION))
        high = np.floor(np.ldexp(units, -self.low_bits))
        low = (units - np.ldexp(high, self.low_bits)).astype(np.uint64)
        return np.concatenate(self._negated(low, high.astype(np.int64), values < 0), axis=-1)

    def decode(self, total: np.ndarray) -> np.ndarray:
        low, high = np.split(total, 2, axis=-1)
        shift = np.uint64(self.low_bits)
        carried = high + (low >> shift)
        rest = low & np.uint64(2**self.low_bits - 1)
        # Convert absolute values, so that nothing cancels between the two parts as floating-point numbers.
        negative = carried.view(np.int64) < 0
        rest, carried = self._negated(rest, carried.view(np.int64), negative)
        size = np.ldexp(carried.astype(np.float64), self.low_bits) + rest
        return np.asarray(np.ldexp(np.where(negative, -size, size), -FRACTION))

    def _negated(self, low: np.ndarray, high: np.ndarray, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Negate the numbers ``where`` it is true, with a lower word that stays nonnegative."""
        borrow = where & (low > 0)
        low = np.where(borrow, np.uint64(2**self.low_bits) - low, low)
        return low, np.where(where, -high - borrow, high).view(np.uint64)


@dataclass(frozen=True)
class Integers:
    """Convert numbers to integers modulo 2^64 by public scales, sum them, and convert the sum back.

    A sum of integers has the same bits in any order, so results do not depend on the tree, the order of the nodes or
    the engine. Masks that cancel in the sum can hide the contribution of each node. Row j of a product ``C_i B``
    has the scale ``2^e_j >= M sqrt(C_jj tr C)``, known from the pooled variances. Counts, sums and squares take two
    words.

    Parameters
    ----------
    over : Tree or AllReduce
        How the integers are summed.
    """

    over: Tree | AllReduce = field(default_factory=Tree)

    def __post_init__(self) -> None:
        if not isinstance(self.over, Tree | AllReduce):
            raise InputError(f"over = {self.over!r} must be Tree() or AllReduce().")

    def prepare(self, weights: Weights) -> IntegerAverage:
        over = self.over.prepare(weights)
        return IntegerAverage(over, weights.n_nodes, over.rounds, over.messages, over.in_turn)


@dataclass(frozen=True)
class IntegerAverage:
    """Integer averaging prepared for one network."""

    over: TreeAverage | AllReduceAverage
    n_nodes: int
    rounds: int
    messages: int
    in_turn: float

    @property
    def accuracy(self) -> float:
        """As for other averages, relative to the public size of a product, ``tr C``.

        Each node rounds by half a unit of ``2^(e_j - 62)`` at most and ``2^e_j`` is at most twice its bound, so an
        averaged column is off by less than ``M 2^-62 tr C``. The norm over all nodes is sqrt(M) times that of one.
        """
        # The factor 2 covers the slack that the bounds have against rounding.
        return float(np.sqrt(self.n_nodes) * 2.0 ** (1 - BITS))

    def total(self, network: LinearNetwork, words: np.ndarray) -> np.ndarray:
        """Sum over all nodes modulo 2^64, at every node: (nodes, ...) -> (nodes, ...) uint64."""
        return np.asarray(self.over.total(network, words))

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        """Average of numbers without known bounds, two words each. A network uses bounds where it knows them."""
        wide, flat = Wide(self.n_nodes), ea.to_numpy(array).reshape(len(array), -1)
        total = self.total(network, wide.encode(flat, range(len(flat))))
        return ea.like((wide.decode(total) / self.n_nodes).reshape(array.shape), array)
