"""The covariance of all blocks as one operator: products at the blocks, summed over a tree, or formed in one pass."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.dask._blocks import BlockPart, Blocks, Layout
from eigenmesh.data import Covariance, CovarianceKind, Formed, Moments, Scaling, Shards, build_covariance
from eigenmesh.data._centring import Centring
from eigenmesh.data._moments import moments_about
from eigenmesh.data._sparse_covariance import require_numpy
from eigenmesh.data._summaries import count_and_sum

# Bytes of the rows per d x d product: many rows, so that adding the matrices costs little compared with computing them.
FORMING_BYTES = 32 * 2**20
# Largest ratio of the squared distance between centre and mean to the variance; that factor is lost in precision.
LARGEST_SHIFT = 100.0


@dataclass(frozen=True, eq=False)
class BlockOperator:
    """The covariance C_b of one block, at the worker that holds the block; None for an empty block."""

    covariance: Any

    def apply(self, X: np.ndarray) -> np.ndarray:
        return np.zeros_like(X) if self.covariance is None else np.asarray(self.covariance.apply(X[np.newaxis])[0])

    def __sizeof__(self) -> int:
        # Dask calls this to know when a worker's memory is full.
        arrays = list(getattr(self.covariance, "factors", ()))
        for matrix in getattr(self.covariance, "matrices", ()):
            arrays += [matrix.data, matrix.indices]
        return object.__sizeof__(self) + sum(int(array.nbytes) for array in arrays)


def block_operator(block: Any, number: int, layout: Layout, moments: Moments, kind: CovarianceKind) -> BlockOperator:
    """Operator of a block; sparse blocks stay sparse, whatever the array declared."""
    shards = layout.shards(block, number)
    if shards is None:
        return BlockOperator(None)
    stays_sparse = shards.is_sparse and kind is not CovarianceKind.FORMED
    return BlockOperator(build_covariance(shards, moments, kind=CovarianceKind.SPARSE if stays_sparse else kind))


def _block_product(block: Any, number: int, make: BlockPart | None, X: np.ndarray) -> np.ndarray:
    """C_b X (d, k) of a block that is an operator or, with ``make``, samples."""
    return np.asarray((block if make is None else make(block, number)).apply(X))


def _block_trace(block: Any, number: int, make: BlockPart | None, U: np.ndarray) -> np.ndarray:
    covariance = (block if make is None else make(block, number)).covariance
    return np.zeros(()) if covariance is None else np.asarray(covariance.traces_beyond(U)[0])


def _block_matrix(block: Any, number: int, make: BlockPart) -> np.ndarray:
    """C_b as a matrix (d, d), or 0 for an empty block."""
    covariance = make(block, number).covariance
    return np.zeros(()) if covariance is None else np.asarray(covariance.matrices[0])


@dataclass(frozen=True, eq=False)
class BlockCovariance:
    """C = (1/M) sum_b C_b of M blocks, as one node's covariance; without ``make``, the blocks are operators already."""

    blocks: Blocks
    kind: CovarianceKind
    n_features: int
    make: BlockPart | None = None
    rounding_size: float = 0.0

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    def apply(self, X: Array) -> np.ndarray:
        require_numpy(X, self.kind)
        total = self.blocks.total(partial(_block_product, make=self.make, X=X[0]), "product", sent_bytes=X.nbytes)
        return np.asarray(total[np.newaxis] / self.blocks.n_blocks)

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        total = self.blocks.total(partial(_block_trace, make=self.make, U=U), "trace", sent_bytes=U.nbytes)
        return np.atleast_1d(total) / self.blocks.n_blocks


def covariance_of_blocks(blocks: Blocks, moments: Moments, kind: CovarianceKind, holds: bool) -> Covariance:
    """The covariance of all blocks, of the given kind.

    Formed: the sum of the blocks' d x d matrices comes here, and products need no further pass. Otherwise products are
    computed at the blocks: on centred copies that the workers hold (``holds``), or on samples read for every product.
    """
    make = partial(block_operator, layout=blocks.layout, moments=moments, kind=kind)
    if kind is CovarianceKind.FORMED:
        sent = moments.mean.nbytes + (0 if moments.scale is None else moments.scale.nbytes)
        pooled = blocks.total(partial(_block_matrix, make=make), "covariance", sent_bytes=sent) / blocks.n_blocks
        return Formed(pooled[np.newaxis])
    weights = 1.0 if moments.scale is None else 1 / moments.scale
    cancels = float(np.sum((weights * moments.mean) ** 2)) * blocks.n_blocks if blocks.is_sparse else 0.0
    if holds:
        return BlockCovariance(blocks.each(make, "operator").kept(), kind, blocks.n_features, rounding_size=cancels)
    return BlockCovariance(blocks, kind, blocks.n_features, make, cancels)


@np.errstate(over="ignore", invalid="ignore")  # if anything is not finite, the usual passes are made
def _covariance_sums(shards: Shards, position: int, centring: Centring) -> np.ndarray:
    """N_b, sums and products of the deviations of a block from a centre, stacked: (d + 2, d)."""
    block, d = shards.blocks[position], shards.n_features
    total = np.zeros((d + 2, d))
    total[0] = block.n_rows
    for _, chunk in centring.chunks(block, FORMING_BYTES):
        total[1] += chunk.sum(axis=0)
        total[2:] += chunk.T @ chunk
    return total


def formed_in_one_pass(blocks: Blocks, *, scale: Scaling) -> tuple[Moments, Formed] | None:
    """Moments and pooled covariance about the mean of the first block; None if that is not precise enough.

    Also None if entries are missing or not finite, which the usual passes report or fill.
    """
    first = blocks.first().total_of_samples(partial(count_and_sum, fills=False))
    if len(first) < 2:
        return None
    centre = first[1 : 1 + blocks.n_features] / first[0]
    total = blocks.total_of_samples(partial(_covariance_sums, centring=Centring(centre)))
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
    return moments, Formed(C[np.newaxis])
