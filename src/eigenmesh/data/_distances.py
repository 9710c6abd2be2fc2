"""Distances of samples from a model: Hotelling's T2 and the squared prediction error (SPE), with their limits."""

import numpy as np

from eigenmesh.arrays import Array, like, namespace

# Share of normal samples that are beyond a limit.
SHARE = 0.01


def distances(Z: Array, components: np.ndarray, variances: np.ndarray) -> tuple[Array, Array, Array]:
    """T2 and SPE of samples, and the squared residuals of their features: (n, d) -> (n,), (n,), (n, d).

    Z: centred and scaled, on any device. With scores t and residual e of a sample, ``T2 = sum_k t_k^2 / l_k`` and
    ``SPE = |e|^2``.
    """
    xp, axes = namespace(Z), like(components, Z)
    scores = Z @ axes.mT
    squares = (Z - scores @ axes) ** 2
    positive = like(np.maximum(variances, np.finfo(float).tiny), Z)
    return xp.sum(scores**2 / positive, axis=1), xp.sum(squares, axis=1), squares


def t2_limit(n_samples: float, n_components: int) -> float:
    """Limit that 1 % of new samples exceed, ``K (N^2 - 1) / (N (N - K)) F(K, N - K)``; infinite unless N > K."""
    N, K = n_samples, n_components
    if N <= K:
        return float("inf")
    # Imported here, because peers do not need it.
    from scipy import special

    return float(K * (N**2 - 1) / (N * (N - K)) * special.fdtri(K, N - K, 1 - SHARE))


def spe_limit(mean: float, variance: float) -> float:
    """Limit that 1 % of normal samples exceed, ``g chi2(h)`` with g = v / 2m, h = 2 m^2 / v; infinite unless m > 0."""
    if not mean > 0:
        return float("inf")
    variance = max(variance, 1e-12 * mean**2)
    from scipy import special

    return float(variance / (2 * mean) * special.chdtri(2 * mean**2 / variance, SHARE))
