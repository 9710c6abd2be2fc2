"""Tree covariance: one aggregate of covariances, then everything locally. It shows covariances."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.certificate._bounds import gaps_from_ritz
from eigenmesh.certificate._complement import NOTHING_BEYOND, Complement
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Traits, Watch

# d beyond which a node would have to hold more than 2 GiB for one covariance.
LARGEST_FEATURES = 16_384


class TreeCovarianceState(NamedTuple):
    """What is known at the nodes held here."""

    k: int  # K
    X: Array  # (nodes, d, K) the start, then the leading eigenvectors
    values: np.ndarray | None  # (K + 1,) or (d,) leading eigenvalues, None before the aggregate


@dataclass(frozen=True)
class TreeCovariance(Solver):
    """Average the packed covariances once, ``C = mean(C_i)``, d (d + 1) / 2 numbers, and solve locally.

    The fewest rounds there can be, and the fewest bytes when ``d (d + 1) / 2`` is small beside ``d K`` times the
    products of another solver. **But neighbours see covariances**: on a tree, each node's parent receives the sum of
    the covariances of the branch below it, so a leaf's parent sees that leaf's own covariance, and every node ends
    with the pooled one. It is never chosen automatically; ask for it only where that may be shown.
    """

    name: ClassVar[str] = "tree-covariance"
    traits: ClassVar[Traits] = Traits(
        exact_averages=True, few_exchanges=True, sends_covariances=True, expected_products=1
    )

    def columns(self, n_components: int, n_features: int) -> int:
        return n_features

    def largest_message(self, n_components: int, n_features: int) -> int:
        # A covariance, packed.
        return n_features * (n_features + 1) // 2

    def kept_numbers(self, n_components: int, n_features: int) -> int:
        # The pooled covariance, its eigenvectors and room to find them.
        return 3 * n_features**2

    def init(self, covariance: Covariance, network: Network, basis: Array) -> TreeCovarianceState:
        if (d := basis.shape[-2]) > LARGEST_FEATURES:
            raise InputError(f"d = {d} must be at most {LARGEST_FEATURES} for tree-covariance; use block-krylov.")
        return TreeCovarianceState(basis.shape[-1], basis, None)

    def step(self, covariance: Covariance, network: Network, state: TreeCovarianceState) -> TreeCovarianceState:
        """One average of the packed upper triangles; then the eigenproblem at every node."""
        if state.values is not None:
            return state
        xp = ea.namespace(state.X)
        n_nodes, d = state.X.shape[:2]
        identity = ea.like(np.broadcast_to(np.eye(d), (n_nodes, d, d)), state.X)
        rows, columns = np.triu_indices(d)
        flat = xp.asarray(rows * d + columns, device=state.X.device)
        packed = xp.take(xp.reshape(covariance.apply(identity), (n_nodes, d * d)), flat, axis=1)
        pooled = ea.to_numpy(network.common_mean(packed[:, :, None]))[0, :, 0]
        C = np.zeros((d, d), dtype=pooled.dtype)
        C[rows, columns] = C[columns, rows] = pooled
        values, vectors = np.linalg.eigh(C)
        keep = min(state.k + 1, d)
        X = ea.like(vectors[np.newaxis, :, : -state.k - 1 : -1], state.X)
        agreed = network.worst(ea.like(values[np.newaxis, : -keep - 1 : -1], state.X))
        return TreeCovarianceState(state.k, ea.everywhere(X, n_nodes), ea.to_numpy(agreed[0, ...]))

    def watch(self, covariance: Covariance, network: Network, state: TreeCovarianceState) -> Watch:
        """Solved after one step, up to rounding and the accuracy of the average."""
        values, k = state.values, state.k
        if values is None:
            return Watch(state, np.full(k, np.inf), healthy=True, free=True)
        beyond = Complement(float(values[k]), float(values[k])) if len(values) > k else NOTHING_BEYOND
        return Watch(state, np.zeros(k), True, gaps_from_ritz(values, k), beyond, free=True)
