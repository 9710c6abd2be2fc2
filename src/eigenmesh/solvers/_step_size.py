"""Base of the methods with a step size: their state, and an automatic step that is halved when it is too long."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, normalised, orthonormal
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Watch, largest_norm, require_positive, unmeasured

# With a stable step, Sanger's rule pulls columns to norm one and overshoots by a few tens of per cent at most.
LONGEST_COLUMN = 3.0
# No rule recovers from columns longer than this.
BLOWN_UP = 1e6


class SteppedState(NamedTuple):
    """Iterates of a method with a step size at the nodes in this process."""

    X: Array  # (nodes, d, K) estimates, of any norm
    residual: Array  # (nodes, K) residuals of the previous X, as each node estimates them
    step_size: float  # a, the same at all nodes
    scale: float  # largest |C_i| over the nodes
    anchor: Array  # X at the smallest residual so far, to restart from
    best: float  # largest residual over the components at the anchor


@dataclass(frozen=True)
class SteppedSolver(Solver):
    """A solver whose only setting is its step size; the state has a field ``step_size``.

    If the iterates blow up with an automatic step, the next check halves the step and restarts.
    """

    step_size: float | Literal["auto"] = "auto"
    # No column gets longer than this while an automatic step is stable.
    longest: ClassVar[float] = LONGEST_COLUMN

    def __post_init__(self) -> None:
        if self.step_size != "auto":
            require_positive("step_size", self.step_size)

    @staticmethod
    @abstractmethod
    def suggested_step(scale: float, second: float) -> float:
        """The first automatic step, from the largest ``|C_i|`` and lambda_2 of W."""

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> Any:
        scale = largest_norm(covariance, network, basis)
        step_size = self.step_size
        if step_size == "auto":
            step_size = self.suggested_step(scale, network.second_eigenvalue)
        return SteppedState(basis, unmeasured(basis), float(step_size), scale, anchor=basis, best=np.inf)

    def readout(self, state: Any) -> Array:
        return normalised(state.X)

    def watch(self, covariance: Covariance, network: Network, state: Any) -> Watch:
        """Agree on the residual and the longest column; on a blow-up, halve an automatic step and restart.

        The restart is from one orthonormal basis for all nodes, the average of their best X so far. A fixed step is the
        user's choice: there, only a true blow-up ends the run.
        """
        automatic = self.step_size == "auto"
        xp = ea.namespace(state.X)
        lengths = xp.max(column_norms(state.X)[:, 0, :], axis=1, keepdims=True)
        agreed = ea.to_numpy(network.worst(xp.concat([state.residual, lengths], axis=1))[0, ...])
        residual, length = agreed[:-1], float(agreed[-1])
        stable = bool(np.all(np.isfinite(residual))) and length < (self.longest if automatic else BLOWN_UP)
        if not automatic:
            return Watch(state, residual, healthy=stable)
        if not stable:
            basis = common_basis(network, state.anchor)
            state = state._replace(X=basis, step_size=state.step_size / 2, anchor=basis)
            return Watch(state, np.full_like(residual, np.inf), healthy=True)
        if residual.max() < state.best:
            state = state._replace(anchor=state.X, best=float(residual.max()))
        return Watch(state, residual, healthy=True)

    def current_step(self, state: Any) -> float:
        return float(state.step_size)


def common_basis(network: Network, X: Array) -> Array:
    """One orthonormal basis for all nodes, from the average of their X: (nodes, d, K) -> (nodes, d, K)."""
    return orthonormal(network.mean(normalised(X), float(network.n_nodes)))
