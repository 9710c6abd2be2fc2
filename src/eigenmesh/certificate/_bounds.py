"""From measured residuals to bounds on angles: plain arithmetic on numbers that all nodes agree on.

The smaller of two bounds holds. Both take the eigenvalues that were not computed to be where the look beyond K
(``Complement``) found them.

*Residual bound* (Davis and Kahan). For a unit vector x with ``theta = x^T C x`` and ``r = |C x - theta x|``,

    sin angle(x, q) <= r / gap,     gap = distance from theta to the rest of the spectrum.

*Ritz bound*. Let u_k, mu_k be the Ritz pairs of span(X), P the projector on it, ``s_k = |(I - P) C u_k|``,
``s = |(I - P) C P|``, ``delta_k`` the distance from mu_k to the other Ritz values and ``g_k`` that to the spectrum of
``(I - P) C (I - P)``. With ``c = sqrt(1 + (s / delta_k)^2)`` (Saad's bound for Ritz vectors),

    sin angle(x_k, q_k) <= sin angle(x_k, u_k) + c (s_k / g_k) / (1 - c s / g_k).

The first term is computed, not bounded, so errors inside the span do not count at the price of the smallest gap.
"""

from __future__ import annotations

from math import fsum, sqrt
from typing import NamedTuple

import numpy as np

from eigenmesh.certificate._look import Complement

Clusters = tuple[tuple[int, ...], ...]
# Rounding of a product, in units of its last place.
ROUNDING = 16


class RitzView(NamedTuple):
    """A span seen through its Ritz pairs; the leading axes are whatever the caller stacks.

    values : (..., K) Ritz values, largest first; inside : (..., K) sines of the angles between x_k and the k-th Ritz
    vector; outside : (..., K) ``|(I - P) C u_k|``; total : (..., 1) ``|(I - P) C P|`` (Frobenius).
    """

    values: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    total: np.ndarray


def ritz_view(X: np.ndarray, CX: np.ndarray) -> RitzView:
    """Rayleigh-Ritz on the span of X: (..., d, K), (..., d, K) -> RitzView."""
    Q, R = np.linalg.qr(X)
    # Columns that depend on one another exactly must not end the run; their bounds come out large by themselves.
    R = R + np.where(R == 0, np.finfo(R.dtype).eps, 0) * np.eye(R.shape[-1], dtype=R.dtype)
    CQ = np.swapaxes(np.linalg.solve(np.swapaxes(R, -1, -2), np.swapaxes(CX, -1, -2)), -1, -2)
    QCQ = np.swapaxes(Q, -1, -2) @ CQ
    values, V = np.linalg.eigh((QCQ + np.swapaxes(QCQ, -1, -2)) / 2)
    values, V = values[..., ::-1], V[..., ::-1]
    U = Q @ V
    along = np.sum(X * U, axis=-2, keepdims=True)
    outside = (CQ - Q @ QCQ) @ V
    inside, total = np.linalg.norm(X - along * U, axis=-2), np.linalg.norm(outside, axis=(-2, -1))[..., np.newaxis]
    return RitzView(values, inside, np.linalg.norm(outside, axis=-2), total)


class Precision(NamedTuple):
    """What rounding and averages leave uncertain.

    Attributes
    ----------
    floor : float
        How well a residual can be known.
    resolution : float
        Eigenvalues this close cannot be told apart.
    """

    floor: float
    resolution: float

    @classmethod
    def of(cls, eps: float, accuracy: float, n_nodes: int, largest: float, size: float) -> Precision:
        """For eigenvalues up to ``largest`` and products ``C_i b`` up to ``size`` at a node.

        An average is off by at most its accuracy times the norm over all nodes, which is at most sqrt(M) size.
        """
        size = max(size, largest)
        floor = ROUNDING * eps * size + accuracy * np.sqrt(n_nodes) * size
        # Never more than this, so that a loose average does not make the whole spectrum one.
        return cls(floor, min(16 * floor, 1e-6 * largest))


def find_clusters(values: np.ndarray, shared: float, resolution: float) -> Clusters:
    """Groups of neighbouring eigenvalues that are no farther apart than ``resolution``, of two members or more.

    If directions beyond component K share the last eigenvalue, its group counts even if it has one member here.
    """
    apart = values[:-1] - values[1:] > resolution
    groups = np.split(np.arange(len(values)), np.flatnonzero(apart) + 1)
    kept = [group for group in groups if len(group) > 1 or (shared and group[-1] == len(values) - 1)]
    return tuple(tuple(int(k) for k in group) for group in kept)


def multiplicity(values: np.ndarray, resolution: float) -> int:
    """Size of the largest group of eigenvalues that cannot be told apart."""
    return max((len(group) for group in find_clusters(values, 0, resolution)), default=1)


def separation(values: np.ndarray, residuals: np.ndarray, complement: Complement, clusters: Clusters) -> np.ndarray:
    """Distance of each eigenvalue, or of its cluster, to the rest of the spectrum: (K,).

    The true eigenvalue behind theta_j is within ``radii_j`` of it, so that is taken off.
    """
    gaps, radii = np.empty(len(values)), _radii(values, residuals)
    cluster_of = {k: cluster for cluster in clusters for k in cluster}
    for k in range(len(values)):
        own = list(cluster_of.get(k, (k,)))
        others = np.delete(np.arange(len(values)), own)
        # For a cluster every member's distance counts: the span is apart only if all of it is.
        distances = np.abs(values[own, np.newaxis] - values[others]) - radii[others]
        is_open = complement.shared and own[-1] == len(values) - 1
        beyond = values[own[-1]] - (complement.after if is_open else complement.upper)
        gaps[k] = min(np.min(distances, initial=np.inf), beyond)
    return gaps


def _radii(values: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """How far from theta_j its eigenvalue may be, one eigenvalue for each: (K,).

    An interval theta_j +- r_j holds an eigenvalue, but two that overlap may hold the same one. Together they hold two
    within the residual of both (Kahan), so intervals that overlap are widened to that, until no group meets another.
    """
    radii = residuals.astype(np.float64)
    while True:
        lower, upper = values - radii, values + radii
        order = np.argsort(-upper)
        # A group ends where all intervals so far are above the next one.
        ends = np.minimum.accumulate(lower[order])[:-1] > upper[order][1:]
        groups = np.split(order, np.flatnonzero(ends) + 1)
        wider = radii.copy()
        for group in groups:
            if len(group) > 1:
                # Not BLAS: every processor must come to the same bits, since a run may stop by them.
                wider[group] = np.maximum(wider[group], sqrt(fsum(residuals[group] ** 2)))
        if (wider == radii).all():
            return radii
        radii = wider


def residual_bounds(sizes: np.ndarray | float, gaps: np.ndarray) -> np.ndarray:
    """``r / gap``, infinite where there is no gap: (K,) or a number, (K,) -> (K,)."""
    return np.where(gaps > 0, sizes / np.where(gaps > 0, gaps, 1.0), np.inf)


def ritz_bounds(ritz: RitzView, complement: Complement, floor: float) -> np.ndarray:
    """The Ritz bound of each component; infinite where its conditions do not hold: (K,)."""
    values, outside = ritz.values, ritz.outside + floor
    apart = np.abs(values[:, np.newaxis] - values)
    np.fill_diagonal(apart, np.inf)
    delta = apart.min(axis=1) - outside
    below = values - outside - complement.upper
    sound = (delta > 0) & (below > 0)
    delta, below = np.where(sound, delta, np.inf), np.where(sound, below, np.inf)
    total = ritz.total[0] + floor
    widening = np.sqrt(1 + (total / delta) ** 2)
    shrink = 1 - widening * total / below
    sound &= shrink > 0
    bound = ritz.inside + widening * (outside / below) / np.where(sound, shrink, 1.0)
    # An angle inside the span is known to the rounding of the eigenproblem that it comes from.
    return np.where(sound, bound + floor / delta, np.inf)


def gaps_from_ritz(values: np.ndarray, n_components: int) -> np.ndarray:
    """Distance of each of the first K Ritz values to its nearest neighbour: (b,) -> (K,)."""
    steps = np.abs(np.diff(values))
    return np.asarray(np.minimum(np.append(np.inf, steps), np.append(steps, np.inf))[:n_components])
