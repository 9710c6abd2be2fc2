"""The power method for one component after the other, with exact averages or with plain mixes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers.base import Iterate, Solver, Traits, product_residuals, require_count
from eigenmesh.solvers.literature.dot import plain_mix


@dataclass(frozen=True)
class SequentialPower(Solver):
    """Power method for q_1, then for q_2 with q_1 taken out, and so on.

    ::

        z = C x_k,  C x_k = mean over nodes of C_i x_ik
        y = z - sum_{p<k} x_p (x_p^T z);  x_k+ = y / |y|

    Projecting the earlier components out of the product is deflation without their eigenvalues, and keeps x_k
    orthogonal to them. Each component gets ``iterations`` products. After the last component the method continues with
    the first one from its current estimate: an error left in x_1 limits x_2, so further cycles improve all components.
    An iteration costs one ``mean`` of a d x 1 matrix.

    Parameters
    ----------
    iterations : int
        Products per component before moving on to the next one.

    References
    ----------
    G. H. Golub and C. F. Van Loan, "Matrix Computations", Johns Hopkins University Press.
    """

    iterations: int = 50
    name: ClassVar[str] = "seq-pm"
    traits: ClassVar[Traits] = Traits(centralised=True, integers=True, fixed_schedule=True, expected_products=800)

    def __post_init__(self) -> None:
        require_count("iterations", self.iterations)

    def columns(self, n_components: int, n_features: int) -> int:
        return 1

    def step(self, covariance: Covariance, network: Network, state: Iterate) -> Iterate:
        xp = ea.namespace(state.X)
        k = (state.iteration // self.iterations) % int(state.X.shape[2])
        earlier, x, later = state.X[:, :, :k], state.X[:, :, k : k + 1], state.X[:, :, k + 1 :]
        z, residual = self._averaged(network, x, covariance.apply(x))
        y = z - earlier @ (earlier.mT @ z)
        norm = column_norms(y)
        # A covariance of low rank may leave y = 0. Then any direction is as good: keep x.
        x = xp.where(norm > 0, y / xp.where(norm > 0, norm, xp.ones_like(norm)), x)
        residuals = xp.concat([state.residual[:, :k], residual, state.residual[:, k + 1 :]], axis=1)
        return Iterate(xp.concat([earlier, x, later], axis=2), residuals, state.iteration + 1)

    def _averaged(self, network: Network, x: Array, product: Array) -> tuple[Array, Array]:
        """The average of the products C_i x_i, (nodes, d, 1), and the residual of x, (nodes, 1)."""
        z = network.mean(product)
        return z, product_residuals(x, z)


@dataclass(frozen=True)
class SequentialDistributedPower(SequentialPower):
    """The distributed power method of cloud K-SVD, one component after the other.

    ::

        z_i = C_i x_ik;  T_c times z_i = sum_j w_ij z_j
        y_i = z_i - sum_{p<k} x_ip (x_ip^T z_i);  x_ik+ = y_i / |y_i|

    Each node projects out its own earlier components, and cycles through the components as ``SequentialPower`` does.
    The error has the same floor as in S-DOT. An iteration costs T_c rounds of a d x 1 matrix.

    Parameters
    ----------
    iterations : int
        Products per component before moving on to the next one.
    mixes : int
        T_c, the rounds of mixing per iteration.

    References
    ----------
    H. Raja and W. U. Bajwa, "Cloud K-SVD: A collaborative dictionary learning algorithm for big, distributed data",
    IEEE Transactions on Signal Processing 64 (2016).
    """

    mixes: int = 50
    name: ClassVar[str] = "seq-dist-pm"
    traits: ClassVar[Traits] = Traits(fixed_schedule=True, expected_products=100)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("mixes", self.mixes)

    def _averaged(self, network: Network, x: Array, product: Array) -> tuple[Array, Array]:
        z, disagreement = plain_mix(network, product, self.mixes)
        return z, product_residuals(x, z) + disagreement
