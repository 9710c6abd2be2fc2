"""From settings to a problem: covariances at the nodes of a network, the truth and a start."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from eigenmesh import graphs
from eigenmesh.arrays import Array, namespace, to_numpy
from eigenmesh.averaging import Averaging, Polynomial, Tree
from eigenmesh.data import (
    Covariance,
    CovarianceKind,
    Formed,
    Shards,
    Table,
    gaussian,
    load,
    paper_spectrum,
    pooled_moments,
    split_by_name,
)
from eigenmesh.data._covariance import build_covariance
from eigenmesh.experiments._settings import DataSet, Panel, Synthetic
from eigenmesh.networks import Stacked
from eigenmesh.solvers._bases import random_basis

# Largest d whose pooled covariance is formed to find the truth; beyond, Lanczos iteration finds it.
DENSE_FEATURES = 2000


@dataclass(frozen=True, eq=False)
class Problem:
    """What all methods of a comparison share.

    Attributes
    ----------
    covariance : C_i of all nodes.
    weights : the network.
    truth : (d, K) leading eigenvectors of the pooled covariance.
    basis : (d, K) start with orthonormal columns.
    averaging : how exact averages are made, for the methods that need them.
    """

    covariance: Covariance
    weights: graphs.Weights
    truth: np.ndarray
    basis: np.ndarray
    averaging: Averaging

    @property
    def n_components(self) -> int:
        """K."""
        return int(self.truth.shape[1])

    @cached_property
    def pooled(self) -> Covariance:
        """C at a single node, for centralised methods."""
        return pooled_covariance(self.covariance)


@dataclass(frozen=True, eq=False)
class Pooled:
    """The pooled covariance C = mean of C_i as that of one node, applied through its parts."""

    parts: Covariance

    @property
    def kind(self) -> CovarianceKind:
        """How the parts are held."""
        return self.parts.kind

    @property
    def n_features(self) -> int:
        """Number of columns, d."""
        return self.parts.n_features

    @property
    def n_nodes_here(self) -> int:
        """One."""
        return 1

    @property
    def dtype(self) -> Any:
        """Dtype of the products."""
        return self.parts.dtype

    def place(self, values: np.ndarray) -> Array:
        """Values in the library, dtype and device that ``apply`` takes."""
        return self.parts.place(values)

    def apply(self, X: Array) -> Array:
        """C X: (1, d, k) -> (1, d, k)."""
        xp = namespace(X)
        everywhere = xp.broadcast_to(X, (self.parts.n_nodes_here, *X.shape[1:]))
        return xp.mean(self.parts.apply(everywhere), axis=0, keepdims=True)


def pooled_covariance(covariance: Covariance) -> Covariance:
    """C = mean of C_i as the covariance of one node; formed where the parts are."""
    if isinstance(covariance, Formed):
        return Formed(namespace(covariance.matrices).mean(covariance.matrices, axis=0, keepdims=True))
    return Pooled(covariance)


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


def quickest_averaging(weights: graphs.Weights) -> Averaging:
    """The exact average with the fewest rounds: a tree, or the polynomial where that takes fewer."""
    tree, polynomial = Tree(), Polynomial()
    return tree if tree.prepare(weights).rounds <= polynomial.prepare(weights).rounds else polynomial


def make_problem(panel: Panel, seed: int, trial: int) -> Problem:
    """Data, graph and start of one trial, all drawn anew for each; panels with the same data share them."""
    data_seed, graph_seed, start_seed = map(
        int, np.random.SeedSequence(seed, spawn_key=(trial,)).generate_state(3, dtype=np.uint32)
    )
    covariance, vectors = _covariances(panel.data, panel.n_nodes, data_seed)
    weights = graphs.metropolis(graphs.topology(panel.topology, panel.n_nodes, seed=graph_seed))
    k = panel.n_components
    return Problem(
        covariance,
        weights,
        np.ascontiguousarray(vectors[:, :k]),
        random_basis(covariance.n_features, k, start_seed),
        quickest_averaging(weights),
    )


# One at a time: 20 covariances of CIFAR-10 take 168 MB. A panel's methods, and panels on the same data, share them.
@lru_cache(maxsize=1)
def _covariances(data: Synthetic | DataSet, n_nodes: int, seed: int) -> tuple[Formed, np.ndarray]:
    """C_i at all nodes, and the eigenvectors of C, largest eigenvalue first: (d, d)."""
    shards = _samples(data, n_nodes, seed)
    moments = pooled_moments(shards, Stacked(graphs.metropolis(graphs.complete(n_nodes))))
    covariance: Any = build_covariance(shards, moments, kind=CovarianceKind.FORMED)
    values, vectors = np.linalg.eigh(covariance.matrices.mean(axis=0))
    if isinstance(data, DataSet) and data.unit:
        covariance.matrices[...] /= values[-1]
    return covariance, vectors[:, ::-1]


def _samples(data: Synthetic | DataSet, n_nodes: int, seed: int) -> Shards:
    if isinstance(data, DataSet):
        table = _table(data.name)
        return Shards.from_array(table.X, n_nodes, split_by_name(data.split, seed), table.labels)
    spectrum = _equal_spectrum(data) if data.equal else paper_spectrum(data.d, data.k, data.gap)
    rows = gaussian(spectrum, n_nodes * data.samples_a_node, seed)
    return Shards.from_list(np.split(rows, n_nodes))


def _equal_spectrum(data: Synthetic) -> np.ndarray:
    """k ones, then evenly from the gap to 0.1, so that l_{k+1} / l_k is the gap here too: (d,)."""
    return np.concatenate([np.ones(data.k), np.linspace(data.gap, 0.1, data.d - data.k)])


# One at a time, for each process: CIFAR-10 takes 492 MB.
@lru_cache(maxsize=1)
def _table(name: str) -> Table:
    return load(name)
