"""Results of the analysis of FAST-PCA: step bound, contraction, coupled decay, predicted rounds.

Throughout, ``eigenvalues`` are l_1 >= l_2 >= .. of the pooled covariance C, at least K + 1 of them (if K = d, the
missing l_{K+1} is taken as 0), and ``beta`` is the second largest modulus among the eigenvalues of W.

The analysis takes C as the sum of the C_i, so that no ``|C_i|`` is above l_1. Here C is their mean, and one node may
have a ``|C_i|`` of up to M l_1. So what the analysis derives from a Lipschitz constant of the nodes needs the largest
``|C_i|`` as well, and does not follow from the eigenvalues of C alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from eigenmesh.errors import InputError

__all__ = ["contraction", "coupling_matrix", "predicted_rounds", "spectral_radius", "step_bound"]


def step_bound(eigenvalues: ArrayLike, n_components: int, beta: float, largest_norm: float) -> float:
    """Largest step for which linear convergence is proved. It is no recommendation: 1e5 times longer steps work.

    ``min_k (l_k - l_{k+1}) / ((K + 5)(K + 6)) * ((1 - beta) / (9 c))^2`` with c = ``largest_norm``, about 1e-6 on
    ordinary data if the nodes are alike.

    Parameters
    ----------
    eigenvalues : array-like
        Eigenvalues of the pooled covariance C, the mean of the C_i.
    n_components : int
        K.
    beta : float
        Second largest modulus among the eigenvalues of W.
    largest_norm : float
        The largest spectral norm ``|C_i|`` of the nodes, at least l_1. It is l_1 if all nodes have the same C_i, and up
        to M l_1 if they differ.
    """
    values = _leading(eigenvalues, n_components)
    gap = float(np.min(values[:-1] - values[1:]))
    size = _at_least_pooled(largest_norm, values)
    return gap / ((n_components + 5) * (n_components + 6)) * ((1 - beta) / (9 * size)) ** 2


def contraction(eigenvalues: ArrayLike, n_components: int, step_size: float) -> np.ndarray:
    """Rates ``delta_k = (1 + a l_{k+1}) / (1 + a l_k)`` of the averaged iterate, for k = 1 .. K: (K,)."""
    values = _leading(eigenvalues, n_components)
    return np.asarray((1 + step_size * values[1:]) / (1 + step_size * values[:-1]))


def coupling_matrix(eigenvalues: ArrayLike, k: int, step_size: float, beta: float, largest_norm: float) -> np.ndarray:
    """The 3 x 3 matrix P_k(a) that bounds (tracking error, consensus error, distance to q_k) from round to round.

    P_k(a) = [[(1 + beta)/2 + a L,  L (2 + a L),   a L^2  ],
              [a,                   (1 + beta)/2,  0      ],
              [0,                   a L,           delta_k]],     L = (k + 5) largest_norm

    Parameters
    ----------
    eigenvalues : array-like
        Eigenvalues of the pooled covariance C, the mean of the C_i.
    k : int
        The component, from 1.
    step_size : float
        a.
    beta : float
        Second largest modulus among the eigenvalues of W.
    largest_norm : float
        The largest spectral norm ``|C_i|`` of the nodes, at least l_1: L is a Lipschitz constant of every node.
    """
    values = _leading(eigenvalues, k)
    a, L, half = step_size, (k + 5) * _at_least_pooled(largest_norm, values), (1 + beta) / 2
    delta = float(contraction(values, k, step_size)[-1])
    return np.array([[half + a * L, L * (2 + a * L), a * L**2], [a, half, 0.0], [0.0, a * L, delta]])


def spectral_radius(eigenvalues: ArrayLike, k: int, step_size: float, beta: float, largest_norm: float) -> float:
    """Largest modulus among the eigenvalues of P_k(a), see ``coupling_matrix``; below 1 the decay is proved."""
    P = coupling_matrix(eigenvalues, k, step_size, beta, largest_norm)
    return float(np.max(np.abs(np.linalg.eigvals(P))))


def predicted_rounds(eigenvalues: ArrayLike, n_components: int, step_size: float, beta: float, error: float) -> float:
    """Rounds until the sin^2 error is about ``error``, from the slower of contraction and consensus.

    The sine decays by a factor of ``max(max_k delta_k, (1 + beta) / 2)`` per round, and its square by the square of
    that. The estimate uses only this rate: it ignores the slow start, and the slowdown by nodes whose data differ.
    """
    if not 0 < error < 1:
        raise InputError(f"error = {error!r} must be strictly between 0 and 1.")
    rate = max(float(np.max(contraction(eigenvalues, n_components, step_size))), (1 + beta) / 2)
    return math.inf if rate >= 1 else math.log(error) / (2 * math.log(rate))


def _leading(eigenvalues: ArrayLike, k: int) -> np.ndarray:
    """l_1 .. l_{k+1}, (k + 1,), largest first; a missing last one is 0."""
    values = np.sort(np.asarray(eigenvalues, dtype=float))[::-1]
    if not 1 <= k <= len(values):
        raise InputError(f"n_components = {k} must be between 1 and the {len(values)} eigenvalues given.")
    if values[0] <= 0:
        raise InputError(f"the largest eigenvalue is {values[0]}; it must be above 0.")
    return np.append(values, 0.0)[: k + 1]


def _at_least_pooled(largest_norm: float, values: np.ndarray) -> float:
    """The largest ``|C_i|``, which cannot be below the norm of the mean C, apart from rounding."""
    pooled = float(values[0])
    if not largest_norm >= pooled * (1 - 1e-6):
        fix = "give the largest spectral norm of the covariances C_i of the nodes, whose mean is C"
        raise InputError(f"largest_norm = {largest_norm!r} must be at least the largest eigenvalue {pooled:g}; {fix}.")
    return float(largest_norm)


def __dir__() -> list[str]:
    return __all__
