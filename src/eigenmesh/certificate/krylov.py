"""Rayleigh-Ritz and block expansion, for the Krylov solvers and for the orthogonal complement of the components."""

from __future__ import annotations

from functools import cached_property
from math import exp, lgamma, log, sqrt
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms
from eigenmesh.errors import DataError

# The orthogonal complement of the components: bounds on the remaining eigenvalues, and the chance that one was missed.
#
# The space starts from a Gaussian G, (d, s). Let U be the components, P the projector on them,
# ``A = (I - P) C (I - P)``, and v an eigenvector of C that U misses, with an eigenvalue of at least tau. For every
# polynomial p whose roots are all below tau
#
#     |p(tau)| |g_c . v| <= |p(A) g_c|,    hence    |g_c . v| <= delta_c(tau) = min_p |p(A) g_c| / |p(tau)|,
#
# which the Krylov space of G bounds without any message (``ComplementSpace.deltas``). The ``g_c . v`` are independent
# standard normal numbers, so the chance that all of them are that small is tiny. The certificate states this chance.
# tau is chosen as low as ``LARGEST_CHANCE`` allows, and then bounds all eigenvalues beyond the components.


# Nothing is certified if the chance of a missed direction is larger than this.
LARGEST_CHANCE = 1e-9
# Candidates for tau, between the largest Ritz value beyond the components (0) and the smallest of their own (1).
TAU_POSITIONS = np.array([0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9])
# Columns of G that are used: with more, the chance would only fall further below what is needed.
MOST_COLUMNS = 24
# For an eigenvalue of large multiplicity q, at least q + SPARE_COLUMNS columns are used.
SPARE_COLUMNS = 8
# Numbers of Ritz vectors beyond the components to deflate. With more, the chance falls sooner, as long as they are
# accurate.
DEFLATED = (0, 3, 6, 12, 18, 24, 36)


class Complement(NamedTuple):
    """Bounds on the eigenvalues beyond component K.

    Attributes
    ----------
    lower : float
        Largest Ritz value beyond K, never above l_{K+1}.
    upper : float
        Upper bound of all eigenvalues beyond K.
    shared : float
        Number of directions beyond K whose eigenvalue cannot be distinguished from that of component K; infinite if
        all.
    after : float
        Upper bound of all eigenvalues beyond K + shared.
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
        """Numbers whose maxima over the nodes give the agreed complement: (6,)."""
        return np.array([*self, -self.shared])

    @classmethod
    def agreed(cls, largest: np.ndarray) -> Complement | None:
        """From the maxima of the rows of all nodes. It is None if the nodes differ in ``shared``."""
        return cls(*largest[:5].tolist()) if largest[2] == -largest[5] else None


NOTHING_BEYOND = Complement(-np.inf, -np.inf)


class ComplementSpace(NamedTuple):
    """A Krylov space beyond the components, in the basis of its Ritz vectors.

    Attributes
    ----------
    values : array of shape (w,)
        Ritz values of A, largest first.
    start : array of shape (w, s)
        The Gaussian columns.
    leak : array of shape (b, w)
        The part of A times each Ritz vector outside the space. The norm of a column is its residual.
    products : int
        Products with A that the space was built from.
    whole : bool
        True if the components and this space are the whole space.
    lost : float
        Bound on the norm of the part of A times the space that neither the space nor the leak contains.
    inexact : array of shape (m, w)
        Bounds of the errors of products with a basis of the space, times the coordinates of the Ritz vectors in that
        basis: where products were sent in few bits, A times a vector of coordinates y is off by the sum of
        ``|inexact @ y|`` at most. (0, w) where they were exact.
    """

    values: np.ndarray
    start: np.ndarray
    leak: np.ndarray
    products: int
    whole: bool
    lost: float
    inexact: np.ndarray

    def examine(self, known: KnownComponents, shared: int | None = None) -> Complement:
        """Bound the eigenvalues beyond K; ``shared`` is counted here unless it is given."""
        values, smallest = self.values, known.smallest
        if not len(values):
            return NOTHING_BEYOND
        first = float(values[0])
        if first > smallest + known.resolution:
            # The components miss a direction with a larger eigenvalue; there is nothing to certify.
            return Complement(first, first + self._residual(1), 0, first + self._residual(1), 1.0)
        if shared is None:
            shared = int(np.count_nonzero(smallest - values <= known.resolution))
        # A covariance has no negative eigenvalues, so if the last component has zero, all directions beyond share it.
        at_zero = smallest <= known.resolution
        if self.whole:
            after = float(values[shared]) if shared < len(values) else -np.inf
            floor = known.floor + self._off(slice(None))
            return Complement(first, first + floor, np.inf if at_zero else shared, after + floor, 0.0)
        if at_zero:
            limit, chance = self._limit(0, np.array([smallest + known.resolution]), known, known.multiplicity)
            return Complement(first, limit, np.inf, -np.inf, chance)
        if shared >= len(values) or shared + known.multiplicity >= self.start.shape[1]:
            # The space does not contain the next eigenvalue, or has too few Gaussian columns to detect it.
            return Complement(first, smallest + known.resolution, shared, smallest, 1.0)
        next_value = float(values[shared])
        taus = next_value + (smallest - known.residual - next_value) * TAU_POSITIONS
        limit, chance = self._limit(shared, taus, known, known.multiplicity + shared)
        after = limit + self._residual(shared) + known.residual
        return Complement(first, after if shared == 0 else first + self._residual(shared), shared, after, chance)

    def _residual(self, count: int) -> float:
        return float(np.linalg.norm(self.leak[:, :count])) + self.lost + self._off(slice(count))

    def _off(self, vectors: slice) -> float:
        """Bound on the norm of what is wrong in products with some of the Ritz vectors."""
        return float(np.linalg.norm(np.abs(self.inexact[:, vectors]).sum(axis=0)))

    def _limit(self, shared: int, taus: np.ndarray, known: KnownComponents, multiplicity: int) -> tuple[float, float]:
        """The lowest tau whose chance is small enough, and that chance."""
        rest = self._replace(
            values=self.values[shared:],
            start=self.start[shared:],
            leak=self.leak[:, shared:],
            inexact=self.inexact[:, shared:],
        )
        above = taus[taus > rest.values[0]]
        if not len(above):
            return float(taus[-1]), 1.0
        # The components are not exactly invariant, so the space is not exactly a Krylov space of A.
        error = self.products * (known.residual + self._residual(shared)) / (above - rest.values[0])
        chances = np.ones(len(above))
        for count in (count for count in DEFLATED if count < len(rest.values)):
            deltas = rest.deltas(above, count, multiplicity + SPARE_COLUMNS) + error[:, np.newaxis]
            chances = np.minimum(chances, [chance_missed(row, known.n_components, multiplicity) for row in deltas])
            if chances[0] <= LARGEST_CHANCE:
                break
        enough = np.flatnonzero(chances <= LARGEST_CHANCE)
        lowest = int(enough[0]) if len(enough) else -1
        return float(above[lowest]), float(chances[lowest])

    def deltas(self, taus: np.ndarray, deflated: int = 0, fewest_columns: int = 0) -> np.ndarray:
        """delta_c for each tau, all of them above the Ritz values: (t,) -> (t, s).

        The first ``deflated`` Ritz vectors are projected out, which leaves smaller eigenvalues. For such a vector u
        with value mu and residual r, ``|u . v| <= r / (tau - mu)``. For the rest of g, let z_1, z_2, .. be the Lanczos
        vectors, T their tridiagonal matrix, and e_k the part of A z_k outside the space, or for the last one outside
        the span of all z_k. From ``(lambda - T) [z_k . v] = [e_k . v]`` follows, since ``(lambda - T)^-1`` is positive
        and falls with lambda::

            |g . v| <= |g| sum_k [(tau - T)^-1]_1k |e_k|.
        """
        deflated_values, values = self.values[:deflated], self.values[deflated:]
        start = self.start[:, : max(MOST_COLUMNS, fewest_columns)].T
        deflated_start, vector = np.abs(start[:, :deflated]), start[:, np.newaxis, deflated:]
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
        inside, outside = image - T @ basis, basis @ self.leak[:, deflated:].T
        wrong = np.abs(basis @ self.inexact[:, deflated:].T).sum(axis=2)
        leaves = np.sqrt(np.sum(inside**2, axis=2) + np.sum(outside**2, axis=2)) + self.lost + wrong
        residuals = np.linalg.norm(self.leak[:, :deflated], axis=0) + self.lost
        residuals = residuals + np.abs(self.inexact[:, :deflated]).sum(axis=0)
        eye = np.eye(length)
        inverse = np.linalg.solve(taus[:, np.newaxis, np.newaxis, np.newaxis] * eye - T, eye[:, :1])[..., 0]
        inside_space = sizes[:, 0] * np.sum(np.abs(inverse) * leaves, axis=2)
        return np.asarray(inside_space + (residuals / (taus[:, np.newaxis] - deflated_values)) @ deflated_start.T)


class KnownComponents(NamedTuple):
    """What a space in the complement needs to know about the components.

    Attributes
    ----------
    n_components : int
        K.
    smallest : float
        theta_K.
    residual : float
        ``|(I - P) C P|``.
    multiplicity : int
        Size of the largest group of components with indistinguishable eigenvalues.
    floor : float
        Uncertainty of a residual.
    resolution : float
        Eigenvalues closer than this cannot be distinguished.
    """

    n_components: int
    smallest: float
    residual: float
    multiplicity: int
    floor: float
    resolution: float


def chance_missed(deltas: np.ndarray, n_components: int, multiplicity: int) -> float:
    """Bound on the probability that a direction in the K + 1 leading eigenspaces was missed, given the deltas (s,).

    Part of an eigenspace may be among the components: then *some* direction of an eigenspace of dimension q =
    multiplicity + 1 is missed. So the smallest singular value of a Gaussian (q, s) matrix is at most ``|delta|``, and
    some unit vector of R^q has all ``|g_c . v| <= max delta``. The less likely event gives the bound, times 2 for the
    choice between the two.
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

    Near such a v there is a point u of the net with ``|g_c . u| <= largest (1 + share)``, unless some |g_c| is above t,
    which has a chance of s 1e-30. A net of spacing e has at most 2 q (1 + 2 / e)^(q - 1) points.
    """
    t, tail, best = sqrt(60 * log(10)) + sqrt(q), log(s) - 30 * log(10), 0.0
    for share in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
        spacing = max(share * largest / t, 1e-300)
        net = log(2 * q) + (q - 1) * log(1 + 2 / spacing) if q > 1 else 0.0
        each = s * log(max(sqrt(2 / np.pi) * largest * (1 + share), 1e-300))
        best = min(best, float(np.logaddexp(net + each, tail)))
    return best


# A basis that grows by blocks without being copied.


class Basis(NamedTuple):
    """Columns that are orthonormal or zero, in a buffer with space for more.

    Attributes
    ----------
    buffer : array of shape (1, capacity, d)
        The columns as rows, then free space. All methods but ``recombined`` write only into the free space, so an older
        basis on the same buffer stays valid.
    present : array of shape (1, w)
        1 where a column is a unit vector, 0 where it is zero.
    """

    buffer: Array
    present: Array

    @classmethod
    def empty(cls, like: Array, capacity: int) -> Basis:
        """No columns yet, and space for ``capacity`` columns of length d: like (1, d, k)."""
        xp, kind = ea.namespace(like), {"dtype": like.dtype, "device": like.device}
        return cls(xp.empty((1, capacity, like.shape[-2]), **kind), xp.empty((1, 0), **kind))

    @property
    def width(self) -> int:
        """Number of columns, w."""
        return int(self.present.shape[-1])

    @property
    def rows(self) -> Array:
        """V^T: (1, w, d)."""
        return self.buffer[:, : self.width, :]

    def first(self, count: int) -> Basis:
        """Only the first ``count`` columns."""
        return self._replace(present=self.present[:, :count])

    def recent(self, count: int) -> Basis:
        """Only the last ``count`` columns, for products, not to be grown."""
        first = max(0, self.width - count)
        return Basis(self.buffer[:, first:, :], self.present[:, first:])

    def grown(self, B: Array, whitening: Array) -> Basis:
        """With the columns of B (1, d, b) times their whitening (1, b, b). The buffer is doubled if it is full."""
        xp, buffer, end = ea.namespace(B), self.buffer, self.width + B.shape[-1]
        while buffer.shape[-2] < end:
            buffer = xp.concat([buffer, xp.empty_like(buffer)], axis=-2)
        for piece in ea.pieces(B.mT):
            buffer[:, self.width : end, piece] = whitening.mT @ B.mT[:, :, piece]
        more = xp.astype(xp.any(whitening != 0, axis=-2), B.dtype)
        return Basis(buffer, xp.concat([self.present, more], axis=-1))

    def recombined(self, small: Array) -> Basis:
        """``V small`` written over V: (1, w, k)."""
        xp, k = ea.namespace(small), small.shape[-1]
        left, squares = small.mT, 0.0
        # Smaller pieces than usual, since each takes a part of all blocks at once.
        for piece in ea.pieces(self.buffer, ea.PIECE // 4):
            columns = left @ self.rows[:, :, piece]
            squares = squares + ea.squared_norms(columns.mT)
            self.buffer[:, :k, piece] = columns
        # Columns have norm 1, or 0 where V had zero columns.
        return self._replace(present=xp.astype(squares > 0.25, small.dtype))

    def times(self, small: Array) -> Array:
        """``V small``: (1, w, k) -> (1, d, k)."""
        # V is stored by rows, so multiply from the left.
        return (small.mT @ self.rows).mT

    def subtract(self, B: Array, small: Array) -> None:
        """Overwrite B by ``B - V small``: (1, d, k), (1, w, k)."""
        for piece in ea.pieces(B.mT):
            B.mT[:, :, piece] -= small.mT @ self.rows[:, :, piece]

    def along(self, Z: Array) -> Array:
        """``V^T Z``: (1, d, k) -> (1, w, k)."""
        return self.rows @ Z


# A few leading pairs are computed by themselves where they are at most this share of all: it takes half the time.
FEW_PAIRS = 0.125
# Smaller matrices are decomposed as a whole, which costs next to nothing.
SMALL_PROJECTION = 256


class Projected:
    """``T = V^T C V`` and its eigenpairs, largest first, which are computed when they are asked for.

    Only the lower triangle of T is used. Pairs of zero columns of V come last, with values below any eigenvalue of a
    covariance.

    Parameters
    ----------
    matrix : array of shape (1, w, w)
        T, symmetric up to rounding.
    present : array of shape (1, w)
        1 where a column of V is a unit vector, 0 where it is zero.
    """

    def __init__(self, matrix: Array, present: Array) -> None:
        self.matrix, self.present = matrix, present
        self._few: dict[int, tuple[Array, Array]] = {}

    @property
    def width(self) -> int:
        """w."""
        return int(self.matrix.shape[-1])

    @cached_property
    def pairs(self) -> tuple[Array, Array]:
        """All values (1, w) and vectors (1, w, w)."""
        return self._largest(self.width)

    def leading(self, count: int) -> tuple[Array, Array]:
        """Values (1, count) and vectors (1, w, count) of the leading pairs."""
        if "pairs" not in self.__dict__ and self.width > SMALL_PROJECTION and count <= FEW_PAIRS * self.width:
            if count not in self._few:
                self._few[count] = self._largest(count)
            values, vectors = self._few[count]
        else:
            values, vectors = self.pairs
        return values[:, :count], vectors[:, :, :count]

    def _largest(self, count: int) -> tuple[Array, Array]:
        """At least the ``count`` leading pairs, of the rows and columns that are present; then the others."""
        xp, T, absent = ea.namespace(self.matrix), self.matrix, ea.to_numpy(self.present)[0] == 0
        n = int(np.count_nonzero(~absent))
        if n == self.width:
            return ea.largest_eigenpairs(T, count)
        order = np.argsort(absent, kind="stable")
        kept, places = (xp.asarray(chosen, device=T.device) for chosen in (order[:n], np.argsort(order)))
        values, vectors = ea.largest_eigenpairs(xp.take(xp.take(T, kept, axis=-1), kept, axis=-2), n)
        below = -2 * xp.max(xp.abs(values)) - 1
        values = xp.concat([values, xp.zeros_like(self.present[:, n:]) + below], axis=-1)
        rest = xp.eye(self.width - n, dtype=T.dtype, device=T.device)[None, :, :]
        return values, xp.take(block_diagonal(vectors, rest), places, axis=-2)


def block_diagonal(first: Array, second: Array) -> Array:
    """(1, m, m), (1, n, n) -> (1, m + n, m + n)."""
    xp, m, size = ea.namespace(first), first.shape[-1], first.shape[-1] + second.shape[-1]
    whole = xp.zeros((1, size, size), dtype=first.dtype, device=first.device)
    whole[:, :m, :m], whole[:, m:, m:] = first, second
    return whole


def asymmetry(T: Array, errors: Array | None = None) -> Array:
    """Largest entry of ``|T - T^T|`` for ``T = V^T C V``: (nodes, w, w) -> (nodes, 1); rounding if C is symmetric.

    errors : (nodes, w), bounds of the errors of the columns of C V, which are no asymmetry of C.
    """
    xp = ea.namespace(T)
    differ = xp.abs(T - T.mT)
    if errors is not None:
        differ = xp.clip(differ - errors[:, :, None] - errors[:, None, :], 0.0, None)
    return xp.max(differ, axis=(-2, -1))[:, None]


def require_symmetric(defect: float, floor: float) -> None:
    """Raise if products with C differ from those of a covariance by more than rounding."""
    if defect > 1000 * floor:
        raise DataError(
            f"products with the covariance differ by {defect:.2g} from those of a symmetric positive matrix, more than "
            f"rounding explains ({floor:.2g}). Samples changed during the fit, or a node computes wrong products."
        )


def bordered(T: Array, column: Array, leak: Array) -> Array:
    """``V^T C V`` with one more block: (1, w, w) -> (1, w + b, w + b).

    column : (1, w + b, b), coordinates of the product with the new block; leak : (1, b, at most w), the part of the
    products with the last columns along the new block. Products with earlier columns have no such part.
    """
    return ea.namespace(T).concat([ea.namespace(T).concat([T, _widened(leak, T.shape[-1])], axis=-2), column], axis=-1)


def _widened(leak: Array, width: int) -> Array:
    """Zero columns before those of the leak: (1, b, c) -> (1, b, w)."""
    xp = ea.namespace(leak)
    wide = xp.zeros((1, leak.shape[-2], width), dtype=leak.dtype, device=leak.device)
    wide[:, :, width - leak.shape[-1] :] = leak
    return wide


class Reconciled(NamedTuple):
    """The two halves of ``V^T C V`` next to a new block, made equal.

    column : (1, w + b, b), lower : (1, b, w), errors : (1, w + b), as for ``reconciled``, and asymmetry : (1, 1), how
    far the halves differ beyond their errors.
    """

    column: Array
    lower: Array
    errors: Array
    asymmetry: Array


def reconciled(column: Array, leak: Array, errors: Array) -> Reconciled:
    """Take each entry from the product that is more exact, and count what that changes as its error.

    Then ``V^T C V`` is symmetric, and a coarse product spoils none of the entries that finer ones know.

    column, leak : as for ``bordered``; errors : (1, w + b), bounds of the errors of the columns of C V.
    """
    xp, w = ea.namespace(column), column.shape[-2] - column.shape[-1]
    above, below, own = column[:, :w, :], _widened(leak, w).mT, column[:, w:, :]
    chosen = xp.where(errors[:, :w, None] <= errors[:, None, w:], below, above)
    halves = xp.concat([chosen, (own + own.mT) / 2], axis=-2)
    differ = xp.concat([below, own.mT], axis=-2) - column
    beyond = xp.max(xp.abs(differ) - errors[:, :, None] - errors[:, None, w:], axis=(-2, -1))[:, None]
    more = [xp.sqrt(xp.sum((chosen - below) ** 2, axis=-1)), xp.sqrt(xp.sum((halves - column) ** 2, axis=-2))]
    return Reconciled(halves, chosen.mT, errors + xp.concat(more, axis=-1), beyond)


def complement_space(
    T: Projected,
    leak: Array,
    lost: float,
    G: Array,
    errors: Array | None = None,
    *,
    n_components: int,
    dimension: int,
    products: int,
) -> ComplementSpace:
    """The space of V, built from Gaussian columns, without the leading Ritz vectors, which are the components.

    Parameters
    ----------
    T : ``V^T C V``.
    leak : (1, b, b), the part of C times the last columns of V outside V, in an orthonormal basis.
    lost : norm of what neither V nor the leak contains.
    G : (1, up to w, s), the Gaussian columns in the basis of the first columns of V.
    errors : (1, w), bounds of the errors of the columns of C V; None where they are exact up to rounding.
    n_components : number of leading Ritz vectors that are components.
    dimension : of the whole space that V is a part of.
    products : number of products that V was built from.
    """
    values, vectors = (ea.to_numpy(part)[0] for part in T.pairs)
    values, vectors = values[n_components:], vectors[:, n_components:]
    rank, start = np.count_nonzero(ea.to_numpy(T.present)), ea.to_numpy(G)[0]
    # Zero columns of V, where a block lost rank, are not directions.
    genuine = slice(0, max(0, rank - n_components))
    # Only products with the last columns leave the space.
    last, wrong = (
        vectors[-leak.shape[-1] :, genuine],
        np.zeros(len(vectors)) if errors is None else ea.to_numpy(errors)[0],
    )
    inexact = (wrong[:, np.newaxis] * vectors[:, genuine])[wrong > 0]
    return ComplementSpace(
        values[genuine],
        vectors[: len(start), genuine].T @ start,
        ea.to_numpy(leak)[0] @ last,
        products,
        whole=bool(rank >= dimension),
        lost=lost,
        inexact=inexact,
    )


class NextBlock(NamedTuple):
    """What a product Z adds to a basis V.

    B : (1, d, b), the next block, its columns as rows in memory; whitening : (1, b, b), H such that B H has orthonormal
    or zero columns; along : (1, w, b) ``V^T Z``; leak : (1, b, b) ``(B H)^T Z``; faded : (1, 2 b, b), a matrix whose
    columns are at least as long as what is left of those of Z.
    """

    B: Array
    whitening: Array
    along: Array
    leak: Array
    faded: Array


def by_rows(columns: Array) -> Array:
    """A copy with its columns as rows in memory, as in a basis: (1, d, b) -> (1, d, b)."""
    rows = ea.namespace(columns).empty(columns.mT.shape, dtype=columns.dtype, device=columns.device)
    rows[...] = columns.mT
    return rows.mT


def soft_polar(V: Basis, Z: Array, noise: float, recent: int | None = None) -> NextBlock:
    """Polar factor B of ``W = (I - V V^T) Z`` with directions at noise level faded out, and its whitening.

    With ``W = P s Q^T``: ``B = P f Q^T``, ``f = s / sqrt(s^2 + e^2)``, a continuous function of W; and ``B Q f^-1`` has
    orthonormal columns, zero where f is small. V is projected out twice, the second time after all directions are
    scaled to one length, so that small ones become orthogonal to V too. If Z (1, d, b) has nothing but rounding along
    all but the last ``recent`` columns of V, the first projection may use only those; None: all.
    """
    xp, B = ea.namespace(V.buffer), by_rows(Z)
    near = V if recent is None else V.recent(recent)
    first = near.along(B)
    size = xp.sqrt(xp.sum(squared_norms(B), axis=-1, keepdims=True))
    near.subtract(B, first)
    triangle = ea.qr_in_place(B)
    # Scaled by the size of Z, which may be so small that its squares underflow.
    unit = xp.where(size > 0, size, xp.ones_like(size))[:, :, None]
    left, s, right = xp.linalg.svd(triangle / unit, full_matrices=False)
    level = 64 * ea.EPS + 10 * noise
    fade = s / xp.sqrt(s * s + level * level)
    strong = fade > 0.5
    inverse = xp.where(strong, 1 / xp.where(strong, fade, xp.ones_like(fade)), xp.zeros_like(fade))
    ea.turn_in_place(B, (left * fade[:, None, :]) @ right)
    rest = V.along(B)
    V.subtract(B, rest)
    turn, outside = right.mT * inverse[:, None, :], s[:, :, None] * right * unit
    along = rest @ (turn @ outside)
    along[:, V.width - near.width :, :] += first
    lengths, axes = ea.eigenpairs(turn.mT @ (B.mT @ B) @ turn)
    lengths = xp.sqrt(xp.maximum(lengths, xp.zeros_like(lengths)))
    # Directions that the second projection shortens by half or more were rounding.
    new = xp.astype(lengths > 0.5, B.dtype)
    whitening = turn @ (axes * (new / xp.where(lengths > 0.5, lengths, xp.ones_like(lengths)))[:, None, :])
    left_out = xp.astype(~strong, B.dtype)[:, :, None] * outside
    outside = lengths[:, :, None] * (axes.mT @ (outside - left_out))
    # The two parts need not be orthogonal, hence the factor sqrt(2).
    faded = xp.concat([left_out, (1 - new)[:, :, None] * outside], axis=-2) * 2**0.5
    return NextBlock(B, whitening, along, new[:, :, None] * outside, faded)
