"""From measured residuals to bounds on angles: plain arithmetic on numbers that all nodes agree on.

Each component gets the smaller of two bounds. Both rely on ``Complement``, the bounds on the eigenvalues beyond K.

*Residual bound* (Davis and Kahan). For a unit vector x with ``theta = x^T C x`` and ``r = |C x - theta x|``,

    sin angle(x, q) <= r / gap,     gap = distance from theta to the rest of the spectrum.

*Ritz bound*. Let u_k, mu_k be the Ritz pairs of span(X), P the projector on it, ``s_k = |(I - P) C u_k|``,
``s = |(I - P) C P|``, ``delta_k`` the distance from mu_k to the other Ritz values and ``g_k`` that to the spectrum of
``(I - P) C (I - P)``. With ``c = sqrt(1 + (s / delta_k)^2)`` (Saad's bound for Ritz vectors),

    sin angle(x_k, q_k) <= sin angle(x_k, u_k) + c (s_k / g_k) / (1 - c s / g_k).

The first term is computed, not bounded, so errors inside the span are not divided by the smallest gap.
"""

from __future__ import annotations

from math import fsum, sqrt
from typing import NamedTuple

import numpy as np

from eigenmesh.arrays import EPS, Array, eigenpairs, namespace
from eigenmesh.certificate.krylov import Complement

Clusters = tuple[tuple[int, ...], ...]
# Rounding error of a product, in units of its last place.
ROUNDING = 16


def ritz_pairs(T: Array) -> tuple[Array, Array]:
    """Eigenpairs of ``sym(T)``, largest first: (..., b, b) -> (..., b), (..., b, b)."""
    xp = namespace(T)
    values, vectors = eigenpairs((T + T.mT) / 2)
    return xp.flip(values, axis=-1), xp.flip(vectors, axis=-1)


class RitzView(NamedTuple):
    """Ritz pairs of a span; any leading axes are kept.

    values : (..., K) Ritz values, largest first; inside : (..., K) sines of the angles between x_k and the k-th Ritz
    vector; outside : (..., K) ``|(I - P) C u_k|``; total : (..., 1) ``|(I - P) C P|`` (Frobenius).
    """

    values: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    total: np.ndarray


def ritz_view(X: np.ndarray, CX: np.ndarray, errors: np.ndarray | None = None) -> RitzView:
    """Rayleigh-Ritz on the span of X: (..., d, K), (..., d, K) -> RitzView.

    errors : (..., K), bounds of the errors of the columns of CX; what they may change is added to all but the values.
    """
    Q, R = np.linalg.qr(X)
    # Exactly dependent columns must not raise; their bounds come out large anyway.
    R = R + np.where(R == 0, EPS, 0) * np.eye(R.shape[-1])
    CQ = np.swapaxes(np.linalg.solve(np.swapaxes(R, -1, -2), np.swapaxes(CX, -1, -2)), -1, -2)
    QCQ = np.swapaxes(Q, -1, -2) @ CQ
    values, V = ritz_pairs(QCQ)
    U = Q @ V
    along = np.sum(X * U, axis=-2, keepdims=True)
    outside = (CQ - Q @ QCQ) @ V
    inside, total = np.linalg.norm(X - along * U, axis=-2), np.linalg.norm(outside, axis=(-2, -1))[..., np.newaxis]
    sizes = np.linalg.norm(outside, axis=-2)
    if errors is not None:
        # With Q^T C Q and its eigenvectors off by at most so much, C Q outside the span is, too.
        off = np.linalg.norm((errors[..., np.newaxis, :] @ np.abs(np.linalg.inv(R)))[..., 0, :], axis=-1)[
            ..., np.newaxis
        ]
        apart = np.abs(values[..., :, np.newaxis] - values[..., np.newaxis, :])
        apart[..., np.arange(R.shape[-1]), np.arange(R.shape[-1])] = np.inf
        room = apart.min(axis=-1) - off
        turned = np.where(room > off, off / np.where(room > off, room, 1.0), (off > 0) * 1.0)
        inside, sizes, total = inside + turned, sizes + 2 * off + total * turned, total + off
    return RitzView(values, inside, sizes, total)


class Precision(NamedTuple):
    """Uncertainty from rounding and from inexact averages.

    Attributes
    ----------
    floor : float
        Uncertainty of a residual.
    resolution : float
        Eigenvalues closer than this cannot be distinguished.
    """

    floor: float
    resolution: float

    @classmethod
    def of(cls, accuracy: float, n_nodes: int, largest: float, size: float) -> Precision:
        """For eigenvalues up to ``largest``, and products ``C_i b`` with norms up to ``size`` at every node.

        The error of an average is at most its accuracy times the norm over all nodes, which is at most sqrt(M) size.
        """
        size = max(size, largest)
        floor = ROUNDING * EPS * size + accuracy * np.sqrt(n_nodes) * size
        # Capped, so that an inaccurate average does not merge the whole spectrum into one cluster.
        return cls(floor, min(16 * floor, 1e-6 * largest))


def find_clusters(values: np.ndarray, shared: float, resolution: float, ritz: np.ndarray | None = None) -> Clusters:
    """Groups of two or more adjacent eigenvalues, each at most ``resolution`` from the next.

    If directions beyond component K share the last eigenvalue, its group counts even with a single member. The Ritz
    values of the span, if given, must be as close: two vectors halfway between two eigenvectors have the same
    ``x^T C x``, however far apart the eigenvalues are.
    """
    apart = values[:-1] - values[1:] > resolution
    if ritz is not None:
        apart |= ritz[:-1] - ritz[1:] > resolution
    groups = np.split(np.arange(len(values)), np.flatnonzero(apart) + 1)
    clusters = [group for group in groups if len(group) > 1 or (shared and group[-1] == len(values) - 1)]
    return tuple(tuple(int(k) for k in cluster) for cluster in clusters)


def multiplicity(values: np.ndarray, resolution: float) -> int:
    """Size of the largest group of eigenvalues that cannot be distinguished; 1 if there is none."""
    return max((len(group) for group in find_clusters(values, 0, resolution)), default=1)


def separation(
    values: np.ndarray, residuals: np.ndarray, skewness: float, complement: Complement, clusters: Clusters
) -> np.ndarray:
    """Distance of each eigenvalue, or of its cluster, to the rest of the spectrum: (K,).

    The true eigenvalue is within ``radii_j`` of theta_j, so that much is subtracted. ``skewness`` is the largest entry
    of ``|X^T X - I|``.
    """
    gaps, radii = np.empty(len(values)), eigenvalue_radii(values, residuals, skewness)
    cluster_of = {k: cluster for cluster in clusters for k in cluster}
    for k in range(len(values)):
        own = list(cluster_of.get(k, (k,)))
        others = np.delete(np.arange(len(values)), own)
        # The gap of a cluster is the smallest distance of any member.
        distances = np.abs(values[own, np.newaxis] - values[others]) - radii[others]
        is_open = complement.shared and own[-1] == len(values) - 1
        beyond = values[own[-1]] - (complement.after if is_open else complement.upper)
        gaps[k] = min(np.min(distances, initial=np.inf), beyond)
    return gaps


def eigenvalue_radii(values: np.ndarray, residuals: np.ndarray, skewness: float) -> np.ndarray:
    """Largest distance of theta_j from its own eigenvalue, such that each theta_j has a different one: (K,).

    Each interval theta_j +- r_j contains an eigenvalue, but two that overlap may contain the same one. Within the norm
    of both residuals, divided by the smallest singular value of the two columns, there are two eigenvalues (Kahan,
    1967), so overlapping intervals are widened to that, until no two groups overlap. The Gram matrix of n
    columns differs from I by at most n times its largest entry, so sigma_min^2 is at least ``1 - n skewness``.
    """
    radii = residuals
    while True:
        lower, upper = values - radii, values + radii
        order = np.argsort(-upper)
        # A group ends where all its intervals lie above the next one.
        ends = np.minimum.accumulate(lower[order])[:-1] > upper[order][1:]
        groups = np.split(order, np.flatnonzero(ends) + 1)
        wider = radii.copy()
        for group in groups:
            if len(group) > 1:
                # Not BLAS: every processor must get the same bits, because a run may stop by them.
                smallest = sqrt(max(1 - len(group) * skewness, EPS))
                wider[group] = np.maximum(wider[group], sqrt(fsum(residuals[group] ** 2)) / smallest)
        if (wider == radii).all():
            return radii
        radii = wider


def residual_bounds(sizes: np.ndarray | float, gaps: np.ndarray) -> np.ndarray:
    """``r / gap``, infinite where there is no gap: (K,) or a number, (K,) -> (K,)."""
    return np.where(gaps > 0, sizes / np.where(gaps > 0, gaps, 1.0), np.inf)


def ritz_bounds(ritz: RitzView, complement: Complement, floor: float) -> np.ndarray:
    """The Ritz bound of each component, infinite where its conditions do not hold: (K,)."""
    values, outside = ritz.values, ritz.outside + floor
    apart = np.abs(values[:, np.newaxis] - values)
    np.fill_diagonal(apart, np.inf)
    delta = apart.min(axis=1) - outside
    below = values - outside - complement.upper
    valid = (delta > 0) & (below > 0)
    delta, below = np.where(valid, delta, np.inf), np.where(valid, below, np.inf)
    total = ritz.total[0] + floor
    widening = np.sqrt(1 + (total / delta) ** 2)
    shrink = 1 - widening * total / below
    valid &= shrink > 0
    bound = ritz.inside + widening * (outside / below) / np.where(valid, shrink, 1.0)
    # The angle inside the span has the rounding error of the small eigenproblem.
    return np.where(valid, bound + floor / delta, np.inf)


def gaps_from_ritz(values: np.ndarray, n_components: int) -> np.ndarray:
    """Distance of each of the first K Ritz values to its nearest neighbour: (b,) -> (K,)."""
    steps = np.abs(np.diff(values))
    return np.asarray(np.minimum(np.append(np.inf, steps), np.append(steps, np.inf))[:n_components])
