"""What a solver is: pure functions of a state, and nothing about loops, stopping or counting."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, orthonormal, squared_norms
from eigenmesh.certificate import Common
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network


@dataclass(frozen=True)
class Watch:
    """What a solver says of itself every few rounds, in values that every node agrees on."""

    state: Any
    """The state to go on from; a solver may have repaired it, for example with a smaller step."""
    residual: np.ndarray | None
    """Estimate of ``|C x_k - theta_k x_k|``, the largest over the nodes, (K,); None: the loop measures it."""
    healthy: bool
    """False when the iterates have blown up or collapsed and the solver cannot repair them."""
    gaps: np.ndarray | None = None
    """Distances between the eigenvalues, (K,), where the solver knows them."""
    free: bool = False
    """True if looking sent nothing, so that it may be done after every iteration."""
    last_look: bool = False
    """True if it is time to look beyond the components, since what the solver knows of that is about to be lost."""


@dataclass(frozen=True)
class Traits:
    """What the rest of the library needs to know about a solver; by default one that mixes once per iteration."""

    centralised: bool = False
    """Published for data in one place; comparisons run it on one node that has the pooled covariance."""
    few_exchanges: bool = False
    """Done after a few dozen products at most, not after hundreds of rounds; what Dask accepts."""
    averages_products: bool = False
    """A step multiplies one block that all nodes share and only averages the products (``product_to_average``)."""
    integers: bool = False
    """All that is averaged are products with columns no longer than 1, for which integers have public scales; and
    nothing else is sent that one node alone knows. What averages in integers, and masks, ask for."""
    sends_covariances: bool = False
    """A message holds a covariance as such; such a solver is never chosen automatically."""
    fixed_schedule: bool = False
    """Published to run without any check of its iterates, once no setting is "auto"."""
    early: float = 1.0
    """So many times tol is near enough to ask for a certificate, since ``finish`` leaves less."""
    expected_products: int = 1000
    """Products with the covariance in a usual run, from which the way to hold it is chosen."""
    replay_key: tuple[str, ...] | None = None
    """Names of the numbers in the state that a step depends on; None: a step must not be replayed.

    It promises that a step looks at nothing else in Python and returns all numbers unchanged, so that a GPU may replay
    the step until one of these numbers changes.
    """


class Iterate(NamedTuple):
    """The state of a method that keeps nothing but its estimates."""

    X: Array  # (nodes, d, K) estimates
    residual: Array  # (nodes, K) residuals of the X before the last product, as each node sees them
    iteration: int = 0  # steps taken, kept by methods whose step depends on it; the same at all nodes


class Solver(ABC):
    """An algorithm as a frozen dataclass of hyperparameters with functions of its state.

    The state is a NamedTuple of arrays with a leading axis over the nodes this process holds. A subclass writes
    ``name`` and ``step``, and the others where the defaults do not suit. An object of it can be used without being
    registered.
    """

    name: ClassVar[str]
    """What the command line and reports call it."""
    traits: ClassVar[Traits] = Traits()
    """What the rest of the library needs to know about it."""

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> Any:
        """Start from a basis that all nodes share: (nodes, d, K) -> state; by default with fields X and residual.

        The seed, the same at every node too, is that of the basis, and for any further random directions.
        """
        return Iterate(basis, unmeasured(basis))

    @abstractmethod
    def step(self, covariance: Covariance, network: Network, state: Any) -> Any:
        """One iteration."""

    def readout(self, state: Any) -> Array:
        """Unit-norm estimates of q_1 .. q_K: state -> (nodes, d, K); by default ``state.X``."""
        X: Array = state.X
        return X

    def common(self, state: Any) -> Common | None:
        """What all nodes know of ``readout(state)``, which spares the certificate its averages; by default nothing."""
        return None

    def beyond(self, state: Any) -> Array | None:
        """Estimates of further directions, which shorten the certificate's look: state -> (nodes, d, p); none here."""
        return None

    def narrowed(self, state: Any) -> Any:
        """The same estimates in less memory, without what only a look beyond the components needs; by default all."""
        return state

    def space(self, state: Any, width: int) -> Array:
        """At most so many orthonormal columns for a next start, the estimates among them: state -> (1, d, w).

        By default the estimates of the first node held here.
        """
        return orthonormal(self.readout(state)[:1, ...])

    def watch(self, covariance: Covariance, network: Network, state: Any) -> Watch:
        """Check the state every few rounds; agree through ``network.worst`` alone; by default on ``state.residual``."""
        return watch_residual(network, state)

    def finish(self, covariance: Covariance, network: Network, watch: Watch) -> Watch:
        """Bring the nodes together for a certificate of ``watch.state``; the run goes on without it if refused.

        By default nothing, where nodes are together all the time or each ends with its own.
        """
        return watch

    def columns(self, n_components: int, n_features: int) -> int:
        """Columns of one product with the covariance, at most d; by default K."""
        return min(n_components, n_features)

    def largest_message(self, n_components: int, n_features: int) -> int:
        """Numbers in the largest message of an iteration, not of a check; by default one product, d times columns."""
        return n_features * self.columns(n_components, n_features)

    def kept_numbers(self, n_components: int, n_features: int) -> int:
        """Numbers that a node keeps beside its covariance, at most; by default six arrays like a product."""
        return 6 * n_features * self.columns(n_components, n_features)

    def current_step(self, state: Any) -> float:
        """Step size that the next iteration uses; NaN for a solver without one."""
        return np.nan


def largest_norm(covariance: Covariance, network: Network, like: Array, products: int = 10) -> float:
    """Largest ``|C_i|`` over the nodes, by a local power iteration at each: a scale that all agree on.

    It is never below ``|C| = l_1`` by more than the power iteration's own error, since C is the mean of C_i. ``like``,
    (nodes, d, k), gives the library, dtype and device. With averages in integers it is tr C, which all know.
    """
    if network.scales is not None:
        return network.scales.size
    xp = ea.namespace(like)
    # Not a column of `like`, which a user may have put where C is zero.
    start = np.random.default_rng(0).standard_normal((1, like.shape[1], 1))
    vector = ea.everywhere(ea.like(start, like), like.shape[0])
    norm = column_norms(vector)
    for _ in range(products):
        # A node whose covariance is zero keeps the zero vector instead of dividing by zero.
        vector = covariance.apply(vector / xp.where(norm > 0, norm, xp.ones_like(norm)))
        norm = column_norms(vector)
    return float(network.worst(norm[:, 0, :])[0, 0])


def product_residuals(X: Array, Z: Array) -> Array:
    """``|z_k - theta_k x_k| / |x_k|`` with ``theta_k = x_k^T z_k / |x_k|^2``: (nodes, d, K) twice -> (nodes, K).

    Where Z is C X, or what a node takes for it, this is the residual of X at no extra product or round.
    """
    xp = ea.namespace(X)
    squares = squared_norms(X)
    theta = xp.vecdot(X, Z, axis=-2) / squares
    return xp.sqrt(squared_norms(Z - X * theta[:, None, :]) / squares)


def unmeasured(X: Array) -> Array:
    """Residuals before the first product, infinite: (nodes, d, K) -> (nodes, K)."""
    return ea.namespace(X).full((X.shape[0], X.shape[2]), np.inf, dtype=X.dtype, device=X.device)


def watch_residual(network: Network, state: Any) -> Watch:
    """Agree on ``state.residual``, (nodes, K); infinite means not measured yet, NaN that the iterates are lost."""
    residual = ea.to_numpy(network.worst(state.residual)[0, ...])
    return Watch(state, residual, healthy=not bool(np.any(np.isnan(residual))))


def require_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
        raise InputError(f"{name} = {value!r} must be a finite number above 0.")


def require_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} = {value!r} must be a whole number of at least 1.")
