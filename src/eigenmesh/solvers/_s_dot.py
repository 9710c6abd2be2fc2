"""S-DOT: orthogonal iteration with a fixed number of plain mixes after each product."""

from dataclasses import dataclass
from typing import ClassVar

from eigenmesh.arrays import Array, orthonormal
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Iterate, Solver, Traits, product_residuals, require_count
from eigenmesh.solvers._consensus import plain_mix


@dataclass(frozen=True)
class SDOT(Solver):
    """S-DOT of Gang, Xiang and Bajwa: orthogonal iteration where gossip stands in for the average.

    ::

        Z_i = C_i X_i;  T_c times Z_i = sum_j w_ij Z_j;  X_i+ = QR(Z_i)

    The published form divides by ``[W^Tc e_1]_i``, which turns averages into sums; QR does not see a scale. What
    the T_c mixes leave of the disagreement, about ``beta^Tc``, is a floor that more iterations do not go below.
    An iteration costs T_c rounds and as many matrices.

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
    traits: ClassVar[Traits] = Traits(fixed_schedule=True, expected_products=100, replay_key=())

    def __post_init__(self) -> None:
        require_count("mixes", self.mixes)

    def init(self, covariance: Covariance, network: Network, basis: Array) -> Iterate:
        """X_i(0) = basis, the same at every node."""
        return Iterate.begin(basis)

    def step(self, covariance: Covariance, network: Network, state: Iterate) -> Iterate:
        """One product, T_c mixes, one QR."""
        return Iterate(*gossiped_product(covariance, network, state.X, self.mixes))


def gossiped_product(covariance: Covariance, network: Network, X: Array, mixes: int) -> tuple[Array, Array]:
    """QR of ``W^mixes (C_i X_i)``, (nodes, d, K), and the residuals of X seen on the way, (nodes, K)."""
    Z, disagreement = plain_mix(network, covariance.apply(X), mixes)
    return orthonormal(Z), product_residuals(X, Z) + disagreement
