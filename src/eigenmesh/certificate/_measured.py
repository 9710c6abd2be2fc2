"""Numbers that a process measures on its components, and their maxima over all nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate._bounds import RitzView, ritz_view
from eigenmesh.certificate._estimates import Estimates
from eigenmesh.certificate._look import Complement
from eigenmesh.networks import Network

# Random projections that show whether nodes hold the same components.
PROJECTIONS = 3
# Number of words in a digest, and bytes per word: float64 represents 48 bits exactly.
DIGEST_WORDS, WORD_BYTES = 4, 6


class Measured(NamedTuple):
    """Measured numbers of one process, arrays (K,) and scalars; or their maxima over all nodes."""

    values: np.ndarray
    residuals: np.ndarray
    disagreement: np.ndarray
    skewness: np.ndarray
    ritz: RitzView
    size: float
    defect: float
    total: float
    projections: np.ndarray

    @classmethod
    def of(cls, estimates: Estimates, rounding_size: float, total_variance: float) -> Measured:
        """Measure the estimates; ``rounding_size`` is a lower bound for ``size``, from cancellation inside products."""
        mean, coordinates, product = estimates.mean, estimates.coordinates, estimates.product
        xp, k = ea.namespace(mean), mean.shape[-1]
        values = xp.sum(coordinates * product, axis=-2)
        residuals = column_norms(product - coordinates * values[:, None, :])[:, 0, :]
        gram = mean.mT @ mean
        skewness = xp.max(xp.abs(gram - xp.eye(k, dtype=gram.dtype, device=gram.device)), axis=-1)
        frame = np.random.default_rng(0).standard_normal((1, mean.shape[-2], PROJECTIONS))
        projections = xp.reshape(ea.like(frame, mean).mT @ mean, (1, PROJECTIONS * k))
        # One copy to the host for all of them.
        row = xp.concat(
            [values, residuals, estimates.disagreement, skewness, estimates.size, estimates.defect, projections], axis=1
        )
        parts = np.split(ea.to_numpy(row)[0], np.cumsum([k, k, k, k, 2]))
        values, residuals, disagreement, skewness, (size, defect), projections = parts
        ritz = RitzView(*(array[0] for array in ritz_view(ea.to_numpy(coordinates), ea.to_numpy(product))))
        size = max(size, rounding_size)
        return cls(values, residuals, disagreement, skewness, ritz, size, defect, total_variance, projections)

    @property
    def per_component(self) -> tuple[np.ndarray, ...]:
        return self.values, self.residuals, self.disagreement, self.skewness

    def row(self, beyond: Complement, digest: np.ndarray) -> np.ndarray:
        """Numbers whose maxima over the nodes all agree on, see ``agreed_on``."""
        own = np.array([self.size, self.defect, self.total])
        mine = (*self.per_component, *self.ritz, own, self.projections, -self.projections, digest, -digest, beyond.row)
        return np.concatenate(mine)

    @classmethod
    def agreed_on(
        cls, network: Network, rows: Sequence[np.ndarray], k: int, digest: int, like: Array
    ) -> tuple[Measured, Complement | None, bool]:
        """Maxima over all nodes in one exchange: of the numbers, and of ``beyond`` if nodes agree on ``shared``.

        ``rows`` : one for each copy of an average; ``digest`` : words of a digest. The last value is whether all nodes
        have the same digest of their components.
        """
        agreed = ea.to_numpy(network.worst(ea.like(np.stack(rows), like))[0, ...])
        sizes = [*[k] * 7, 1, 3, *[PROJECTIONS * k] * 2, *[digest] * 2]
        values, residuals, from_mean, skewness, *parts = np.split(agreed, np.cumsum(sizes))
        ritz, (own, high, low, first, last, other) = RitzView(*parts[:4]), parts[4:]
        disagreement = np.maximum(from_mean, (high + low).reshape(PROJECTIONS, k).max(axis=0))
        # The components are in order already; only within a cluster may rounding have changed it.
        ordered = np.sort(values)[::-1]
        size, defect, total = own.tolist()
        measured = cls(ordered, residuals, disagreement, skewness, ritz, size, defect, total, high)
        return measured, Complement.agreed(other), digest > 0 and bool((first == -last).all())


def digest_of(mean: Array) -> np.ndarray:
    """Hash of the components as numbers: all nodes have the same bits if maxima and minima are equal."""
    digest = hashlib.sha256(np.ascontiguousarray(ea.to_numpy(mean)).tobytes()).digest()
    words = (digest[WORD_BYTES * place : WORD_BYTES * (place + 1)] for place in range(DIGEST_WORDS))
    return np.array([float(int.from_bytes(word, "big")) for word in words])
