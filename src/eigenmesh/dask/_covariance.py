"""The covariance of all blocks as one operator: products at the blocks, summed over a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.dask._blocks import Blocks, Layout
from eigenmesh.data import Covariance, CovarianceKind, Formed, Moments, build_covariance
from eigenmesh.data._lazy_covariance import require_numpy


@dataclass(frozen=True, eq=False)
class BlockOperator:
    """C_b of one block where it lies, the block's samples made ready; None in place of an empty block's."""

    covariance: Any

    def apply(self, X: np.ndarray) -> np.ndarray:
        """C_b X: (d, k) -> (d, k)."""
        return np.zeros_like(X) if self.covariance is None else np.asarray(self.covariance.apply(X[np.newaxis])[0])

    def __sizeof__(self) -> int:
        # Dask asks for it to know when a worker's memory is full.
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
        """The operator of one block; sparse blocks stay sparse, whatever the array said of them."""
        shards = self.layout.shards(block, number)
        if shards is None:
            return BlockOperator(None)
        lazy = shards.is_sparse and self.kind is not CovarianceKind.FORMED
        kind = CovarianceKind.SPARSE if lazy else self.kind
        return BlockOperator(build_covariance(shards, self.moments, kind=kind))


@dataclass(frozen=True, eq=False)
class HeldProduct:
    """C_b X of operators that are held."""

    X: np.ndarray

    def __call__(self, block: BlockOperator, number: int) -> np.ndarray:
        """The product at one block."""
        return block.apply(self.X)


@dataclass(frozen=True, eq=False)
class FreshProduct:
    """C_b X of blocks that are read and made ready each time anew."""

    make: MakeOperator
    X: np.ndarray

    def __call__(self, block: Any, number: int) -> np.ndarray:
        """The product at one block."""
        return self.make(block, number).apply(self.X)


@dataclass(frozen=True, eq=False)
class FormedBlock:
    """C_b as a matrix."""

    make: MakeOperator

    def __call__(self, block: Any, number: int) -> np.ndarray:
        """(d, d), or 0 for an empty block."""
        covariance = self.make(block, number).covariance
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

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the products."""
        return self.blocks.dtype

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=self.dtype)

    def apply(self, X: Array) -> np.ndarray:
        """C X: (1, d, k) -> (1, d, k)."""
        require_numpy(X, self.kind)
        part = HeldProduct(X[0]) if self.make is None else FreshProduct(self.make, X[0])
        total = self.blocks.total(part, "product", sent_bytes=X.nbytes)
        return np.asarray(total[np.newaxis] / self.blocks.n_blocks, dtype=X.dtype)


def covariance_of_blocks(blocks: Blocks, moments: Moments, kind: CovarianceKind, holds: bool) -> Covariance:
    """The covariance of all blocks, held in one of the ways there are.

    Formed: the sum of the blocks' d x d matrices comes here, and products cost no further pass. Otherwise products are
    made at the blocks: on ready copies that the workers hold (``holds``), or on samples read anew for every product.
    """
    make = MakeOperator(blocks.layout, moments, kind)
    if kind is CovarianceKind.FORMED:
        sent = moments.mean.nbytes + (0 if moments.scale is None else moments.scale.nbytes)
        pooled = blocks.total(FormedBlock(make), "covariance", sent_bytes=sent) / blocks.n_blocks
        return Formed(pooled[np.newaxis].astype(blocks.dtype, copy=False))
    if holds:
        return BlockCovariance(blocks.each(make, "operator").kept(), kind, blocks.n_features)
    return BlockCovariance(blocks, kind, blocks.n_features, make)
