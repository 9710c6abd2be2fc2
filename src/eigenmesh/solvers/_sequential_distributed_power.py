"""The sequential power method with plain mixes in place of averages."""

from dataclasses import dataclass
from typing import ClassVar

from eigenmesh.arrays import Array
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Traits, product_residuals, require_count, unmeasured
from eigenmesh.solvers._consensus import plain_mix
from eigenmesh.solvers._sequential_power import SequentialPowerState, component_in_work, deflated


@dataclass(frozen=True)
class SequentialDistributedPower(Solver):
    """The distributed power method of cloud K-SVD, one component after the other.

    ::

        z_i = C_i x_ik;  T_c times z_i = sum_j w_ij z_j
        y_i = z_i - sum_{p<k} x_ip (x_ip^T z_i);  x_ik+ = y_i / |y_i|

    Each node takes its own found components out, and after the last component begins again at the first, as
    ``SequentialPower`` does. The floor is that of S-DOT. An iteration costs T_c rounds of a d x 1 matrix.

    Parameters
    ----------
    iterations : int
        Products spent on a component before the next one.
    mixes : int
        T_c, the rounds of mixing per iteration.

    References
    ----------
    H. Raja and W. U. Bajwa, "Cloud K-SVD: A collaborative dictionary learning algorithm for big, distributed data",
    IEEE Transactions on Signal Processing 64 (2016).
    """

    iterations: int = 50
    mixes: int = 50
    name: ClassVar[str] = "seq-dist-pm"
    traits: ClassVar[Traits] = Traits(fixed_schedule=True, expected_products=100)

    def __post_init__(self) -> None:
        require_count("iterations", self.iterations)
        require_count("mixes", self.mixes)

    def columns(self, n_components: int, n_features: int) -> int:
        """One component at a time."""
        return 1

    def init(self, covariance: Covariance, network: Network, basis: Array) -> SequentialPowerState:
        """X_i(0) = basis, the same at every node."""
        return SequentialPowerState(basis, unmeasured(basis), iteration=0)

    def step(self, covariance: Covariance, network: Network, state: SequentialPowerState) -> SequentialPowerState:
        """One product and T_c mixes for the component in work."""
        k = component_in_work(state, self.iterations)
        x = state.X[:, :, k : k + 1]
        z, disagreement = plain_mix(network, covariance.apply(x), self.mixes)
        return deflated(state, k, z, product_residuals(x, z) + disagreement)
