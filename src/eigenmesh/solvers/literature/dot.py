"""S-DOT and SA-DOT: orthogonal iteration with a fixed or growing number of plain mixes after each product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, orthonormal, squared_norms
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers.base import Iterate, Solver, Traits, product_residuals, require_count, require_positive


@dataclass(frozen=True)
class SDOT(Solver):
    """S-DOT of Gang, Xiang and Bajwa: orthogonal iteration with gossip in place of the average.

    ::

        Z_i = C_i X_i;  T_c times Z_i = sum_j w_ij Z_j;  X_i+ = QR(Z_i)

    The published form divides by ``[W^Tc e_1]_i``, which turns averages into sums. QR ignores the scale. The T_c mixes
    leave a disagreement of about ``beta^Tc``, and more iterations do not bring the error below this floor. An iteration
    costs T_c rounds and as many matrices.

    Parameters
    ----------
    mixes : int
        T_c, the rounds of mixing per iteration.

    References
    ----------
    A. Gang, B. Xiang and W. U. Bajwa, "Distributed principal subspace analysis for partitioned big data:
    Algorithms, analysis, and implementation", IEEE Transactions on Signal and Information Processing over
    Networks 7 (2021).
    """

    mixes: int = 50
    name: ClassVar[str] = "s-dot"
    traits: ClassVar[Traits] = Traits(fixed_schedule=True, expected_products=100)

    def __post_init__(self) -> None:
        require_count("mixes", self.mixes)

    def step(self, covariance: Covariance, network: Network, state: Iterate) -> Iterate:
        return gossiped_step(covariance, network, state, self.mixes)


@dataclass(frozen=True)
class SADOT(Solver):
    """SA-DOT, from the same paper as S-DOT: few mixes while the estimates are rough, more as they improve.

    ::

        Z_i = C_i X_i;  T_c(t) times Z_i = sum_j w_ij Z_j;  X_i+ = QR(Z_i)
        T_c(t) = min(start + floor(growth t), cap),  t = 0, 1, 2, ..

    An iteration costs T_c(t) rounds and as many matrices. The floor is that of S-DOT with ``cap`` mixes.

    Parameters
    ----------
    start : int
        Mixes of the first iteration.
    growth : float
        Mixes added per iteration. A fraction such as 0.5 adds one every other iteration.
    cap : int
        Largest number of mixes per iteration.
    """

    start: int = 1
    growth: float = 1.0
    cap: int = 50
    name: ClassVar[str] = "sa-dot"
    traits: ClassVar[Traits] = Traits(fixed_schedule=True, expected_products=100)

    def __post_init__(self) -> None:
        require_count("start", self.start)
        require_positive("growth", self.growth)
        require_count("cap", self.cap)
        if self.cap < self.start:
            raise InputError(f"cap = {self.cap} must be at least start = {self.start}.")

    def step(self, covariance: Covariance, network: Network, state: Iterate) -> Iterate:
        after = gossiped_step(covariance, network, state, self.mixes(state.iteration))
        return after._replace(iteration=state.iteration + 1)

    def mixes(self, iteration: int) -> int:
        """T_c(t)."""
        return min(self.start + int(self.growth * iteration), self.cap)


def gossiped_step(covariance: Covariance, network: Network, state: Iterate, mixes: int) -> Iterate:
    """X+ is the Q factor of ``W^mixes (C_i X_i)``. The residuals of X cost nothing more."""
    Z, disagreement = plain_mix(network, covariance.apply(state.X), mixes)
    return Iterate(orthonormal(Z), product_residuals(state.X, Z) + disagreement)


def plain_mix(network: Network, Z: Array, rounds: int) -> tuple[Array, Array]:
    """``W^rounds Z``, (nodes, d, k), and an estimate of each column's distance from the mean of all nodes, (nodes, k).

    The last round changes the distance e from the mean by ``(W - I) W^-1 e``, so e is at most
    ``max |w / (1 - w)|`` times that change, over the eigenvalues w of W besides 1.
    """
    network.require_sums_kept()
    before = Z
    for _ in range(rounds):
        before, Z = Z, network.mix(Z)
    spectrum = network.weights.spectrum
    factor = max(abs(w) / (1 - w) for w in (spectrum.second, spectrum.smallest))
    return Z, factor * ea.namespace(Z).sqrt(squared_norms(Z - before))


# Orthogonal iteration: the block power method, with exact averages.


@dataclass(frozen=True)
class OrthogonalIteration(Solver):
    """Orthogonal iteration on the pooled covariance, the baseline of the decentralised methods.

    ::

        X+ = QR(C X),  C X = mean over nodes of C_i X_i

    The mean is exact (``network.mean``), so every node has the iterates of the centralised method. The angle of column
    k shrinks by ``max(l_{k+1} / l_k, l_k / l_{k-1})`` per iteration. An iteration costs one ``mean`` of a d x K
    matrix.

    References
    ----------
    G. H. Golub and C. F. Van Loan, "Matrix Computations", Johns Hopkins University Press.
    """

    name: ClassVar[str] = "oi"
    traits: ClassVar[Traits] = Traits(centralised=True, integers=True, fixed_schedule=True, expected_products=150)

    def step(self, covariance: Covariance, network: Network, state: Iterate) -> Iterate:
        Z = network.mean(covariance.apply(state.X))
        return Iterate(orthonormal(Z), product_residuals(state.X, Z))
