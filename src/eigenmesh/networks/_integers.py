"""State of a network with integer averages: public scales, masks, and the number of the next average."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging._fixed_point import BITS, FixedPoint, Scaled, Wide
from eigenmesh.averaging._integers import IntegerAverage
from eigenmesh.errors import InputError
from eigenmesh.masking import Disclosure, Masks

# Upper bound of the sum of absolute values over all nodes: one number, or one per entry.
Bound = np.ndarray | float | None

# Slack for columns of the start that are not exactly unit vectors, and for rounding in rows without variance.
SLACK, LEAST_ROW = 1.01, 2.0**-20


@dataclass
class Masking:
    """Masks of the nodes in this process, in the order of their ids, and the number of the next average.

    ``columns`` counts the columns of products with the pooled covariance that all nodes have received so far.
    """

    masks: Sequence[Masks]
    number: int = 0
    columns: int = 0

    def added(self, words: np.ndarray) -> np.ndarray:
        """Add each node's masks to its words modulo 2^64: (nodes, ...) -> (nodes, ...). No number is used twice."""
        number, self.number = self.number, self.number + 1
        pairs = zip(self.masks, words, strict=True)
        return np.stack([masks.masked(number, own.ravel()).reshape(own.shape) for masks, own in pairs])

    def hear(self, numbers: np.ndarray) -> None:
        """Bind all later masks to numbers that all nodes have received: words of 64 bits, or numbers in float64.

        Masks of nodes that were told other numbers no longer cancel.
        """
        if numbers.dtype == np.uint64:
            data = np.ascontiguousarray(numbers, "<u8")
        else:
            # A maximum of zeros may have either sign, and NaN many forms.
            data = np.where(np.isnan(numbers), np.nan, numbers.astype("<f8") + 0.0).astype("<f8")
        digest = hashlib.sha256(data.tobytes()).digest()
        for masks in self.masks:
            masks.hear(digest)


@dataclass(frozen=True, eq=False)
class ProductScales:
    """Public bounds of products ``C_i b`` with ``|b| <= 1``.

    By Cauchy and Schwarz ``sum_i |(C_i b)_j| <= M sqrt(C_jj b^T C b) <= M sqrt(C_jj tr C)``.

    rows : (d,), bound of row j of ``sum_i |C_i b|``; size : tr C.
    """

    rows: np.ndarray
    size: float

    @classmethod
    def of(cls, diagonal: np.ndarray, n_nodes: int, trace: float | None = None) -> ProductScales:
        """From the diagonal (d,) of the pooled covariance, or a bound of it and the trace; the same bits everywhere."""
        # `fsum` rounds once, so it gives the same bits on every processor.
        total = math.fsum(diagonal.tolist()) if trace is None else trace
        return cls(SLACK * n_nodes * (np.sqrt(diagonal * total) + LEAST_ROW * total), SLACK * total)

    def size_of(self, averaged: float, n_nodes: int) -> float:
        """Bound of the average over all nodes of ``|C_i b|`` where ``|C b|`` is at most ``averaged``.

        It is at most ``sqrt(tr C b^T C b)``, again by Cauchy and Schwarz. The certificate takes the rounding of double
        precision from it, so it is made large enough to cover the rounding to integers, ``2 M 2^-62 tr C`` per column.
        """
        rounded_off = 2 * n_nodes * 2.0**-BITS / ea.EPS
        return max(math.sqrt(self.size * averaged), rounded_off * self.size)


class InIntegers(ABC):
    """The part of a network that averages in integers; inactive if ``integers`` is None."""

    integers: IntegerAverage | None
    # Public scales of products, once they are known, and masks, if there are any.
    scales: ProductScales | None
    masking: Masking | None

    @property
    @abstractmethod
    def n_nodes(self) -> int: ...

    @property
    @abstractmethod
    def ids(self) -> Sequence[int]: ...

    @property
    @abstractmethod
    def copies(self) -> int: ...

    def disclosure(self, n_features: int, whole: bool = False) -> Disclosure:
        """What all nodes have learned so far; ``whole``: the pooled covariance itself."""
        if self.masking is None:
            return Disclosure()
        columns, masks = n_features if whole else self.masking.columns, self.masking.masks[0]
        return Disclosure(self.n_nodes, n_features, columns, signed=masks.signed, left=masks.left)

    def given_masks(self) -> Masks | None:
        """Masks that the transport provides for this node; None if the fit makes its own keys."""
        return None

    @property
    def resolution(self) -> float:
        """Largest rounding error of a sum of any numbers over all nodes with integer averages, else 0."""
        return Wide(self.n_nodes).resolution if self.integers else 0.0

    def learn_scales(self, diagonal: np.ndarray, trace: float | None = None) -> None:
        """Take the scales of products from the diagonal of the pooled covariance, (d,), the same bits at all nodes.

        If the trace is given, the diagonal may be an upper bound.
        """
        if self.integers:
            self.scales = ProductScales.of(diagonal, self.n_nodes, trace)

    def size_of_products(self, norms: Array, averaged: Array) -> Array:
        """Size of the products ``C_i b`` for the certificate, from their norms and those of their average: (copies, 1).

        ``norms``, (nodes, ...), are those of the nodes in this process; nodes that share a copy of the average take the
        largest. Integer averages do not use them: no node reveals the size of its own products, and the public scales
        bound it.
        """
        xp = ea.namespace(norms)
        if not self.integers:
            return xp.max(xp.reshape(norms, (averaged.shape[0], -1)), axis=1, keepdims=True)
        if self.scales is None:
            raise InputError("integer averages need the pooled variances; call network.learn_scales first.")
        size = self.scales.size_of(float(xp.max(averaged)), self.n_nodes)
        return xp.asarray([[size]], dtype=norms.dtype, device=norms.device)

    def _integer_mean(self, total: Callable[[np.ndarray], np.ndarray], array: Array, bound: Bound) -> Array:
        """The average by ``total``, which sums words over all nodes modulo 2^64: (nodes, ...) -> (nodes, ...)."""
        codec = fixed_point(self.scales, bound, self.n_nodes)
        words = codec.encode(ea.to_numpy(array), self.ids)
        if self.masking is not None:
            words = self.masking.added(words)
            self.masking.columns += 0 if bound is not None or self.scales is None else array.shape[-1]
        summed = total(words)[:1]
        self._hear(summed)
        return ea.everywhere(ea.like(codec.decode(summed) / self.n_nodes, array), array.shape[0])

    def _hear(self, numbers: Array) -> None:
        """Bind masks to numbers (1, ...) that this node has received and acts on, and that all nodes have received."""
        if self.masking is not None:
            self.masking.hear(ea.to_numpy(numbers))


def fixed_point(scales: ProductScales | None, bound: Bound, n_nodes: int) -> FixedPoint:
    """Fixed-point format of an average: by its bound, else that of products; before scales are known, a wide one."""
    if bound is not None:
        return Scaled.within(bound)
    return Wide(n_nodes) if scales is None else Scaled.within(scales.rows[:, np.newaxis])
