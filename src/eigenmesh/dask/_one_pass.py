"""Moments and covariance of dense blocks in a single pass, if the d x d covariance is formed anyway."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eigenmesh.dask._blocks import Blocks, Layout
from eigenmesh.data import Formed, Moments
from eigenmesh.data._centring import Centring
from eigenmesh.data._moments import count_and_sum, moments_about

# Rows per d x d product: many, so that adding such matrices costs little compared with computing them.
FORMING_BYTES = 32 * 2**20
# Largest ratio of the squared distance from centre to mean to the variance: it is lost as precision.
LARGEST_SHIFT = 100.0


@dataclass(frozen=True, eq=False)
class Scatter:
    """N_b, sums and products of the deviations of a block from a centre, stacked: (d + 2, d); 0 if it is empty."""

    layout: Layout
    centring: Centring

    @np.errstate(over="ignore", invalid="ignore")  # if anything is not finite, the usual passes are made
    def __call__(self, block: Any, number: int) -> np.ndarray:
        shards = self.layout.shards(block, number)
        if shards is None:
            return np.zeros(())
        d = shards.n_features
        total = np.zeros((d + 2, d))
        total[0] = shards.blocks[0].n_rows
        for _, chunk in self.centring.chunks(shards.blocks[0], FORMING_BYTES):
            total[1] += chunk.sum(axis=0)
            total[2:] += chunk.T @ chunk
        return total


def formed_in_one_pass(blocks: Blocks, *, scale: bool) -> tuple[Moments, Formed] | None:
    """Moments and pooled covariance about the mean of the first block; None if that is not precise enough.

    Also None if entries are missing or not finite, which the usual passes report or fill.
    """
    first = blocks.first().total_of_samples(partial(count_and_sum, fills=False))
    if len(first) < 2:
        return None
    centre = first[1:] / first[0]
    total = blocks.total(Scatter(blocks.layout, Centring(centre)), "covariance", sent_bytes=centre.nbytes)
    n_samples, sums, products = int(total[0, 0]), total[1], total[2:]
    if n_samples < 2 or not np.isfinite(total).all():
        return None
    products = (products + products.T) / 2
    shift, squares = sums / n_samples, np.diagonal(products)
    variance = squares / n_samples - shift**2
    # A constant column differs from its mean by rounding.
    rounding = 64 * np.finfo(np.float64).eps * np.abs(centre)
    if np.any(shift**2 > LARGEST_SHIFT * np.maximum(variance, 0.0) + rounding**2):
        return None
    moments = moments_about(Moments(n_samples, centre, squares), sums, n_samples, blocks, scale=scale)
    C = (products - n_samples * np.outer(shift, shift)) / (n_samples - 1)
    if moments.scale is not None:
        C = C / np.outer(moments.scale, moments.scale)
    return moments, Formed(C[np.newaxis].astype(blocks.dtype, copy=False))
