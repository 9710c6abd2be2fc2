"""Orthogonal iteration: the block power method, with exact averages."""

from dataclasses import dataclass
from typing import ClassVar

from eigenmesh.arrays import orthonormal
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Iterate, Solver, Traits, product_residuals


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
    traits: ClassVar[Traits] = Traits(
        centralised=True, integers=True, fixed_schedule=True, expected_products=150, replay_key=()
    )

    def step(self, covariance: Covariance, network: Network, state: Iterate) -> Iterate:
        Z = network.mean(covariance.apply(state.X))
        return Iterate(orthonormal(Z), product_residuals(state.X, Z))
