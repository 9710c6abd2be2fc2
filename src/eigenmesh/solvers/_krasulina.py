"""Krasulina's method for the first component, with exact averages."""

from dataclasses import dataclass
from typing import ClassVar

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Traits, product_residuals
from eigenmesh.solvers._step_size import BLOWN_UP, SteppedSolver, SteppedState


@dataclass(frozen=True)
class Krasulina(SteppedSolver):
    """Krasulina's method on the pooled covariance: FAST-PCA with K = 1 and exact averages.

    ::

        x+ = x + a (C x - (x^T C x / |x|^2) x),  C x = mean over nodes of C_i x_i

    The correction is orthogonal to x, so x never gets shorter. An iteration costs one ``mean`` of a d x 1 matrix.

    Parameters
    ----------
    step_size : float or "auto"
        a; "auto" begins with ``1 / max |C_i|``, and halves it and restarts if the iterates blow up.

    References
    ----------
    T. P. Krasulina, "The method of stochastic approximation for the determination of the least eigenvalue of a
    symmetrical matrix", USSR Computational Mathematics and Mathematical Physics 9 (1969).
    """

    name: ClassVar[str] = "krasulina"
    longest: ClassVar[float] = BLOWN_UP
    traits: ClassVar[Traits] = Traits(centralised=True, replay_key=("step_size",))

    @staticmethod
    def suggested_step(scale: float, second: float) -> float:
        return 1 / scale

    def init(self, covariance: Covariance, network: Network, basis: Array, seed: int = 0) -> SteppedState:
        if (k := basis.shape[2]) != 1:
            raise InputError(f"n_components = {k} must be 1 for the solver krasulina; use the solver sanger for more.")
        state: SteppedState = super().init(covariance, network, basis)
        return state

    def step(self, covariance: Covariance, network: Network, state: SteppedState) -> SteppedState:
        x = state.X
        z = network.mean(covariance.apply(x))
        theta = ea.namespace(x).vecdot(x, z, axis=-2) / squared_norms(x)
        x_next = x + state.step_size * (z - theta[:, None, :] * x)
        return state._replace(X=x_next, residual=product_residuals(x, z))
