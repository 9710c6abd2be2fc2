"""A look beyond the components: which eigenvalues they leave out, and the chance that one was missed.

The look starts from a Gaussian G, (d, s). Let U hold what was found, P project on U, ``A = (I - P) C (I - P)``, and
let v be an eigenvector of C that U misses, with an eigenvalue of at least tau. For every polynomial p whose roots are
all below tau

    |p(tau)| |g_c . v| <= |p(A) g_c|,    hence    |g_c . v| <= delta_c(tau) = min_p |p(A) g_c| / |p(tau)|,

which the Krylov space that was built from G bounds without any message (``Look.deltas``). The ``g_c . v`` are
independent standard normal numbers, so all of them are that small with a tiny chance only, and the certificate states
that chance. tau is put as low as it allows, and bounds all eigenvalues that were not found.
"""

from __future__ import annotations

from math import exp, lgamma, log, sqrt
from typing import NamedTuple

import numpy as np

# A certificate needs the chance that it missed a direction to be no larger than this.
LARGEST_CHANCE = 1e-9
# Places of tau, from the largest value beyond the components (0) to the smallest of their own (1).
PLACES = np.array([0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9])
# Columns of the start that are used: more would only lower a chance that is tiny by then.
MOST_COLUMNS = 24
# Ritz vectors beyond the components that are taken out of the space before it is looked through: the more, the sooner
# the chance falls, as long as they are good.
TAKEN_OUT = (0, 3, 6, 12, 18, 24, 36)


class Complement(NamedTuple):
    """What is known of the eigenvalues beyond component K.

    Attributes
    ----------
    lower : float
        Largest Ritz value beyond K, never above l_{K+1}.
    upper : float
        No eigenvalue beyond K is larger.
    shared : float
        Directions beyond K whose eigenvalue cannot be told from that of component K; infinite if all are such.
    after : float
        No eigenvalue beyond K + shared is larger.
    chance : float
        Bound on the probability that an eigenvalue above these limits was missed.
    """

    lower: float
    upper: float
    shared: float = 0
    after: float = -np.inf
    chance: float = 0.0

    @property
    def row(self) -> np.ndarray:
        """What nodes exchange the maxima of: (6,)."""
        return np.array([*self, -self.shared])

    @classmethod
    def agreed(cls, largest: np.ndarray) -> Complement | None:
        """From the maxima of all nodes' rows; None if the nodes differ in what is shared."""
        return cls(*largest[:5].tolist()) if largest[2] == -largest[5] else None


NOTHING_BEYOND = Complement(-np.inf, -np.inf)


class Look(NamedTuple):
    """A Krylov space beyond the components, in the basis of its Ritz vectors.

    Attributes
    ----------
    values : array of shape (w,)
        Ritz values of A, largest first.
    start : array of shape (w, s)
        The Gaussian columns.
    leak : array of shape (b, w)
        What A times a Ritz vector has outside the space; the norm of a column is a residual.
    products : int
        Products with A that the space was built from.
    whole : bool
        True if the space is all that there is beyond the components.
    lost : float
        Bound on the norm of what A times the space has outside it, beside the leak.
    """

    values: np.ndarray
    start: np.ndarray
    leak: np.ndarray
    products: int
    whole: bool
    lost: float = 0.0

    def examine(self, found: Found, shared: int | None = None) -> Complement:
        """Bound the eigenvalues beyond K; ``shared`` is counted unless it is given."""
        values, smallest = self.values, found.smallest
        if not len(values):
            return NOTHING_BEYOND
        first = float(values[0])
        if first > smallest + found.resolution:
            # Something larger was left out; there is nothing to certify.
            return Complement(first, first + self._residual(1), 0, first + self._residual(1), 1.0)
        if shared is None:
            shared = int(np.count_nonzero(smallest - values <= found.resolution))
        # No eigenvalue of a covariance is below zero, so a last component at zero shares it with all beyond.
        at_zero = smallest <= found.resolution
        if self.whole:
            after = float(values[shared]) if shared < len(values) else -np.inf
            return Complement(first, first + found.floor, np.inf if at_zero else shared, after + found.floor, 0.0)
        if at_zero:
            limit, chance = self._limit(0, np.array([smallest + found.resolution]), found, found.multiplicity)
            return Complement(first, limit, np.inf, -np.inf, chance)
        if shared >= len(values) or shared + found.multiplicity >= self.start.shape[1]:
            # The next eigenvalue was not seen, or too few columns could have seen it.
            return Complement(first, smallest + found.resolution, shared, smallest, 1.0)
        following = float(values[shared])
        places = following + (smallest - found.residual - following) * PLACES
        limit, chance = self._limit(shared, places, found, found.multiplicity + shared)
        after = limit + self._residual(shared) + found.residual
        return Complement(first, after if shared == 0 else first + self._residual(shared), shared, after, chance)

    def _residual(self, count: int) -> float:
        return float(np.linalg.norm(self.leak[:, :count])) + self.lost

    def _limit(self, shared: int, places: np.ndarray, found: Found, multiplicity: int) -> tuple[float, float]:
        """The lowest of the places whose chance is small enough, and that chance."""
        rest = self._replace(values=self.values[shared:], start=self.start[shared:], leak=self.leak[:, shared:])
        above = places[places > rest.values[0]]
        if not len(above):
            return float(places[-1]), 1.0
        # What was found is not quite invariant, so the space is not quite that of A.
        error = self.products * (found.residual + self._residual(shared)) / (above - rest.values[0])
        chances = np.ones(len(above))
        for count in (count for count in TAKEN_OUT if count < len(rest.values)):
            deltas = rest.deltas(above, count) + error[:, np.newaxis]
            chances = np.minimum(chances, [chance_missed(row, found.n_components, multiplicity) for row in deltas])
            if chances[0] <= LARGEST_CHANCE:
                break
        enough = np.flatnonzero(chances <= LARGEST_CHANCE)
        lowest = int(enough[0]) if len(enough) else -1
        return float(above[lowest]), float(chances[lowest])

    def deltas(self, places: np.ndarray, taken_out: int = 0) -> np.ndarray:
        """delta_c at each place, all of them above the Ritz values: (t,) -> (t, s).

        So many leading Ritz vectors are taken out of A, whose eigenvalues are smaller then. For such a vector u with
        value mu and residual r, ``|u . v| <= r / (tau - mu)``. Of the rest of g, let z_1, z_2, .. be the Lanczos
        vectors, T their tridiagonal matrix, and e_k the size of what A z_k has outside the space, or for the last one
        outside the span of all z_k. From ``(lambda - T) [z_k . v] = [e_k . v]`` follows, as ``(lambda - T)^-1`` is
        positive and falls with lambda::

            |g . v| <= |g| sum_k [(tau - T)^-1]_1k |e_k|.
        """
        out, values = self.values[:taken_out], self.values[taken_out:]
        start = self.start[:, :MOST_COLUMNS].T
        beside, vector = np.abs(start[:, :taken_out]), start[:, np.newaxis, taken_out:]
        sizes, length = np.linalg.norm(vector, axis=2), min(self.products, len(values))
        # The vectors z_k of each column as rows: (s, k, w).
        basis = np.empty((len(start), length, len(values)))
        for step in range(length):
            before = basis[:, :step]
            for _ in range(2):
                vector = vector - (vector @ before.mT) @ before
            size = np.linalg.norm(vector, axis=2, keepdims=True)
            basis[:, step : step + 1] = vector / np.where(size > 0, size, 1.0)
            vector = basis[:, step : step + 1] * values
        image = basis * values
        T = image @ basis.mT
        inside, outside = image - T @ basis, basis @ self.leak[:, taken_out:].T
        leaves = np.sqrt(np.sum(inside**2, axis=2) + np.sum(outside**2, axis=2)) + self.lost
        residuals = np.linalg.norm(self.leak[:, :taken_out], axis=0) + self.lost
        eye = np.eye(length)
        inverse = np.linalg.solve(places[:, np.newaxis, np.newaxis, np.newaxis] * eye - T, eye[:, :1])[..., 0]
        inside_space = sizes[:, 0] * np.sum(np.abs(inverse) * leaves, axis=2)
        return np.asarray(inside_space + (residuals / (places[:, np.newaxis] - out)) @ beside.T)


class Found(NamedTuple):
    """The components that a look goes beyond.

    Attributes
    ----------
    n_components : int
        K.
    smallest : float
        theta_K.
    residual : float
        ``|(I - P) C P|``.
    multiplicity : int
        Size of the largest group of components whose eigenvalues are the same.
    floor : float
        How well a residual can be known.
    resolution : float
        Eigenvalues this close cannot be told apart.
    """

    n_components: int
    smallest: float
    residual: float
    multiplicity: int
    floor: float
    resolution: float


def chance_missed(deltas: np.ndarray, n_components: int, multiplicity: int) -> float:
    """Bound on the probability that one of the K + 1 leading eigenspaces was missed although all deltas are so small.

    Part of an eigenspace may have been found: what is missed is then *some* direction of an eigenspace of dimension q =
    multiplicity + 1. So the smallest singular value of a Gaussian (q, s) matrix is at most ``|delta|``, and some unit
    vector of R^q has all ``|g_c . v| <= max delta``. The less likely of the two counts, at the price of a factor of 2.
    """
    s, q = len(deltas), multiplicity + 1
    if q > s or not np.isfinite(deltas).all():
        return 1.0
    tests = (_log_ball(float(np.linalg.norm(deltas)), s, q), _log_box(float(deltas.max()), s, q))
    return min(1.0, exp(max(log(2 * (n_components + 1)) + min(tests), -700.0)))


def _log_ball(size: float, s: int, q: int) -> float:
    """``log P(sigma_min <= size)`` of a (q, s) Gaussian matrix, from a bound on its density (Chen, Dongarra 2005)."""
    power = s - q + 1
    constant = (power - 2) / 2 * log(2) + lgamma((s + 1) / 2) - lgamma(q / 2) - lgamma(power)
    return min(0.0, log(2 / power) + constant + power * log(max(size, 1e-300)))


def _log_box(largest: float, s: int, q: int) -> float:
    """``log P(some unit v in R^q has all |g_c . v| <= largest)``, by a net on the sphere.

    Next to such a v there is a point of the net with ``|g_c . u| <= largest (1 + share)``, unless some |g_c| is above
    t, which has a chance of s 1e-30. A net of spacing e has at most 2 q (1 + 2 / e)^(q - 1) points.
    """
    t, tail, best = sqrt(60 * log(10)) + sqrt(q), log(s) - 30 * log(10), 0.0
    for share in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
        spacing = max(share * largest / t, 1e-300)
        net = log(2 * q) + (q - 1) * log(1 + 2 / spacing) if q > 1 else 0.0
        each = s * log(max(sqrt(2 / np.pi) * largest * (1 + share), 1e-300))
        best = min(best, float(np.logaddexp(net + each, tail)))
    return best
