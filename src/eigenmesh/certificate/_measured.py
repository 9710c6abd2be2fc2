"""What a process measures of the components, and the largest of it over all nodes."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.certificate._bounds import RitzView, ritz_view
from eigenmesh.certificate._held import Held
from eigenmesh.certificate._look import Complement
from eigenmesh.networks import Network

# Random projections that show whether nodes hold the same components.
PROJECTIONS = 3
# Words of a digest, and their bytes: float32 holds 24 bits exactly.
DIGEST_WORDS, WORD_BYTES = 4, 3


class Measured(NamedTuple):
    """What a process measured, (K,) and numbers; or the largest of it over all nodes."""

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
    def of(cls, held: Held, cancelled: float, total_variance: float) -> Measured:
        """Of what is held here; ``cancelled`` is how large a product would be that is rounded as much as ours."""
        mean, coordinates, product = held.mean, held.coordinates, held.product
        xp, k = ea.namespace(mean), mean.shape[-1]
        values = xp.sum(coordinates * product, axis=-2)
        residuals = column_norms(product - coordinates * values[:, None, :])[:, 0, :]
        gram = mean.mT @ mean
        skewness = xp.max(xp.abs(gram - xp.eye(k, dtype=gram.dtype, device=gram.device)), axis=-1)
        frame = np.random.default_rng(0).standard_normal((1, mean.shape[-2], PROJECTIONS))
        shown = xp.reshape(ea.like(frame, mean).mT @ mean, (1, PROJECTIONS * k))
        measured = (values, residuals, held.apart, skewness, held.size, held.defect, shown)
        row = ea.to_numpy(xp.concat(measured, axis=1))[0].astype(np.float64)
        values, residuals, apart, skewness, (size, defect), shown = np.split(row, np.cumsum([k, k, k, k, 2]))
        ritz = RitzView(*(array[0] for array in ritz_view(ea.to_numpy(coordinates), ea.to_numpy(product))))
        return cls(values, residuals, apart, skewness, ritz, max(size, cancelled), defect, total_variance, shown)

    @property
    def per_component(self) -> tuple[np.ndarray, ...]:
        return self.values, self.residuals, self.disagreement, self.skewness

    def agreed(
        self, network: Network, beyond: Complement, digest: np.ndarray, like: Array
    ) -> tuple[Measured, Complement | None, bool]:
        """The largest over all nodes, in one exchange; of ``beyond`` too, unless nodes differ in what is shared.

        And whether all nodes have this digest of their components.
        """
        k = len(self.values)
        own = np.array([self.size, self.defect, self.total])
        mine = (*self.per_component, *self.ritz, own, self.projections, -self.projections, digest, -digest, beyond.row)
        row = ea.like(np.concatenate(mine)[np.newaxis], like)
        agreed = ea.to_numpy(network.worst(row)[0, ...]).astype(np.float64)
        sizes = [*[k] * 7, 1, 3, *[PROJECTIONS * k] * 2, *[len(digest)] * 2]
        values, residuals, apart, skewness, *parts = np.split(agreed, np.cumsum(sizes))
        ritz, (own, high, low, first, last, other) = RitzView(*parts[:4]), parts[4:]
        disagreement = np.maximum(apart, (high + low).reshape(PROJECTIONS, k).max(axis=0))
        # The order was settled before; in a cluster rounding may have left another one.
        ordered = np.sort(values)[::-1]
        size, defect, total = own.tolist()
        measured = Measured(ordered, residuals, disagreement, skewness, ritz, size, defect, total, high)
        return measured, Complement.agreed(other), len(digest) > 0 and bool((first == -last).all())


def digest_of(mean: Array) -> np.ndarray:
    """Words of a hash of the components, as numbers whose largest and smallest show whether all nodes have the same."""
    digest = hashlib.sha256(np.ascontiguousarray(ea.to_numpy(mean)).tobytes()).digest()
    words = (digest[WORD_BYTES * place : WORD_BYTES * (place + 1)] for place in range(DIGEST_WORDS))
    return np.array([float(int.from_bytes(word, "big")) for word in words])
