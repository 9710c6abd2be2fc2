"""What a solver is: pure functions of a state, and nothing about loops, stopping or counting."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, squared_norms
from eigenmesh.certificate._complement import Complement
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network


class Watch(NamedTuple):
    """What a solver says of itself every few rounds, in values that every node agrees on.

    Attributes
    ----------
    state : state of the solver
        The state to go on from; a solver may have mended it, for example with a smaller step.
    residual : array of shape (K,) or None
        Estimate of ``|C x_k - theta_k x_k|``, the largest over the nodes; None if the solver has none to give, in which
        case the loop measures it.
    healthy : bool
        False when the iterates have blown up or collapsed and the solver cannot mend them.
    gaps : array of shape (K,) or None
        Distances between the eigenvalues, where the solver knows them.
    complement : Complement or None
        What the solver knows of l_{K+1}; None lets the certificate look for itself.
    free : bool
        True if looking sent nothing, so that it may be done after every iteration.
    """

    state: Any
    residual: np.ndarray | None
    healthy: bool
    gaps: np.ndarray | None = None
    complement: Complement | None = None
    free: bool = False


class Solver(Protocol):
    """An algorithm as a frozen dataclass of hyperparameters with four functions of its state.

    The state is a NamedTuple of arrays with a leading axis over the nodes this process holds.

    A solver may have a class attribute ``replay_key``, the names of the numbers in its state that its step depends on.
    It says that a step decides nothing else in Python and hands all numbers on as they are, so that a GPU may replay
    it (``eigenmesh.iteration._cuda_graphs``) until one of these numbers changes.
    """

    @property
    def name(self) -> str:
        """Name that the command line and reports use."""
        ...

    def init(self, covariance: Covariance, network: Network, basis: Array) -> Any:
        """Start from a basis that all nodes share: (nodes, d, K) -> state."""
        ...

    def step(self, covariance: Covariance, network: Network, state: Any) -> Any:
        """One iteration."""
        ...

    def readout(self, state: Any) -> Array:
        """Unit-norm estimates of q_1 .. q_K: state -> (nodes, d, K)."""
        ...

    def watch(self, covariance: Covariance, network: Network, state: Any) -> Watch:
        """Look at the state every few rounds; agree through ``network.worst`` alone."""
        ...


def largest_norm(covariance: Covariance, network: Network, like: Array, products: int = 10) -> float:
    """Largest ``|C_i|`` over the nodes, by a local power iteration at each: a scale that all agree on.

    It is never below ``|C| = l_1`` by more than the power iteration's own error, since C is the mean of C_i.

    Parameters
    ----------
    like : (nodes, d, k) array whose library, dtype and device are used.
    """
    xp = ea.namespace(like)
    # Not a column of `like`, which a user may have put where C is zero.
    start = np.random.default_rng(0).standard_normal((1, like.shape[1], 1))
    vector = ea.everywhere(ea.like(start, like), like.shape[0])
    norm = column_norms(vector)
    for _ in range(products):
        # A node whose covariance is zero keeps the zero vector instead of dividing by zero.
        vector = vector / xp.where(norm > 0, norm, xp.ones_like(norm))
        vector = covariance.apply(vector)
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
    """Raise unless the value is a finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
        raise InputError(f"{name} = {value!r} must be a finite number above 0.")


def require_count(name: str, value: int) -> None:
    """Raise unless the value is a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} = {value!r} must be a whole number of at least 1.")
