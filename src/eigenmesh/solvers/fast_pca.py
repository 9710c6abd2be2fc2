"""FAST-PCA: gradient tracking on a Krasulina/Sanger pseudo-gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, squared_norms
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers.base import BLOWN_UP, LONGEST_COLUMN, Check, SteppedSolver, Traits, common_basis

# With exact averages the first column, which has no Gram-Schmidt term, never gets shorter, and no column grows by more
# than a few tens of per cent. Beyond these bounds the iterates follow the nodes' disagreement, not the data: the step
# is too long.
SHORTEST_FIRST_COLUMN = 0.6
# Later columns do get shorter while the earlier ones are projected out. A column that has almost vanished is dominated
# by the disagreement on the others and never recovers by itself.
SHORTEST_COLUMN = 0.03


class FastPCAState(NamedTuple):
    """Iterates of FAST-PCA at the nodes in this process."""

    X: Array  # (nodes, d, K) estimates
    S: Array  # (nodes, d, K) trackers of the mean pseudo-gradient
    H: Array  # (nodes, d, K) pseudo-gradients at X
    upper: Array  # (K, K) ones on and above the diagonal: a product with it is cheaper than `triu` on small matrices
    step_size: float  # a, the same at all nodes
    scale: float  # largest |C_i| over the nodes
    anchor: Array  # X at the smallest residual so far, to restart from
    best: float  # largest residual over the components at the anchor


@dataclass(frozen=True)
class FastPCA(SteppedSolver):
    """FAST-PCA of Gang and Bajwa: one neighbour exchange per iteration, linear convergence to the eigenvectors.

    ::

        h_i(X) = C_i X - X D^-1 triu(X^T C_i X),  D = diag(|x_1|^2 .. |x_K|^2)                          (2)
        X_i+ = 1/2 X_i + 1/2 sum_j w_ij X_j + a S_i                                                      (3)
        S_i+ = 1/2 S_i + 1/2 sum_j w_ij S_j + h_i(X_i+) - h_i(X_i)                                       (4)

    X and S travel in one message: one round and two matrices per iteration.

    Parameters
    ----------
    step_size : float or "auto"
        a; "auto" begins with a step that fits data and graph (``suggested_step``). Whenever the iterates blow up or
        collapse, the step is halved and all nodes restart from the best X so far, with S reset to h. A column that has
        almost vanished is restored in the same way, with the same step.

    References
    ----------
    A. Gang and W. U. Bajwa, "FAST-PCA: A fast and exact algorithm for distributed principal component
    analysis", IEEE Transactions on Signal Processing 70 (2022).
    """

    name: ClassVar[str] = "fast-pca"
    traits: ClassVar[Traits] = Traits(fixed_schedule=True)

    def largest_message(self, n_components: int, n_features: int) -> int:
        # X and S.
        return 2 * n_features * self.columns(n_components, n_features)

    @staticmethod
    def suggested_step(scale: float, second: float) -> float:
        """``min(0.7, 5 e) / scale`` with ``e = (1 - lambda_2) / 2``, where the two slowest modes are equally fast.

        The error of the average shrinks by ``1 - a gap`` per round. The slowest disagreement, for identical nodes,
        obeys ``z^2 - (2 (1 - e) - a g) z + (1 - e)^2 - a g = 0`` with g up to l_1, and for ``a g > e`` its root is
        about ``1 - e^2 / (a g)``: a longer step makes it slower. The two are equal at ``a = e / sqrt(gap g)``; with
        gaps of a few per cent of l_1 that is about ``5 e / l_1``.
        """
        return min(0.7, 5 * (1 - second) / 2) / scale

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> FastPCAState:
        """X_i(0) = the basis, (nodes, d, K), and S_i(0) = h_i(X_i(0))."""
        begun = super().init(covariance, network, basis)
        upper = ea.like(np.triu(np.ones((basis.shape[-1], basis.shape[-1]))), basis)
        H = pseudo_gradient(covariance, basis, upper)
        return FastPCAState(basis, H, H, upper, begun.step_size, begun.scale, anchor=basis, best=np.inf)

    def step(self, covariance: Covariance, network: Network, state: FastPCAState) -> FastPCAState:
        """Equations (3) and (4)."""
        # `push_pull` returns new arrays, so they may be changed in place.
        X, S = network.push_pull(state.X, state.S)
        X += state.step_size * state.S
        H = pseudo_gradient(covariance, X, state.upper)
        S += H - state.H
        return state._replace(X=X, S=S, H=H)

    def check(self, covariance: Covariance, network: Network, state: FastPCAState) -> Check:
        """Read the residual off the tracker; with an automatic step, restart if the iterates blow up or collapse."""
        xp = ea.namespace(state.X)
        norms = column_norms(state.X)[:, 0, :]
        # `maximum` takes maxima, so shortest norms are sent with a minus sign.
        sizes = [-norms[:, :1], xp.max(-norms, axis=1, keepdims=True), xp.max(norms, axis=1, keepdims=True)]
        numbers = xp.concat([column_norms(state.S)[:, 0, :] / norms, *sizes], axis=1)
        agreed = ea.to_numpy(network.maximum(numbers)[0, ...])
        residual, (first, shortest), longest = agreed[:-3], -agreed[-3:-1], float(agreed[-1])
        finite = bool(np.all(np.isfinite(residual)))
        if self.step_size != "auto":
            # A fixed step is the user's choice: only a true blow-up ends the run.
            return Check(state, residual, healthy=finite and longest < BLOWN_UP)
        largest = float(residual.max())
        if not finite or first < SHORTEST_FIRST_COLUMN or longest > LONGEST_COLUMN or largest > 2 * state.scale:
            state = _restarted(covariance, network, state, state.anchor, state.step_size / 2)
            return Check(state, np.full_like(residual, np.inf), healthy=True)
        if largest < state.best:
            state = state._replace(anchor=state.X, best=largest)
        if shortest < SHORTEST_COLUMN:
            state = _restarted(covariance, network, state, state.X, state.step_size)
        return Check(state, residual, healthy=True)


def pseudo_gradient(covariance: Covariance, X: Array, upper: Array) -> Array:
    """Equation (2): (nodes, d, K) -> (nodes, d, K).

    triu keeps p <= k: p < k is the Gram-Schmidt term, p = k the Krasulina term; row p is divided by |x_p|^2.
    """
    Z = covariance.apply(X)
    return Z - X @ ((X.mT @ Z) * (upper / squared_norms(X)[:, :, None]))


def _restarted(
    covariance: Covariance, network: Network, state: FastPCAState, X: Array, step_size: float
) -> FastPCAState:
    """Restart the algorithm from one orthonormal basis, the average of X (nodes, d, K)."""
    basis = common_basis(network, X)
    H = pseudo_gradient(covariance, basis, state.upper)
    return state._replace(X=basis, S=H, H=H, step_size=step_size, anchor=basis)
