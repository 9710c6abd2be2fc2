"""The covariance of all blocks as one operator: products at the blocks, summed over a tree."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.dask._blocks import Blocks, Layout
from eigenmesh.data import Covariance, CovarianceKind, Formed, Moments, build_covariance
from eigenmesh.data._lazy_covariance import require_numpy


@dataclass(frozen=True, eq=False)
class BlockOperator:
    """C_b of one block, at the worker that holds it; None for an empty block."""

    covariance: Any

    def apply(self, X: np.ndarray) -> np.ndarray:
        return np.zeros_like(X) if self.covariance is None else np.asarray(self.covariance.apply(X[np.newaxis])[0])

    def __sizeof__(self) -> int:
        # Dask calls this to know when a worker's memory is full.
        arrays = list(getattr(self.covariance, "factors", ()))
        for matrix in getattr(self.covariance, "matrices", ()):
            arrays += [matrix.data, matrix.indices]
        return object.__sizeof__(self) + sum(int(array.nbytes) for array in arrays)


@dataclass(frozen=True, eq=False)
class MakeOperator:
    """From a block to its operator."""

    layout: Layout
    moments: Moments
    kind: CovarianceKind

    def __call__(self, block: Any, number: int) -> BlockOperator:
        """The operator of one block; sparse blocks stay sparse, whatever the array declared."""
        shards = self.layout.shards(block, number)
        if shards is None:
            return BlockOperator(None)
        stays_sparse = shards.is_sparse and self.kind is not CovarianceKind.FORMED
        kind = CovarianceKind.SPARSE if stays_sparse else self.kind
        return BlockOperator(build_covariance(shards, self.moments, kind=kind))


def _block_product(block: Any, number: int, make: MakeOperator | None, X: np.ndarray) -> np.ndarray:
    """C_b X (d, k) of a block that is an operator or, with ``make``, samples."""
    operator = block if make is None else make(block, number)
    return np.asarray(operator.apply(X))


def _block_matrix(block: Any, number: int, make: MakeOperator) -> np.ndarray:
    """C_b as a matrix (d, d), or 0 for an empty block."""
    covariance = make(block, number).covariance
    return np.zeros(()) if covariance is None else np.asarray(covariance.matrices[0])


@dataclass(frozen=True, eq=False)
class BlockCovariance:
    """C = (1/M) sum_b C_b of M blocks, as one node's covariance; a product is one pass over the blocks.

    make : None if the blocks are operators already.
    """

    blocks: Blocks
    kind: CovarianceKind
    n_features: int
    make: MakeOperator | None = None

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=self.blocks.dtype)

    def apply(self, X: Array) -> np.ndarray:
        require_numpy(X, self.kind)
        part = partial(_block_product, make=self.make, X=X[0])
        total = self.blocks.total(part, "product", sent_bytes=X.nbytes)
        return np.asarray(total[np.newaxis] / self.blocks.n_blocks, dtype=X.dtype)


def covariance_of_blocks(blocks: Blocks, moments: Moments, kind: CovarianceKind, holds: bool) -> Covariance:
    """The covariance of all blocks, of the given kind.

    Formed: the sum of the blocks' d x d matrices comes here, and products need no further pass. Otherwise products are
    computed at the blocks: on centred copies that the workers hold (``holds``), or on samples read for every product.
    """
    make = MakeOperator(blocks.layout, moments, kind)
    if kind is CovarianceKind.FORMED:
        sent = moments.mean.nbytes + (0 if moments.scale is None else moments.scale.nbytes)
        pooled = blocks.total(partial(_block_matrix, make=make), "covariance", sent_bytes=sent) / blocks.n_blocks
        return Formed(pooled[np.newaxis].astype(blocks.dtype, copy=False))
    if holds:
        return BlockCovariance(blocks.each(make, "operator").kept(), kind, blocks.n_features)
    return BlockCovariance(blocks, kind, blocks.n_features, make)
