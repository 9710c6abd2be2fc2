"""A look beyond the K components: how large is the largest eigenvalue that they leave out?"""

from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, column_norms, orthonormal
from eigenmesh.certificate._krylov import rayleigh_ritz, soft_polar
from eigenmesh.data import Covariance
from eigenmesh.networks import Network

# Random directions to look along, steps between two looks at what was found, and the most steps.
COLUMNS, BATCH, LONGEST = 4, 6, 48


class Complement(NamedTuple):
    """What is known of l_{K+1}, the same at every node: a Ritz value, never above it; and that plus its residual."""

    lower: float
    upper: float


NOTHING_BEYOND = Complement(-np.inf, -np.inf)


def probe_complement(
    covariance: Covariance, network: Network, basis: Array, n_nodes: int, *, smallest: float, tol: float, seed: int = 0
) -> Complement:
    """Block Lanczos on ``(I - Q Q^T) C (I - Q Q^T)`` from random directions, Q an orthonormal basis of X.

    Each step averages a (d, 4) matrix. Whatever X is, the largest eigenvalue of the deflated operator is at least
    l_{K+1} (Courant and Fischer), so a direction that X has missed shows up here as a value above theta_K. A Ritz value
    with a small residual is near *some* eigenvalue; that it is the largest is as good as certain only once more steps
    from a random start bring up nothing larger, so the search ends when a whole batch of steps has raised nothing.

    basis : (1, d, K), the same at every node; n_nodes : held by this process; smallest : theta_K, the search ends when
    its own error is small beside the gap to it; tol : the angle asked for, to know when a gap is too small to matter.
    """
    d, k = basis.shape[-2:]
    if k >= d:
        return NOTHING_BEYOND
    xp, Q = ea.namespace(basis), orthonormal(basis)
    # Keyed apart from the solver's own start so that the two are not the same directions.
    start = np.random.default_rng([seed, 0x5EED]).standard_normal((1, d, min(COLUMNS, d - k)))
    B = orthonormal(_deflated(Q, ea.like(start, basis)))
    whitening = ea.like(np.eye(B.shape[-1])[np.newaxis], basis)
    V = CV = basis[:, :, :0]
    lower = upper = previous = -np.inf
    for length in range(1, LONGEST + 1):
        Z = _deflated(Q, network.common_mean(covariance.apply(ea.everywhere(B, n_nodes))))
        V, CV = xp.concat([V, B @ whitening], axis=-1), xp.concat([CV, Z @ whitening], axis=-1)
        # The widths follow from d and K alone, so all nodes come to the same end.
        full = V.shape[-1] >= d - k
        if length % BATCH == 0 or full:
            lower, upper = _agree(network, V, CV)
            gap = smallest - lower
            rounding = float(xp.finfo(basis.dtype).eps) * max(abs(smallest), abs(upper)) / tol
            settled = lower - previous <= max(0.05 * gap, rounding) and upper - lower <= max(0.1 * gap, rounding)
            if full or settled:
                break
            previous = lower
        B, whitening = soft_polar(Z, xp.concat([Q, V], axis=-1), noise=network.average.accuracy)
    return Complement(lower, upper)


def _deflated(Q: Array, block: Array) -> Array:
    return block - Q @ (Q.mT @ block)


def _agree(network: Network, V: Array, CV: Array) -> tuple[float, float]:
    """Largest Ritz value, and itself plus its residual, agreed by all nodes."""
    xp = ea.namespace(V)
    values, U, CU = rayleigh_ritz(V, CV, 1)
    residual = column_norms(CU - U * values[:, None, :])[:, 0, :]
    lower, upper = ea.to_numpy(network.worst(xp.concat([values, values + residual], axis=1))[0, ...])
    return float(lower), float(upper)
