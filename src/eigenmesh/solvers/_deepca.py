"""DeEPCA: orthogonal iteration on a tracker of the pooled product."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, orthonormal
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Traits, product_residuals, require_count, unmeasured
from eigenmesh.solvers._consensus import fast_mix


class DeEPCAState(NamedTuple):
    """Iterates of DeEPCA at the nodes held here.

    Attributes
    ----------
    X : (nodes, d, K) estimates with orthonormal columns.
    S : (nodes, d, K) trackers of the mean of C_i X_i.
    product : (nodes, d, K) C_i X_i at the X before.
    start : (nodes, d, K) X_init, which the signs are held to.
    residual : (nodes, K) residuals of the X before the last product, as each node sees them.
    """

    X: Array
    S: Array
    product: Array
    start: Array
    residual: Array


@dataclass(frozen=True)
class DeEPCA(Solver):
    """DeEPCA of Ye and Zhang: subspace tracking, exact with a number of mixes that need not grow.

    ::

        S_i = FastMix(S_i + C_i X_i(t) - C_i X_i(t-1), m),  S_i(0) = "C_i X_i(-1)" = X_init
        X_i(t+1) = QR(S_i), column k flipped where <x_k, x_init_k> < 0

    An iteration costs m rounds and as many matrices. m has to be large enough for the graph and for how unlike the
    nodes are: below that the iterates do not slow down, they wander.

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
    traits: ClassVar[Traits] = Traits(fixed_schedule=True, expected_products=150, replay_key=())

    def __post_init__(self) -> None:
        require_count("mixes", self.mixes)

    def init(self, covariance: Covariance, network: Network, basis: Array) -> DeEPCAState:
        """X_i(0) = S_i = "C_i X_i(-1)" = basis, the same at every node."""
        return DeEPCAState(basis, basis, basis, basis, unmeasured(basis))

    def step(self, covariance: Covariance, network: Network, state: DeEPCAState) -> DeEPCAState:
        """Track, mix, QR, signs."""
        product = covariance.apply(state.X)
        S = fast_mix(network, state.S + product - state.product, self.mixes)
        X = with_signs_of(state.start, orthonormal(S))
        return DeEPCAState(X, S, product, state.start, product_residuals(state.X, S))


def with_signs_of(start: Array, X: Array) -> Array:
    """Columns of X flipped where they point away from those of ``start``: (nodes, d, K) -> (nodes, d, K)."""
    xp = ea.namespace(X)
    along = xp.vecdot(X, start, axis=-2)
    signs = xp.where(along < 0, -xp.ones_like(along), xp.ones_like(along))
    return X * signs[:, None, :]
