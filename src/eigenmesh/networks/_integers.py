"""What a network knows that averages in integers: public scales, masks, and the number of the average."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging._fixed_point import BITS, FixedPoint, Scaled, Wide
from eigenmesh.averaging._integers import IntegerAverage
from eigenmesh.errors import InputError
from eigenmesh.masking import Disclosure, Masks

# What moduli add up to over all nodes: of all entries, or of each.
Bound = np.ndarray | float | None

# Room for a start whose columns are not quite unit vectors, and for rounding in rows that have no variance.
SLACK, LEAST_ROW = 1.01, 2.0**-20


@dataclass
class Masking:
    """Masks of the nodes held here, in the order of their ids, and the number of the next average.

    ``columns`` counts those of the products with the pooled covariance that all nodes have got so far.
    """

    masks: Sequence[Masks]
    number: int = 0
    columns: int = 0

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
    def of(cls, diagonal: np.ndarray, n_nodes: int, trace: float | None = None) -> ProductScales:
        """From the diagonal of the pooled covariance, (d,), or a bound of it and the trace; the same bits anywhere."""
        # A sum that is rounded once is the same on every processor.
        total = math.fsum(diagonal.tolist()) if trace is None else trace
        return cls(SLACK * n_nodes * (np.sqrt(diagonal * total) + LEAST_ROW * total), SLACK * total)

    def size_of(self, averaged: float, n_nodes: int) -> float:
        """Bound of the average over all nodes of ``|C_i b|`` where ``|C b|`` is at most ``averaged``.

        It is at most ``sqrt(tr C b^T C b)``, again by Cauchy and Schwarz. The certificate takes the rounding of double
        precision from it, so it is made large enough to cover what integers round off, ``2 M 2^-62 tr C`` a column.
        """
        rounded_off = 2 * n_nodes * 2.0**-BITS / float(np.finfo(np.float64).eps)
        return max(math.sqrt(self.size * averaged), rounded_off * self.size)


class InIntegers(ABC):
    """The part of a network that averages in integers; it does nothing where ``integers`` is None."""

    integers: IntegerAverage | None
    # Public scales of products, once they are known, and masks if there are any.
    scales: ProductScales | None
    masking: Masking | None

    @property
    @abstractmethod
    def n_nodes(self) -> int: ...

    @property
    @abstractmethod
    def ids(self) -> Sequence[int]: ...

    @abstractmethod
    def _total(self, words: np.ndarray, average: IntegerAverage) -> np.ndarray:
        """Sum over all nodes modulo 2^64, counted: (nodes, ...) -> (1 or nodes, ...) uint64."""

    def disclosure(self, n_features: int, whole: bool = False) -> Disclosure:
        """What all nodes know by now; ``whole``: the pooled covariance itself."""
        if self.masking is None:
            return Disclosure()
        return Disclosure(self.n_nodes, n_features, n_features if whole else self.masking.columns)

    def given_masks(self) -> Masks | None:
        """Masks that the transport has for the node held here; None where a fit makes keys of its own."""
        return None

    @property
    def resolution(self) -> float:
        """Largest error of a sum of any numbers over all nodes where averages are made in integers, else 0."""
        return Wide(self.n_nodes).resolution if self.integers else 0.0

    def learn_scales(self, diagonal: np.ndarray, trace: float | None = None) -> None:
        """Take the scales of products from the diagonal of the pooled covariance, (d,), the same bits at all nodes.

        The diagonal may be a bound of it where the trace is given.
        """
        if self.integers:
            self.scales = ProductScales.of(diagonal, self.n_nodes, trace)

    def size_of_products(self, norms: Array, averaged: Array) -> Array:
        """How large products ``C_i b`` are, for the certificate, from their norms and those of their average: (1, 1).

        The first are those of the nodes held here, (nodes, 1, k). Averages in integers do without: no node shows how
        large its own products are, and the public scales bound them.
        """
        xp = ea.namespace(norms)
        if not self.integers:
            return xp.reshape(xp.max(norms), (1, 1))
        if self.scales is None:
            raise InputError("averages in integers need the pooled variances; call network.learn_scales first.")
        size = self.scales.size_of(float(xp.max(averaged)), self.n_nodes)
        return xp.asarray([[size]], dtype=norms.dtype, device=norms.device)

    def _integer_mean(self, average: IntegerAverage, array: Array, bound: Bound) -> Array:
        codec = fixed_point(self.scales, bound, self.n_nodes)
        words = codec.encode(ea.to_numpy(array).astype(np.float64, copy=False), self.ids)
        if self.masking is not None:
            words = self.masking.added(words)
            self.masking.columns += 0 if bound is not None or self.scales is None else array.shape[-1]
        total = self._total(words, average)
        return ea.everywhere(ea.like(codec.decode(total[:1]) / self.n_nodes, array), array.shape[0])


def fixed_point(scales: ProductScales | None, bound: Bound, n_nodes: int) -> FixedPoint:
    """How to write the numbers of an average: by their bound, else as products, else, before scales, as any numbers."""
    if bound is not None:
        return Scaled.within(bound)
    return Wide(n_nodes) if scales is None else Scaled.within(scales.rows[:, np.newaxis])
