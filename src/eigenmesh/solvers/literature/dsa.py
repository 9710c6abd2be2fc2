"""DSA: Sanger's rule at every node, with one mix per iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError
from eigenmesh.networks import Network
from eigenmesh.solvers.base import BLOWN_UP, SteppedSolver, SteppedState, Traits, product_residuals

# Sanger's rule, the generalised Hebbian algorithm, with exact averages.


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
    traits: ClassVar[Traits] = Traits(centralised=True)

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
    traits: ClassVar[Traits] = Traits(fixed_schedule=True)

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


# Krasulina's method for the first component, with exact averages.


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
    traits: ClassVar[Traits] = Traits(centralised=True)

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
