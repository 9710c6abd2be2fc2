"""The sequential power method: one component after the other, with exact averages."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Traits, product_residuals, require_count, unmeasured


class SequentialPowerState(NamedTuple):
    """Iterates of a sequential power method at the nodes held here.

    Attributes
    ----------
    X : (nodes, d, K) components: found, in work, and the start's columns for those not begun.
    residual : (nodes, K) residual of each when it was last worked on; infinite if not begun.
    iteration : number of products so far, the same at all nodes.
    """

    X: Array
    residual: Array
    iteration: int


@dataclass(frozen=True)
class SequentialPower(Solver):
    """Power method for q_1, then for q_2 with q_1 taken out, and so on.

    ::

        z = C x_k,  C x_k = mean over nodes of C_i x_ik
        y = z - sum_{p<k} x_p (x_p^T z);  x_k+ = y / |y|

    Taking the found ones out of the product is deflation without their eigenvalues, and keeps x_k orthogonal to
    them. Each component gets ``iterations`` products. After the last one it begins again at the first, from the
    estimates that it has: an error left in x_1 bounds what x_2 can reach, and cycling makes every budget useful.
    An iteration costs one ``mean`` of a d x 1 matrix.

    Parameters
    ----------
    iterations : int
        Products spent on a component before the next one.

    References
    ----------
    G. H. Golub and C. F. Van Loan, "Matrix Computations", Johns Hopkins University Press.
    """

    iterations: int = 50
    name: ClassVar[str] = "seq-pm"
    traits: ClassVar[Traits] = Traits(exact_averages=True, centralised=True, fixed_schedule=True, expected_products=800)

    def __post_init__(self) -> None:
        require_count("iterations", self.iterations)

    def columns(self, n_components: int, n_features: int) -> int:
        """One component at a time."""
        return 1

    def init(self, covariance: Covariance, network: Network, basis: Array) -> SequentialPowerState:
        """X_i(0) = basis, the same at every node."""
        return SequentialPowerState(basis, unmeasured(basis), iteration=0)

    def step(self, covariance: Covariance, network: Network, state: SequentialPowerState) -> SequentialPowerState:
        """One product and one average for the component in work."""
        k = component_in_work(state, self.iterations)
        x = state.X[:, :, k : k + 1]
        z = network.mean(covariance.apply(x))
        return deflated(state, k, z, product_residuals(x, z))


def component_in_work(state: SequentialPowerState, iterations: int) -> int:
    """Column that the next product is for, counted from 0."""
    return (state.iteration // iterations) % int(state.X.shape[2])


def deflated(state: SequentialPowerState, k: int, z: Array, residual: Array) -> SequentialPowerState:
    """Take x_1 .. x_{k-1} out of z, (nodes, d, 1), and put what is left, at norm one, in place of x_k."""
    xp = ea.namespace(z)
    X, found = state.X, state.X[:, :, :k]
    y = z - found @ (found.mT @ z)
    norm = column_norms(y)
    # A covariance of low rank leaves nothing: any direction is as good as the one at hand.
    x = xp.where(norm > 0, y / xp.where(norm > 0, norm, xp.ones_like(norm)), X[:, :, k : k + 1])
    return SequentialPowerState(
        xp.concat([found, x, X[:, :, k + 1 :]], axis=2),
        xp.concat([state.residual[:, :k], residual, state.residual[:, k + 1 :]], axis=1),
        state.iteration + 1,
    )
