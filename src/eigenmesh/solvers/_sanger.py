"""Sanger's rule, the generalised Hebbian algorithm, with exact averages."""

from dataclasses import dataclass
from typing import ClassVar

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.data import Covariance
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Traits, product_residuals
from eigenmesh.solvers._step_size import SteppedSolver, SteppedState


@dataclass(frozen=True)
class Sanger(SteppedSolver):
    """Sanger's rule on the pooled covariance: DSA with exact averages.

    ::

        X+ = X + a (C X - X triu(X^T C X)),  C X = mean over nodes of C_i X_i

    triu keeps p <= k: column k is pulled to norm one and away from the columns before it. An iteration costs one
    ``mean`` of a d x K matrix.

    Parameters
    ----------
    step_size : float or "auto"
        a; "auto" begins with ``0.5 / max |C_i|``, and halves it and restarts whenever the iterates blow up.

    References
    ----------
    T. D. Sanger, "Optimal unsupervised learning in a single-layer linear feedforward neural network", Neural
    Networks 2 (1989).
    """

    name: ClassVar[str] = "sanger"
    traits: ClassVar[Traits] = Traits(centralised=True, replay_key=("step_size",))

    @staticmethod
    def suggested_step(scale: float, second: float) -> float:
        # A column of norm r is stable if 2 a l_1 r^2 < 2; the factor 0.5 allows r up to sqrt 2.
        return 0.5 / scale

    def step(self, covariance: Covariance, network: Network, state: SteppedState) -> SteppedState:
        Z = network.mean(covariance.apply(state.X))
        X = state.X + state.step_size * hebbian(state.X, Z)
        return state._replace(X=X, residual=product_residuals(state.X, Z))


def hebbian(X: Array, Z: Array) -> Array:
    """Direction of Sanger's rule, ``Z - X triu(X^T Z)``: (nodes, d, K) twice -> (nodes, d, K)."""
    return Z - X @ ea.namespace(X).triu(X.mT @ Z)
