"""DeEPCA: orthogonal iteration on a tracker of the pooled product."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, orthonormal
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers.base import Solver, Traits, product_residuals, require_count, unmeasured


class DeEPCAState(NamedTuple):
    """Iterates of DeEPCA at the nodes in this process."""

    X: Array  # (nodes, d, K) estimates with orthonormal columns
    S: Array  # (nodes, d, K) trackers of the mean of C_i X_i
    product: Array  # (nodes, d, K) C_i X_i of the previous X
    start: Array  # (nodes, d, K) X_init, the reference for the signs
    residual: Array  # (nodes, K) residuals of the previous X, as each node estimates them


@dataclass(frozen=True)
class DeEPCA(Solver):
    """DeEPCA of Ye and Zhang: subspace tracking, exact with a fixed number of mixes per iteration.

    ::

        S_i = FastMix(S_i + C_i X_i(t) - C_i X_i(t-1), m),  S_i(0) = "C_i X_i(-1)" = X_init
        X_i(t+1) = QR(S_i), column k flipped where <x_k, x_init_k> < 0

    An iteration costs m rounds and as many matrices. m must be large enough for the graph and for the differences
    between the nodes: with fewer mixes the iterates do not converge at all.

    Parameters
    ----------
    mixes : int
        m, the rounds of FastMix per iteration.

    References
    ----------
    H. Ye and T. Zhang, "DeEPCA: Decentralized exact PCA with linear convergence rate", Journal of Machine Learning
    Research 22 (2021).
    """

    mixes: int = 10
    name: ClassVar[str] = "deepca"
    traits: ClassVar[Traits] = Traits(fixed_schedule=True, expected_products=150)

    def __post_init__(self) -> None:
        require_count("mixes", self.mixes)

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> DeEPCAState:
        return DeEPCAState(basis, basis, basis, basis, unmeasured(basis))

    def step(self, covariance: Covariance, network: Network, state: DeEPCAState) -> DeEPCAState:
        product = covariance.apply(state.X)
        S = fast_mix(network, state.S + product - state.product, self.mixes)
        X = orthonormal(S)
        xp = ea.namespace(X)
        along = xp.vecdot(X, state.start, axis=-2)
        X = X * xp.where(along < 0, -xp.ones_like(along), xp.ones_like(along))[:, None, :]
        return DeEPCAState(X, S, product, state.start, product_residuals(state.X, S))


def fast_mix(network: Network, Z: Array, rounds: int) -> Array:
    """FastMix, accelerated mixing that keeps the mean: (nodes, d, k) -> (nodes, d, k).

        Z+ = (1 + eta) W Z - eta Z_prev,  Z_prev = Z at the start,
        eta = (1 - sqrt(1 - beta^2)) / (1 + sqrt(1 - beta^2))

    Disagreement shrinks by about ``1 - sqrt(1 - beta)`` per round. Plain mixing shrinks it by beta. If W has negative
    eigenvalues, the first round may enlarge their part, so a single round need not shrink anything. With one-way links
    the eigenvalues are complex and acceleration would diverge: there eta is 0, which is plain mixing.
    """
    network.require_sums_kept()
    root = math.sqrt(1 - network.weights.spectrum.beta**2) if network.weights.symmetric else 1.0
    eta = (1 - root) / (1 + root)
    before = Z
    for _ in range(rounds):
        before, Z = Z, (1 + eta) * network.mix(Z) - eta * before
    return Z
