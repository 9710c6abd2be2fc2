"""Number of samples, mean and variance of each column, computed from sums about any centre."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import fsum
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from eigenmesh.arrays import Array, add_to_triangle, is_sparse, mirror, namespace, subtract_from_triangle, to_numpy
from eigenmesh.data.block import Block, lent, position_of
from eigenmesh.data.samples import Partition, whole_count, whole_counts
from eigenmesh.data.source import HOST, Place, Samples, chunk_bytes
from eigenmesh.errors import DataError, InputError, MissingEntriesError
from eigenmesh.words import listed, lookup

# Prepare rows for products: centre, scale, weight, and fill in missing entries.


@dataclass(frozen=True, eq=False)
class Centring:
    """The map y -> (y - mean - rest) * factor on rows; with ``fills``, a missing (non-finite) entry becomes 0."""

    mean: np.ndarray
    factor: np.ndarray | float = 1.0
    fills: bool = False
    rest: np.ndarray | None = None
    _placed: dict[Any, list[Any]] = field(default_factory=dict, init=False, repr=False)

    def apply(self, piece: Samples, out: np.ndarray | None = None) -> Array:
        """The piece as dense float64 (rows, d), centred and scaled, on its device; a sparse piece is made dense.

        On the CPU it is written to ``out``, if given.
        """
        dense = piece.toarray() if is_sparse(piece) else piece
        mean, rest, factor = self._beside(dense)
        centred = self._centred(dense, mean, out, rest)
        if isinstance(self.factor, np.ndarray) or self.factor != 1.0:
            centred *= factor
        return centred

    def _beside(self, dense: Array) -> list[Any]:
        """Mean, rest and factor on the device of some rows."""
        own = [self.mean, self.rest, self.factor]
        if isinstance(dense, np.ndarray):
            return own
        if dense.device not in self._placed:
            # Cached, because a copy to a GPU waits until it is idle.
            xp = namespace(dense)
            self._placed[dense.device] = [
                xp.asarray(value, device=dense.device) if isinstance(value, np.ndarray) else value for value in own
            ]
        return self._placed[dense.device]

    def stored(self, piece: Samples) -> Array:
        """The stored entries of a CSR piece, centred but not scaled: (stored,) float64."""
        return self._centred(piece.data, self.mean[piece.indices])

    def part(self, columns: slice) -> Centring:
        """The same map for some of the columns."""
        if columns == slice(0, len(self.mean)):
            return self
        factor = self.factor[columns] if isinstance(self.factor, np.ndarray) else self.factor
        rest = None if self.rest is None else self.rest[columns]
        return replace(self, mean=self.mean[columns], factor=factor, rest=rest)

    def chunks(self, block: Block, n_bytes: int | None = None, place: Place = HOST) -> Iterator[tuple[int, Array]]:
        """Pairs (first row, prepared rows) that cover a block, on a device; a piece takes at most n_bytes as float64.

        A row of weight w is multiplied by sqrt(w), so that products of prepared rows count it w times. On the CPU all
        chunks are written to the same memory: a chunk is valid until the next one is read.
        """
        n_bytes = n_bytes or chunk_bytes(place.device)
        if place != HOST or block.device is not None:
            for start, piece in block.chunks(n_bytes):
                yield start, self.prepared(block, start, piece, place)
            return
        with lent((block.rows_at_once(n_bytes), block.n_features)) as out:
            for start, piece in block.chunks(n_bytes, out=out):
                yield start, self.prepared(block, start, piece, place, out)

    def columns(self, block: Block, place: Place = HOST) -> Iterator[tuple[slice, Array]]:
        """Pairs (columns, prepared rows of these columns) that cover a block that is read by columns."""
        for columns, piece in block.column_chunks(chunk_bytes(place.device)):
            yield columns, self.part(columns).prepared(block, 0, piece, place)

    def prepared(self, block: Block, start: int, piece: Samples, place: Place, out: np.ndarray | None = None) -> Array:
        """A piece of a block from row ``start`` on, as ``chunks`` yields it."""
        ready = self.apply(piece if is_sparse(piece) else place.put(piece), out)
        weights = block.weights_of(start, ready)
        if weights is not None:
            ready *= weights**0.5
        return ready

    def _centred(self, values: Array, mean: Array, out: np.ndarray | None = None, rest: Array | None = None) -> Array:
        xp = namespace(values)
        if isinstance(values, np.ndarray):
            # Stored by rows, whatever the order of the samples, so that products have the same bits.
            out = np.empty(values.shape) if out is None else out[: len(values)]
            centred: Array = np.subtract(values, mean, out=out, dtype=np.float64)
        else:
            centred = xp.astype(values, xp.float64)
            centred -= mean
        if rest is not None:
            centred -= rest
        if self.fills:
            centred[~xp.isfinite(centred)] = 0.0
        return centred


# Sums over the samples of one node, from which pooled moments are computed.


# Rows per group when summing over rows; group sums are then summed in the same way, which keeps rounding small.
SUMMED_ROWS = 64
# Largest sum of squares that is sent.
LARGEST_SQUARES = 1e290
# Rows are added up again if the mean of a column is farther from the first centre than this, squared and relative to
# its variance at the node.
MOST_SHIFTED = 4.0
# Rows that show where the mean is.
FIRST_ROWS = 256


class Columns(Protocol):
    """Facts about the columns that messages and limits need, wherever the samples are."""

    @property
    def n_features(self) -> int: ...
    def column_label(self, column: int) -> str: ...


@np.errstate(over="ignore")
def count_and_sum(shards: Partition, position: int, fills: bool) -> np.ndarray:
    """N_i, sums and sums of squares, (d,) each, of one node's finite entries and, with ``fills``, their number (d,).

    A row of weight w counts w times.
    """
    block = shards.blocks[position]
    exact = np.zeros((2, block.n_features), dtype=np.longdouble)
    observed = np.full(block.n_features, float(block.count))
    for rows, columns, piece in block.pieces(made_dense=False):
        values, weights = stored(piece), block.weights_of(rows.start, piece)
        sums = _by_column(piece, _weighed(values, weights))
        # A sum is finite only if all entries are, so only other pieces are searched.
        if not np.isfinite(sums).all():
            xp = namespace(values)
            absent = ~xp.isfinite(values)
            if xp.any(absent) and not fills:
                raise not_finite(shards, position, rows.start, piece, columns.start)
            observed[columns] -= _by_column(piece, _weighed(absent, weights))
            values = xp.where(absent, xp.zeros_like(values), values)
            sums = _by_column(piece, _weighed(values, weights))
        exact[0, columns] += sums
        exact[1, columns] += _squares_by_column(piece, _weighed(values, weights, 0.5))
    total = exact.astype(np.float64)
    if not np.isfinite(total[0]).all():
        raise _overflow(shards, position, total[0])
    # Squares that overflow lead to a second pass, which reports the column; until then they must stay finite.
    total[1] = np.minimum(total[1], LARGEST_SQUARES)
    # The counts are sent only if entries may be missing; all nodes know the policy.
    return np.concatenate([[float(block.count)], *total, *([observed] if fills else [])])


class Scatter:
    """One pass over the rows y of a node, from which follow both its moments and its covariance.

    The pass adds up deviations from a point p of the node's own, s = sum (y - p) and S = sum (y - p)(y - p)^T. Once the
    pooled mean is known, with delta = mean - p,

        sum (y - mean)(y - mean)^T = S - s delta^T - delta s^T + n delta delta^T.

    p is zero, or the mean of the node's first rows if these are far from zero. Where p is so far from the mean of all
    its rows that digits of S would cancel, a second pass begins with that mean.

    Parameters
    ----------
    shards : Shards
        Samples of the nodes in this process, dense and on the CPU. An entry that is not finite is an error.
    position : int
        The node, among those in this process.
    """

    @np.errstate(over="ignore", invalid="ignore")
    def __init__(self, shards: Partition, position: int) -> None:
        self._shards, self._position, self._block = shards, position, shards.blocks[position]
        self._add_up(None)
        s, squares = self._sums, np.diagonal(self._products)
        own = s**2 / max(self._block.count, 1.0)
        rounding = 16 * np.finfo(np.float64).eps * np.abs(self._centre) * self._block.count
        if np.any((own > MOST_SHIFTED * (squares - own)) & (np.abs(s) > rounding)):
            self._add_up(self._centre + s / self._block.count)

    def _add_up(self, centre: np.ndarray | None) -> None:
        block, d = self._block, self._block.n_features
        self._products, sums = np.zeros((d, d)), np.zeros(d, dtype=np.longdouble)
        with lent((block.rows_at_once(chunk_bytes(None)), d)) as out:
            for start, piece in block.chunks(out=out):
                if centre is None:
                    centre = _near_mean(piece[:FIRST_ROWS])
                is_ready = not centre.any() and block.weights is None and piece.dtype == np.float64
                is_ready = is_ready and piece.flags.c_contiguous
                ready = piece if is_ready else Centring(centre).prepared(block, start, piece, HOST, out)
                own = _by_column(ready, _weighed(ready, block.weights_of(start, ready), 0.5))
                # A sum is finite only if all entries are, so only other pieces are searched.
                if not np.isfinite(own).all():
                    again = block.read(slice(start, start + len(ready)))
                    if not np.isfinite(again).all():
                        raise not_finite(self._shards, self._position, start, again)
                sums += own
                add_to_triangle(self._products, ready)
        self._centre = np.zeros(d) if centre is None else centre
        self._sums = sums.astype(np.float64)

    @property
    def cancels(self) -> bool:
        """Whether rows are centred only after their products are summed, so that digits cancel."""
        return not self._centre.any()

    @np.errstate(over="ignore", invalid="ignore")
    def count_and_sum(self) -> np.ndarray:
        """As ``count_and_sum`` of the same node."""
        n, p, s = float(self._block.count), self._centre, self._sums
        sums, squares = s + n * p, np.diagonal(self._products) + p * (2 * s + n * p)
        if not np.isfinite(sums).all():
            raise _overflow(self._shards, self._position, sums)
        return np.concatenate([[n], sums, np.fmin(squares, LARGEST_SQUARES)])

    @np.errstate(over="ignore", invalid="ignore")
    def deviations(self, centring: Centring) -> np.ndarray:
        """As ``deviations`` of the same node."""
        n, s, delta = self._block.count, self._sums, self._shift(centring)
        return np.stack([s - n * delta, np.diagonal(self._products) - delta * (2 * s - n * delta)])

    def about(self, centring: Centring) -> np.ndarray:
        """The sum of products of the centred and scaled rows, (d, d), in the memory of this object, once."""
        delta = self._shift(centring)
        subtract_from_triangle(self._products, self._sums - self._block.count / 2 * delta, delta)
        mirror(self._products, centring.factor)
        return self._products

    def _shift(self, centring: Centring) -> np.ndarray:
        shift = centring.mean - self._centre
        return np.asarray(shift if centring.rest is None else shift + centring.rest)


@np.errstate(over="ignore", invalid="ignore")  # also when a Dask worker calls it
def deviations(shards: Partition, position: int, centring: Centring) -> np.ndarray:
    """Sums of the deviations from the mean and of their squares, (2, d), of one node."""
    block = shards.blocks[position]
    total = np.zeros((2, block.n_features))
    for rows, columns, piece in block.pieces(made_dense=False):
        weights = block.weights_of(rows.start, piece)
        if not block.is_sparse:
            ready = centring.part(columns).apply(piece)
            sums = _by_column(ready, _weighed(ready, weights))
            total[:, columns] += [sums, _squares_by_column(ready, _weighed(ready, weights, 0.5))]
            continue
        # Entries that are not stored are zero: each has the deviation -mean. Adding these avoids cancellation.
        ready = centring.stored(piece)
        count = piece.shape[0] if block.weights is None else block.weights[rows].sum()
        zeros = count - np.bincount(piece.indices, weights, minlength=block.n_features)
        total += [_by_column(piece, _weighed(ready, weights)), _by_column(piece, _weighed(ready**2, weights))]
        total += [-zeros * centring.mean, zeros * centring.mean**2]
    return total


def _near_mean(rows: np.ndarray) -> np.ndarray:
    """A point near the mean of these rows, (d,): zero if so little cancels that rows need not be centred."""
    mean = sums_of_rows(rows) / len(rows)
    # Where the mean is large, this is rounding, which is as good as none.
    variance = np.einsum("nd,nd->d", rows, rows, dtype=np.float64) / len(rows) - mean**2
    is_near = (mean**2 <= MOST_SHIFTED / 2 * variance).all() and mean @ mean <= variance.sum()
    return np.zeros_like(mean) if is_near else mean


def _overflow(shards: Partition, position: int, sums: np.ndarray) -> DataError:
    where = f"{shards.node_label(position)} in {column_labels(shards, ~np.isfinite(sums))}"
    return DataError(f"sums overflow float64 at {where}; divide these columns by a constant.")


def not_finite(shards: Partition, position: int, start: int, piece: Samples, first_column: int = 0) -> DataError:
    """The error for the first value of a piece that is not finite, with the place where it is."""
    offset, column, value = first_not_finite(piece)
    row, column = start + offset, first_column + column
    rows = shards.blocks[position].rows
    source = rows.start + row if isinstance(rows, slice) else rows[row]
    here = f"row {row}" if source == row else f"row {row} (row {source} of the data)"
    known = shards.blocks[position].place(row, column)
    where = f"{shards.node_label(position)}, {known or f'{here}, {shards.column_label(column)}'}"
    what = "NaN" if np.isnan(value) else value
    return MissingEntriesError(f'{where} is {what}; drop or fill it, or pass missing="mean".')


def _weighed(values: Array, weights: Array | None, power: float = 1.0) -> Array:
    return values if weights is None else values * weights**power


def stored(piece: Samples) -> Array:
    """The stored entries of a piece: (rows, d) for an array, (stored,) for a csr_array."""
    return piece.data if is_sparse(piece) else piece


def first_not_finite(piece: Samples) -> tuple[int, int, float]:
    """Row, column and value of the first entry of a piece that is NaN or infinite."""
    values = to_numpy(stored(piece)).ravel()
    at = int(np.argmax(~np.isfinite(values)))
    return *position_of(piece, at), float(values[at])


@np.errstate(invalid="ignore", over="ignore")
def _by_column(piece: Samples, values: Array) -> np.ndarray:
    """Sums by column (d,) of values given for the stored entries of a piece."""
    if is_sparse(piece):
        return np.bincount(piece.indices, weights=values, minlength=piece.shape[1])
    if isinstance(values, np.ndarray):
        return sums_of_rows(values)
    xp = namespace(values)
    return to_numpy(xp.sum(values, axis=0, dtype=xp.float64))


def sums_of_rows(rows: np.ndarray) -> np.ndarray:
    """Sums over the rows, to a few units in the last place: (n, d) -> (d,)."""
    in_pairs = rows.strides[0] < rows.strides[1]
    if in_pairs or len(rows) <= SUMMED_ROWS:
        return np.asarray(rows.sum(axis=0, dtype=np.float64))
    # NumPy sums pairwise along contiguous columns, but across rows one after the other, which rounds each time.
    whole = len(rows) - len(rows) % SUMMED_ROWS
    # Every 64th row is added up first: NumPy adds long rows much faster than short ones.
    apart = sums_of_rows(rows[:whole].reshape(-1, SUMMED_ROWS * rows.shape[1])).reshape(SUMMED_ROWS, -1)
    return np.asarray(apart.sum(axis=0) + sums_of_rows(rows[whole:]))


def _squares_by_column(piece: Samples, values: Array) -> np.ndarray:
    xp = namespace(values)
    wide = xp.astype(values, xp.float64, copy=False)
    if is_sparse(piece):
        return _by_column(piece, wide**2)
    if isinstance(wide, np.ndarray):
        return np.asarray(np.einsum("nd,nd->d", wide, wide))
    # One pass, without a temporary array of the size of the piece.
    return to_numpy(xp.linalg.vector_norm(wide, axis=0)) ** 2


def column_labels(columns: Columns, chosen: np.ndarray) -> str:
    """The columns marked True in (d,), by number and name, at most ten."""
    return listed([columns.column_label(column) for column in np.flatnonzero(chosen).tolist()])


Missing: TypeAlias = Literal["error", "mean"]
# False, True for the standard deviation, or "binomial": that of allele counts, sqrt(2 p (1 - p)) for p = mean / 2.
Scaling: TypeAlias = bool | Literal["binomial"]
MISSING: dict[str, Missing] = {"error": "error", "mean": "mean"}
# If sums of squares exceed squared deviations by more than this factor, deviations are summed in a second pass.
MOST_LOST = 100.0
NO_VARIANCE = (
    "the total variance is zero: all samples are equal, or differ by less than 1e-160; give samples that differ."
)
# Largest relative rounding error of squared deviations in integers.
MOST_ROUNDED = 1e-12


class OfSplitColumns(NamedTuple):
    """What nodes with different columns agree on: the trace of their Gram matrix, and d of all nodes together."""

    total: float
    n_columns: int


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the pooled samples, the same at every node.

    Parameters
    ----------
    n_samples : float
        N, whole unless rows have weights that do not sum to a whole number.
    mean : array of shape (d,)
        Mean of each column.
    variance : array of shape (d,)
        Variance of each column, with divisor N - 1.
    scale : array of shape (d,) or None
        Standard deviation of each column with divisor N, or the binomial one; None if columns are not scaled.
    n_missing : int
        Entries that count as the mean of their column.
    rest : array of shape (d,) or None
        Rounding error of the mean in float64, if it matters next to the deviations.
    agreed : OfSplitColumns or None
        If columns are split, what all nodes agree on; the arrays are then of the columns in this process.
    """

    n_samples: float
    mean: np.ndarray
    variance: np.ndarray
    scale: np.ndarray | None = None
    n_missing: int = 0
    rest: np.ndarray | None = None
    agreed: OfSplitColumns | None = None

    @classmethod
    def of_columns(cls, parts: Sequence[Moments], order: np.ndarray, n_samples: int, agreed: OfSplitColumns) -> Moments:
        """Moments of the columns of several nodes, in this order, with the numbers that all nodes agree on."""
        mean, variance = (
            np.concatenate(each)[order] for each in zip(*((m.mean, m.variance) for m in parts), strict=True)
        )
        scales = [part.scale for part in parts if part.scale is not None]
        scale = np.concatenate(scales)[order] if scales else None
        return cls(n_samples, mean, variance, scale, sum(part.n_missing for part in parts), agreed=agreed)

    @property
    def n_features(self) -> int:
        """d, of all nodes together."""
        return len(self.mean) if self.agreed is None else self.agreed.n_columns

    @property
    def total_variance(self) -> float:
        """Trace of the pooled covariance, after any scaling."""
        # `fsum` rounds once, so it gives the same bits on every processor.
        return fsum(self.diagonal) if self.agreed is None else self.agreed.total

    @property
    def diagonal(self) -> np.ndarray:
        """Diagonal of the pooled covariance, after any scaling: (d,).

        If columns are split, an upper bound of the diagonal of their Gram matrix, (N - 1,): its trace, because no node
        reveals its share of the diagonal.
        """
        if self.agreed is not None:
            return np.full(int(self.n_samples) - 1, self.agreed.total)
        return self.variance if self.scale is None else self.variance / self.scale**2

    def centring(self, n_nodes: int) -> Centring:
        """The map y -> a = sqrt(M/(N-1)) (y - mean) / scale, with which C_i = A_i^T A_i, eq (1)."""
        weight = np.sqrt(n_nodes / (self.n_samples - 1))
        factor = float(weight) if self.scale is None else weight / self.scale
        return Centring(self.mean, factor, self.n_missing > 0, self.rest)


def scaled_mean(moments: Moments) -> np.ndarray:
    """Mean of each column, after any scaling: (d,)."""
    return moments.mean if moments.scale is None else moments.mean / moments.scale


def missing_policy(name: str) -> Missing:
    """The policy for missing entries with this name.

    Parameters
    ----------
    name : str
        "error" or "mean", in any spelling.
    """
    return lookup("policy for missing entries", name, MISSING)


def _require_resolved(squares: np.ndarray, scale: Scaling, least: np.ndarray, columns: Columns) -> None:
    """Raise if squared deviations (d,) are too small for sums in integers: below ``least``, (d,)."""
    if not scale and squares.sum() < least.sum():
        raise DataError(
            f"squared deviations sum to {squares.sum():.2g} over all nodes, which integers do not resolve (at least "
            f"{least.sum():.2g}); subtract a constant where means are large beside "
            f"deviations, or multiply the data by a constant, if samples differ at all."
        )
    # Copies of alleles are whole numbers: without squared deviations they are equal.
    small = (squares < least) & ((squares > 0) | (scale != "binomial"))
    if scale and small.any():
        names = column_labels(columns, small)
        raise DataError(
            f"integers do not resolve squared deviations below {least[small].max():.2g}; drop constant columns, and "
            f"subtract a constant from others where means are large, or multiply others by a constant: {names}."
        )


def _divisors(
    scale: Scaling, mean: np.ndarray, variance: np.ndarray, n_samples: float, columns: Columns
) -> np.ndarray | None:
    """Divisor of each column, (d,); None without scaling."""
    if not scale:
        return None
    if scale == "binomial":
        outside = (mean < -1e-9) | (mean > 2 + 1e-9)
        if outside.any():
            names = column_labels(columns, outside)
            raise DataError(
                f'scale="binomial" is for 0, 1 or 2 copies of an allele; means are outside 0..2 in {names}.'
            )
        # A column without variance is zero after centring, whatever its divisor: it is left out.
        return np.sqrt(np.where(variance > 0, mean * (1 - mean / 2), 1.0))
    outside = (variance <= 1e-200) | (variance >= 1e200)
    if outside.any():
        names = column_labels(columns, outside)
        raise DataError(f"variances must be in 1e-200..1e200 to scale by them; rescale {names}.")
    return np.asarray(np.sqrt(variance * ((n_samples - 1) / n_samples)))


def moments_about(
    about: Moments,
    sums: np.ndarray,
    observed: np.ndarray | float,
    columns: Columns,
    *,
    scale: Scaling,
    whole: bool = True,
    resolution: np.ndarray | float = 0.0,
    most_rounded: float = MOST_ROUNDED,
) -> Moments:
    """Moments from sums of deviations about any centre, (d,), with sums of their squares in ``about.variance``.

    The closer the centre is to the mean, the less precision is lost to cancellation. ``resolution`` is the largest
    error of a sum of squares in integers, one number or (d,), and 0 for other averages; it may be ``most_rounded`` of
    the sum.
    """
    n_samples = about.n_samples
    with np.errstate(over="ignore", invalid="ignore"):
        shift = sums / observed
        variance = np.maximum(about.variance - observed * shift**2, 0.0) / (n_samples - 1)
    mean, finite = about.mean + shift, np.isfinite(variance)
    if not finite.all():
        names = column_labels(columns, ~finite)
        raise DataError(f"the variance overflows float64 in {names}; divide these columns by a constant.")
    least = np.broadcast_to(resolution / most_rounded, variance.shape)
    _require_resolved(variance * (n_samples - 1), scale, least, columns)
    # By rounding, a constant column has a spread of a few units in the last place of its mean.
    constant = np.sqrt(variance) <= 16 * np.finfo(np.float64).eps * np.abs(mean)
    if whole and constant.all():
        raise DataError(NO_VARIANCE)
    if scale == "binomial":
        variance = np.where(constant, 0.0, variance)
    elif scale and constant.any():
        raise DataError(
            f"scale=True would divide by zero in constant {column_labels(columns, constant)}; drop such columns."
        )
    if whole and not scale:
        require_range(float(variance.sum()))
    deviation = _divisors(scale, mean, variance, n_samples, columns)
    # An error delta of the mean adds delta delta^T to the covariance; where entries are missing, which are not off by
    # it, also products of delta and deviations.
    rest, negligible = (about.mean - mean) + shift, np.finfo(np.float64).eps if about.n_missing else 1e-9
    matters = bool(np.any(np.abs(rest) > negligible * np.sqrt(variance)))
    return Moments(n_samples, mean, variance, deviation, about.n_missing, rest if matters else None)


def require_range(total: float) -> None:
    """Raise unless the square of the total variance is in the range of float64."""
    if not 1e-100 <= total <= 1e100:
        raise DataError(
            f"the total variance {total:.2g} must be in 1e-100..1e100; rescale the data, or use scale=True."
        )


# Moments of the samples of all nodes: one pass over the samples in this process, and one network average.


# Function of a centring: the sum over all nodes of ``deviations``.
TotalDeviations: TypeAlias = Callable[[Centring], np.ndarray]


class Averager(Protocol):
    """The part of a network that moments need: an exact average over all M nodes."""

    @property
    def n_nodes(self) -> int: ...

    def common_mean(self, array: np.ndarray, /) -> np.ndarray:
        """Average over all nodes: (nodes, ..) -> (copies, ..)."""

    def common_mean_and_maximum(self, array: np.ndarray, values: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]:
        """The same, and elementwise maxima over all nodes, in the same messages."""

    def same_bits(self, common: np.ndarray, /) -> np.ndarray:
        """An average with the same bits at every node: (copies, ..) -> (1, ..)."""


def pooled_moments(
    shards: Partition,
    network: Averager,
    *,
    scale: Scaling = False,
    missing: Missing = "error",
    scatters: Sequence[Scatter | None] = (),
) -> Moments:
    """Moments of the samples of all M nodes, by one pass over the data in this process and one network average.

    The average contains N, the sums and the sums of squares. If a mean is so large that their difference would lose
    digits, a second pass and average give the squared deviations from the mean, and the rounding error of the mean.
    Sums are in float64; data are read in chunks. A non-finite entry is an error, or with ``missing="mean"`` counts as
    the pooled mean of its column.

    Parameters
    ----------
    shards : Shards
        Samples of the nodes in this process.
    network : Averager
        The network of all M nodes.
    scale : bool or "binomial"
        Whether columns are scaled, and by what.
    missing : "error" or "mean"
        What an entry that is not finite is.
    scatters : sequence of Scatter or None
        For each node in this process, what a pass over its rows has found, if it was made already; only if a missing
        entry is an error.
    """
    if network.n_nodes != shards.n_nodes:
        raise InputError(f"the network has {network.n_nodes} nodes but the data {shards.n_nodes}; make them equal.")
    known = list(enumerate(scatters or [None] * len(shards.blocks)))

    def total_deviations(centring: Centring) -> np.ndarray:
        parts = np.stack([one.deviations(centring) if one else deviations(shards, at, centring) for at, one in known])
        # All nodes must centre about the same point: where means are large, even the last digits of a mean matter.
        return np.asarray(shards.n_nodes * network.same_bits(network.common_mean(parts))[0])

    fills = missing_policy(missing) == "mean"
    first = np.stack([one.count_and_sum() if one else count_and_sum(shards, at, fills) for at, one in known])
    lost = _lost_digits(first, shards.n_features, scale)[:, np.newaxis]
    pooled, agreed = network.common_mean_and_maximum(first, lost)
    # A maximum has the same bits at all nodes, so either all or none of them make the second average.
    precise = bool(agreed[0, 0] <= MOST_LOST)
    pooled = shards.n_nodes * network.same_bits(pooled)[0]
    return moments_by_sums(total_deviations, shards, pooled, precise, scale=scale, missing=missing)


def moments_by_sums(
    total_deviations: TotalDeviations,
    columns: Columns,
    pooled: np.ndarray,
    precise: bool | None = None,
    *,
    scale: Scaling = False,
    missing: Missing = "error",
    whole: bool = True,
) -> Moments:
    """``pooled_moments`` for any way to sum a summary over all nodes, from the sum of ``count_and_sum``.

    ``whole`` is False for a part of the columns: all of these may be constant, and only their total has limits.
    """
    d, fills = columns.n_features, missing_policy(missing) == "mean"
    n_samples = whole_count(float(pooled[0]))
    if n_samples < 2:
        fix = "where rows have weights, these are numbers of samples"
        raise DataError(f"n_samples = {n_samples:g} over all nodes; a covariance needs at least 2 ({fix}).")
    sums, squares = pooled[1 : 1 + d], pooled[1 + d : 1 + 2 * d]
    observed = pooled[1 + 2 * d :] if fills else np.full(d, pooled[0])
    observed = whole_counts(observed, n_samples)
    absent = observed == 0
    if absent.any():
        raise DataError(f"no node has a finite entry in {column_labels(columns, absent)}; drop such columns.")
    mean, n_missing = sums / observed, int(np.ceil(np.maximum(n_samples - observed, 0.0).sum())) if fills else 0
    about = Moments(n_samples, np.zeros(d), squares, n_missing=n_missing)
    if precise is None:
        precise = bool(_lost_digits(pooled, d, scale) <= MOST_LOST)
    if not precise:
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported by column below
            sums, squares = total_deviations(Centring(mean, fills=n_missing > 0))
        about = Moments(n_samples, mean, squares, n_missing=n_missing)
    return moments_about(about, sums, observed, columns, scale=scale, whole=whole)


@np.errstate(all="ignore")
def _lost_digits(summaries: np.ndarray, d: int, scale: Scaling) -> np.ndarray:
    """Ratio of the squares to the squared deviations: in total or, with scaling, the largest of any column.

    ``max(sum q / sum (q - s^2 / n))`` for the sums s and the squares q, (d,) each, of every ``count_and_sum``.
    """
    sums, squares = summaries[..., 1 : 1 + d], summaries[..., 1 + d : 1 + 2 * d]
    observed = summaries[..., 1 + 2 * d :] if summaries.shape[-1] > 1 + 2 * d else summaries[..., :1]
    centred = squares - np.where(observed > 0, sums**2 / observed, 0.0)
    if not scale:
        squares, centred = squares.sum(axis=-1, keepdims=True), centred.sum(axis=-1, keepdims=True)
    lost = np.where(centred > 0, squares / centred, np.inf)
    return np.asarray(np.max(lost if not scale else np.where(squares > 0, lost, 1.0), axis=-1, initial=1.0))


def own_moments(shards: Partition, *, scale: Scaling, missing: Missing) -> Moments:
    """Moments of the columns of one node that has all their samples, without messages."""
    first = count_and_sum(shards, 0, missing_policy(missing) == "mean")
    return moments_by_sums(partial(deviations, shards, 0), shards, first, scale=scale, missing=missing, whole=False)
