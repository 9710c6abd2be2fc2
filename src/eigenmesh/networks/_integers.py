"""What a network knows that averages in integers: public scales, masks, and the number of the average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eigenmesh.averaging._fixed_point import BITS, FixedPoint, Scaled, Wide
from eigenmesh.masking import Masks

# Room for a start whose columns are not quite unit vectors, and for rounding in rows that have no variance.
SLACK, LEAST_ROW = 1.01, 2.0**-20


@dataclass
class Masking:
    """Masks of the nodes held here, in the order of their ids, and the number of the next average."""

    masks: Sequence[Masks]
    number: int = 0

    def added(self, words: np.ndarray) -> np.ndarray:
        """Each node's words with its masks, modulo 2^64: (nodes, ...) -> (nodes, ...). No number is used twice."""
        number, self.number = self.number, self.number + 1
        pairs = zip(self.masks, words, strict=True)
        return np.stack([masks.masked(number, own.ravel()).reshape(own.shape) for masks, own in pairs])


@dataclass(frozen=True, eq=False)
class ProductScales:
    """Public bounds of products ``C_i b`` with ``|b| <= 1``.

    By Cauchy and Schwarz ``sum_i |(C_i b)_j| <= M sqrt(C_jj b^T C b) <= M sqrt(C_jj tr C)``.

    rows: (d,), of the sum over all nodes in row j. size: tr C.
    """

    rows: np.ndarray
    size: float

    @classmethod
    def of(cls, diagonal: np.ndarray, n_nodes: int) -> ProductScales:
        """From the diagonal of the pooled covariance, (d,), which must be the same bits at all nodes."""
        # A sum that is rounded once is the same on every processor.
        total = math.fsum(diagonal.tolist())
        return cls(SLACK * n_nodes * (np.sqrt(diagonal * total) + LEAST_ROW * total), SLACK * total)

    def size_of(self, averaged: float, n_nodes: int) -> float:
        """Bound of the average over all nodes of ``|C_i b|`` where ``|C b|`` is at most ``averaged``.

        It is at most ``sqrt(tr C b^T C b)``, again by Cauchy and Schwarz. The certificate takes the rounding of double
        precision from it, so it is made large enough to cover what integers round off, ``2 M 2^-62 tr C`` a column.
        """
        rounded_off = 2 * n_nodes * 2.0**-BITS / float(np.finfo(np.float64).eps)
        return max(math.sqrt(self.size * averaged), rounded_off * self.size)


def fixed_point(scales: ProductScales | None, bound: np.ndarray | float | None, n_nodes: int) -> FixedPoint:
    """How to write the numbers of an average: by their bound, else as products, else, before scales, as any numbers."""
    if bound is not None:
        return Scaled.within(bound)
    return Wide(n_nodes) if scales is None else Scaled.within(scales.rows[:, np.newaxis])
