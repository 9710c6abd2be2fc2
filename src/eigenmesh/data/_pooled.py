"""The rows of all nodes as those of a single node, for products that are only averaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eigenmesh.arrays import Array, everywhere
from eigenmesh.data._block import Block
from eigenmesh.data._choice import CovarianceKind
from eigenmesh.data._covariance import Covariance
from eigenmesh.data._in_place import InPlace
from eigenmesh.data._shards import Shards
from eigenmesh.data._sparse_covariance import Sparse


def pooled_shards(shards: Shards) -> Shards | None:
    """All rows at one node, without a copy; None unless all nodes are in this process and share one source."""
    source, n_rows = shards.blocks[0].source, sum(block.n_rows for block in shards.blocks)
    if len(shards.blocks) < shards.n_nodes or any(block.source is not source for block in shards.blocks):
        return None
    taken = np.zeros(source.shape[0], dtype=bool)
    for block in shards.blocks:
        taken[block.rows] = True
    # A custom split may assign a row to two nodes, or to none.
    if n_rows != len(taken) or not taken.all():
        return None
    return replace(
        shards, blocks=(Block(source, weights=_pooled_weights(shards)),), n_nodes=1, ids=(0,), node_names=None
    )


def _pooled_weights(shards: Shards) -> np.ndarray | None:
    """Weights of all rows in the order of their source; None if each row is one sample."""
    if all(block.weights is None for block in shards.blocks):
        return None
    weights = np.ones(shards.blocks[0].source.shape[0])
    for block in shards.blocks:
        weights[block.rows] = 1.0 if block.weights is None else block.weights
    return weights


@dataclass(frozen=True, eq=False)
class PooledCovariance:
    """Covariances of M nodes in one process: ``mean_i C_i X = C X`` is one product with the rows of all nodes.

    pooled : C, as that of a single node; make_each : builds the C_i, needed only if nodes have different X.
    """

    pooled: Covariance
    make_each: Callable[[], Covariance]
    n_nodes: int

    @property
    def kind(self) -> CovarianceKind:
        return self.pooled.kind

    @property
    def n_features(self) -> int:
        return self.pooled.n_features

    @property
    def rounding_size(self) -> float:
        return self.pooled.rounding_size

    @cached_property
    def each(self) -> Covariance:
        return self.make_each()

    def place(self, values: np.ndarray) -> Array:
        return self.pooled.place(values)

    def apply(self, X: Array) -> Array:
        return self.each.apply(X)

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        """The average trace at every node: (d, K) -> (nodes,)."""
        return np.repeat(self.pooled.traces_beyond(U), self.n_nodes)


def product_to_average(covariance: Covariance, X: Array, n_nodes: int, out: Array | None = None) -> Array:
    """``C_i X`` for one X that all nodes share, or anything with the same average: (1, d, k) -> (n_nodes, d, k).

    If samples are used in place, the product of all rows is written to ``out``, an array like X that does not overlap
    it.
    """
    if isinstance(covariance, PooledCovariance):
        pooled = covariance.pooled
        product = pooled.apply(X, out) if isinstance(pooled, InPlace | Sparse) else pooled.apply(X)
        return everywhere(product, n_nodes)
    return covariance.apply(everywhere(X, n_nodes))
