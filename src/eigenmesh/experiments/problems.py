"""From settings to a comparison: covariances of the nodes, the network, the true components and a start."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from eigenmesh import graphs
from eigenmesh.arrays import Array, namespace, to_numpy
from eigenmesh.data import Covariance, CovarianceKind, Formed, Shards, load, split_by_name
from eigenmesh.experiments.experiment import Panel
from eigenmesh.fitting import Costs, NodeData, Prepared, Request, prepare
from eigenmesh.networks import Stacked
from eigenmesh.solvers import random_basis

# Costs under which the average with the fewest rounds is chosen, however many bytes it sends.
ROUNDS_ALONE = Costs(bandwidth_bytes_s=math.inf)
# Largest d for which the pooled covariance is formed to find its eigenvectors; for larger d, Lanczos iteration is used.
DENSE_FEATURES = 2000


@dataclass(frozen=True, eq=False)
class Comparison:
    """The problem that all methods of a comparison share.

    prepared: covariances of all nodes, network and averaging; truth: (d, K) leading eigenvectors of the pooled
    covariance; start: (d, K) with orthonormal columns.
    """

    prepared: Prepared
    truth: np.ndarray
    start: np.ndarray

    @classmethod
    def of(cls, request: Request, data: NodeData, unit: bool = False) -> Comparison:
        """The comparison on these data; with ``unit`` the covariances are divided by their largest eigenvalue."""
        prepared = prepare(request, data)
        k, covariance = int(prepared.n_components), prepared.covariance
        values, truth = leading_eigenvectors(pooled_covariance(covariance, prepared.facts.n_nodes), k)
        if unit and isinstance(covariance, Formed):
            prepared = replace(prepared, covariance=Formed(covariance.matrices / values[0]))
        return cls(prepared, truth, random_basis(prepared.facts.n_features, k, prepared.seed))

    @cached_property
    def centralised(self) -> Prepared:
        """The pooled covariance at a single node, for centralised methods."""
        alone = Stacked(graphs.metropolis(graphs.topologies.complete(1)))
        pooled = pooled_covariance(self.prepared.covariance, self.prepared.facts.n_nodes)
        return replace(self.prepared, network=alone, covariance=pooled)


@dataclass(frozen=True, eq=False)
class PooledParts:
    """The pooled covariance C = mean of C_i as that of one node, applied through its M parts."""

    parts: Covariance
    n_nodes: int

    @property
    def kind(self) -> CovarianceKind:
        return self.parts.kind

    @property
    def n_features(self) -> int:
        return self.parts.n_features

    @property
    def rounding_size(self) -> float:
        return self.parts.rounding_size

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        return np.array([self.parts.traces_beyond(U).mean()])

    def place(self, values: np.ndarray) -> Array:
        return self.parts.place(values)

    def apply(self, X: Array) -> Array:
        xp = namespace(X)
        everywhere = xp.broadcast_to(X, (self.n_nodes, *X.shape[1:]))
        return xp.mean(self.parts.apply(everywhere), axis=0, keepdims=True)


def pooled_covariance(covariance: Covariance, n_nodes: int) -> Covariance:
    """C = mean of C_i as the covariance of one node; formed if the parts are."""
    if isinstance(covariance, Formed):
        return Formed(namespace(covariance.matrices).mean(covariance.matrices, axis=0, keepdims=True))
    return PooledParts(covariance, n_nodes)


def leading_eigenvectors(pooled: Covariance, n_components: int) -> tuple[np.ndarray, np.ndarray]:
    """Largest eigenvalues (K,) and eigenvectors (d, K) of a covariance held at one node, to working precision."""
    d = pooled.n_features

    def product(vectors: np.ndarray) -> np.ndarray:
        columns = np.asarray(vectors, dtype=float).reshape(d, -1)
        image: np.ndarray = to_numpy(pooled.apply(pooled.place(columns[np.newaxis])))
        return image.astype(float).reshape(vectors.shape)

    if d <= max(DENSE_FEATURES, 2 * n_components):
        values, vectors = np.linalg.eigh(product(np.eye(d)))
    else:
        operator = LinearOperator((d, d), matvec=product, matmat=product, dtype=float)
        values, vectors = eigsh(operator, k=n_components, which="LA", tol=0, v0=np.ones(d))
    order = np.argsort(-values)[:n_components]
    return values[order], np.ascontiguousarray(vectors[:, order])


def make_comparison(panel: Panel, seed: int, trial: int) -> Comparison:
    """Data, graph and start of one trial, drawn with its own seeds; panels with the same data share them."""
    seeds = np.random.SeedSequence(seed, spawn_key=(trial,)).generate_state(3, dtype=np.uint32)
    data_seed, graph_seed, start_seed = map(int, seeds)
    shards = _samples(panel.data.drawn(data_seed), panel.data.split, panel.n_nodes, data_seed)
    data = NodeData(shards, graphs.metropolis(graphs.topology(panel.topology, panel.n_nodes, seed=graph_seed)))
    wanted: Any = {"n_components": panel.n_components, "covariance": CovarianceKind.FORMED, "costs": ROUNDS_ALONE}
    return Comparison.of(Request(**wanted, seed=start_seed), data, panel.data.unit)


# One at a time: the methods of a panel, and panels on the same data, share them.
@lru_cache(maxsize=1)
def _samples(name: str, split: str, n_nodes: int, seed: int) -> Shards:
    table = _table(name)
    return Shards.from_array(table.X, n_nodes, split_by_name(split, seed), table.labels)


# One at a time per process: CIFAR-10 takes 492 MB.
_table = lru_cache(maxsize=1)(load)
