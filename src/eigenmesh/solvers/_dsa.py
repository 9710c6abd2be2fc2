"""DSA: Sanger's rule at every node, with one mix per iteration."""

from dataclasses import dataclass
from typing import ClassVar

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Traits
from eigenmesh.solvers._sanger import hebbian
from eigenmesh.solvers._step_size import SteppedSolver, SteppedState


@dataclass(frozen=True)
class DSA(SteppedSolver):
    """The distributed Sanger's algorithm of Gang and Bajwa: combine and adapt.

    ::

        X_i+ = sum_j w_ij X_j + a (C_i X_i - X_i triu(X_i^T C_i X_i))

    It converges linearly, but only to a neighbourhood of the eigenvectors: at its fixed point each node is still pulled
    towards its own data, more strongly with a longer step. An iteration costs one round and one matrix.

    Parameters
    ----------
    step_size : float or "auto"
        a; "auto" begins with ``min(0.5, 1 - lambda_2) / max |C_i|``, and halves it and restarts whenever the iterates
        blow up. A shorter step gives a smaller neighbourhood.

    References
    ----------
    A. Gang and W. U. Bajwa, "A linearly convergent algorithm for distributed principal component analysis", Signal
    Processing 193 (2022).
    """

    name: ClassVar[str] = "dsa"
    traits: ClassVar[Traits] = Traits(fixed_schedule=True, replay_key=("step_size", "scale"))

    @staticmethod
    def suggested_step(scale: float, second: float) -> float:
        return min(0.5, 1 - second) / scale

    def step(self, covariance: Covariance, network: Network, state: SteppedState) -> SteppedState:
        mixed = network.mix(state.X)
        X = mixed + state.step_size * hebbian(state.X, covariance.apply(state.X))
        return state._replace(X=X, residual=drift(network, state, mixed, X))


def drift(network: Network, state: SteppedState, mixed: Array, X: Array) -> Array:
    """Estimate of the residual from how the iterates move and how far the nodes are apart: (nodes, K).

    The average X moves by a times the mean pseudo-gradient, and the nodes move with it once their disagreement has
    settled: the first term. At the fixed point only the effect of that disagreement is left. The disagreement is at
    most ``|X_i - sum_j w_ij X_j| / (1 - lambda_2)``, and its effect at most ``|C_i|`` times that: the second term, a
    cautious one.
    """
    xp = ea.namespace(X)
    moved, spread = (xp.sqrt(squared_norms(array - state.X)) for array in (X, mixed))
    apart = spread / (1 - network.second_eigenvalue)
    return (moved / state.step_size + state.scale * apart) / xp.sqrt(squared_norms(X))
