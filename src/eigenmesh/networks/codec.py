"""What a network with integer averages holds: the scales of its integers, and the masks of its nodes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.averaging import BITS, FixedPoint, Scaled, Wide
from eigenmesh.masking import Masks

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

    Attributes
    ----------
    rows : array of shape (d,)
        Bound of row j of ``sum_i |C_i b|``.
    size : float
        Bound of tr C.
    """

    rows: np.ndarray
    size: float

    @classmethod
    def of(cls, diagonal: np.ndarray, n_nodes: int, trace: float | None = None) -> ProductScales:
        """From the diagonal (d,) of the pooled covariance, or a bound of it and the trace, the same bits everywhere."""
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


def format_of(bound: Bound, scales: ProductScales | None, n_nodes: int) -> FixedPoint:
    """The format of an average: by its bound, else that of products, or a wide one before their scales are known."""
    if bound is not None:
        return Scaled.within(bound)
    return Wide(n_nodes) if scales is None else Scaled.within(scales.rows[:, np.newaxis])
