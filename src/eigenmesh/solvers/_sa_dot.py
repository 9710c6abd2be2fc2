"""SA-DOT: S-DOT with a number of mixes that grows."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from eigenmesh.arrays import Array
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Traits, require_count, require_positive, unmeasured
from eigenmesh.solvers._s_dot import gossiped_product


class SADOTState(NamedTuple):
    """Iterates of SA-DOT at the nodes held here.

    Attributes
    ----------
    X : (nodes, d, K) estimates with orthonormal columns.
    residual : (nodes, K) residuals of the X before the last product, as each node sees them.
    iteration : t, the same at all nodes.
    """

    X: Array
    residual: Array
    iteration: int


@dataclass(frozen=True)
class SADOT(Solver):
    """SA-DOT of Gang, Xiang and Bajwa: few mixes while the estimates are rough, more as they get better.

    ::

        Z_i = C_i X_i;  T_c(t) times Z_i = sum_j w_ij Z_j;  X_i+ = QR(Z_i)
        T_c(t) = min(start + floor(growth t), cap),  t = 0, 1, 2, ..

    An iteration costs T_c(t) rounds and as many matrices; the floor is that of S-DOT with ``cap`` mixes.

    Parameters
    ----------
    start : int
        Mixes of the first iteration.
    growth : float
        Mixes added per iteration; a fraction such as 0.5 adds one every other iteration.
    cap : int
        Most mixes per iteration.

    References
    ----------
    A. Gang, B. Xiang and W. U. Bajwa, "Distributed principal subspace analysis for partitioned big data:
    Algorithms, analysis, and implementation", IEEE Transactions on Signal and Information Processing over
    Networks 7 (2021).
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

    def init(self, covariance: Covariance, network: Network, basis: Array) -> SADOTState:
        """X_i(0) = basis, the same at every node."""
        return SADOTState(basis, unmeasured(basis), iteration=0)

    def step(self, covariance: Covariance, network: Network, state: SADOTState) -> SADOTState:
        """One product, T_c(t) mixes, one QR."""
        X, residual = gossiped_product(covariance, network, state.X, self.mixes(state.iteration))
        return SADOTState(X, residual, state.iteration + 1)

    def mixes(self, iteration: int) -> int:
        """T_c(t)."""
        return min(self.start + int(self.growth * iteration), self.cap)
