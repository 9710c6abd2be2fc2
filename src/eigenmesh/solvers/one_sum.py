"""One sum: all nodes sum up their covariances once, and each solves the eigenproblem. All learn the covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms
from eigenmesh.certificate import Common, ComplementSpace, asymmetry, gaps_from_ritz
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers.base import Check, Solver, Traits

# With more features one covariance would take over 2 GiB per node.
LARGEST_FEATURES = 16_384


class OneSumState(NamedTuple):
    """The start, then the answer, at the nodes in this process."""

    k: int  # K
    X: Array  # (nodes, d, K) the start, then the leading eigenvectors
    values: np.ndarray | None = None  # (d,) eigenvalues, None before the average
    CX: Array = None  # (copies, d, K) C times the eigenvectors
    size: Array = None  # (copies, 1) largest Frobenius norm |C_i| over the nodes that share a copy


@dataclass(frozen=True)
class OneSum(Solver):
    """Average the packed covariances once, ``C = mean(C_i)``, d (d + 1) / 2 numbers, and solve at every node.

    It needs the fewest rounds of all solvers, and the fewest bytes if ``d (d + 1) / 2`` is small compared with ``d K``
    times the products of another solver. Every node ends with the pooled covariance, and without masks neighbours see
    the covariances that they add up: on a tree, the parent of a leaf sees that of the leaf.

    In a fit, moments and covariance are one sum wherever integers are summed, and whoever has C needs no further
    message: see ``eigenmesh.data.CrossProducts``.
    """

    name: ClassVar[str] = "one-sum"
    traits: ClassVar[Traits] = Traits(integers=True, sums_covariances=True, expected_products=1)

    def columns(self, n_components: int, n_features: int) -> int:
        return n_features

    def largest_message(self, n_components: int, n_features: int) -> int:
        # A covariance, packed.
        return n_features * (n_features + 1) // 2

    def kept_numbers(self, n_components: int, n_features: int) -> int:
        # The pooled covariance, its eigenvectors and the workspace of the eigenproblem.
        return 3 * n_features**2

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> OneSumState:
        if (d := basis.shape[-2]) > LARGEST_FEATURES:
            raise InputError(f"d = {d} must be at most {LARGEST_FEATURES} for one-sum; use block-krylov.")
        return OneSumState(basis.shape[-1], basis)

    def step(self, covariance: Covariance, network: Network, state: OneSumState) -> OneSumState:
        """One average of the packed upper triangles; then the eigenproblem at every node."""
        if state.values is not None:
            return state
        n_nodes = state.X.shape[0]
        C, norms = averaged(covariance, network, state.X)
        values, vectors = ea.eigenpairs(C)
        leading = vectors[:, :, : -state.k - 1 : -1]
        X, CX = (ea.like(array, state.X) for array in (leading, C @ leading))
        agreed = network.maximum(ea.like(values[:, ::-1], state.X))
        if network.n_nodes == 1:
            # The largest product is known, not only a bound of it.
            norms = ea.like(values[:, -1], norms)
        size = network.size_of_products(norms, ea.like(np.trace(C, axis1=1, axis2=2), norms))
        return OneSumState(state.k, ea.everywhere(X, n_nodes), ea.to_numpy(agreed[0, ...]), CX, size)

    def common(self, state: OneSumState) -> tuple[Common, ...] | None:
        """Every node has the pooled covariance, so no direction can have been missed."""
        if state.values is None:
            return None
        beyond = state.values[state.k :]
        none = np.zeros((0, len(beyond)))
        space = ComplementSpace(beyond, none.T, none, products=0, whole=True, lost=0.0, inexact=none)
        copies = [slice(at, at + 1) for at in range(state.CX.shape[0])]
        parts = ((state.X[at, ...], state.CX[at, ...], state.size[at, ...]) for at in copies)
        return tuple(Common(X, CX, size, asymmetry(X.mT @ CX), space, lambda vectors: vectors) for X, CX, size in parts)

    def check(self, covariance: Covariance, network: Network, state: OneSumState) -> Check:
        """Solved after one step, up to rounding and the accuracy of the average."""
        if state.values is None:
            return Check(state, np.full(state.k, np.inf), healthy=True, free=True)
        return Check(state, np.zeros(state.k), True, gaps_from_ritz(state.values, state.k), free=True)


def averaged(covariance: Covariance, network: Network, like: Array) -> tuple[np.ndarray, Array]:
    """C at every node, by one average of its upper triangle, (copies, d, d); and ``|C_i|_F``, (nodes,).

    Parameters
    ----------
    covariance : Covariance
        C_i of the nodes in this process.
    network : Network
        The network of all nodes.
    like : array of shape (nodes, d, k)
        Gives the library and the device.
    """
    xp, (n_nodes, d) = ea.namespace(like), like.shape[:2]
    identity = ea.like(np.broadcast_to(np.eye(d), (n_nodes, d, d)), like)
    rows, columns = np.triu_indices(d)
    flat = xp.asarray(rows * d + columns, device=like.device)
    covariances = covariance.apply(identity)
    packed = xp.take(xp.reshape(covariances, (n_nodes, d * d)), flat, axis=1)
    # The bound of row j of a product with unit vectors also bounds the entries of row j of C_i.
    bound = None if network.scales is None else network.scales.rows[rows, np.newaxis]
    pooled = ea.to_numpy(network.common_mean(packed[:, :, None], bound))[:, :, 0]
    C = np.zeros((len(pooled), d, d))
    C[:, rows, columns] = C[:, columns, rows] = pooled
    return C, xp.sqrt(xp.sum(squared_norms(covariances), axis=-1))
