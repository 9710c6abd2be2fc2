"""Sums over the samples of one node, from which pooled moments are computed."""

from typing import Protocol

import numpy as np
import scipy.sparse

from eigenmesh.arrays import Array, namespace, to_numpy
from eigenmesh.data._centring import Centring
from eigenmesh.data._shards import Shards
from eigenmesh.data._source import Samples
from eigenmesh.errors import DataError

# Rows per group when summing over rows; group sums are then summed in the same way, which keeps rounding small.
SUMMED_ROWS = 64


class Columns(Protocol):
    """Facts about the columns that messages and limits need, wherever the samples are."""

    @property
    def n_features(self) -> int: ...
    def column_label(self, column: int) -> str: ...


@np.errstate(over="ignore")
def count_and_sum(shards: Shards, position: int, fills: bool) -> np.ndarray:
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
        where = f"{shards.node_label(position)} in {column_labels(shards, ~np.isfinite(total[0]))}"
        raise DataError(f"sums overflow float64 at {where}; divide these columns by a constant.")
    # Squares that overflow lead to a second pass, which reports the column; until then they must stay finite.
    total[1] = np.minimum(total[1], 1e290)
    # The counts are sent only if entries may be missing; all nodes know the policy.
    return np.concatenate([[float(block.count)], *total, *([observed] if fills else [])])


@np.errstate(over="ignore", invalid="ignore")  # also when a Dask worker calls it
def deviations(shards: Shards, position: int, centring: Centring) -> np.ndarray:
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


def not_finite(shards: Shards, position: int, start: int, piece: Samples, first_column: int = 0) -> DataError:
    offset, column, value = first_not_finite(piece)
    row, column = start + offset, first_column + column
    rows = shards.blocks[position].rows
    source = rows.start + row if isinstance(rows, slice) else rows[row]
    here = f"row {row}" if source == row else f"row {row} (row {source} of the data)"
    known = shards.blocks[position].place(row, column)
    where = f"{shards.node_label(position)}, {known or f'{here}, {shards.column_label(column)}'}"
    return DataError(f'{where} is {"NaN" if np.isnan(value) else value}; drop or fill it, or pass missing="mean".')


def _weighed(values: Array, weights: Array | None, power: float = 1.0) -> Array:
    return values if weights is None else values * weights**power


def stored(piece: Samples) -> Array:
    """The stored entries of a piece: (rows, d) for an array, (stored,) for a csr_array."""
    return piece.data if scipy.sparse.issparse(piece) else piece


def first_not_finite(piece: Samples) -> tuple[int, int, float]:
    """Row, column and value of the first entry of a piece that is NaN or infinite."""
    place = int(np.argmax(~np.isfinite(to_numpy(stored(piece)))))
    if not scipy.sparse.issparse(piece):
        row, column = divmod(place, piece.shape[1])
        return row, column, float(piece[row, column])
    row = int(np.searchsorted(piece.indptr, place, side="right")) - 1
    return row, int(piece.indices[place]), float(piece.data[place])


@np.errstate(invalid="ignore", over="ignore")
def _by_column(piece: Samples, values: Array) -> np.ndarray:
    """Sums by column (d,) of values given for the stored entries of a piece."""
    if scipy.sparse.issparse(piece):
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
    groups = rows[:whole].reshape(-1, SUMMED_ROWS, rows.shape[1]).sum(axis=1, dtype=np.float64)
    return np.asarray(sums_of_rows(groups) + sums_of_rows(rows[whole:]))


def _squares_by_column(piece: Samples, values: Array) -> np.ndarray:
    xp = namespace(values)
    wide = xp.astype(values, xp.float64, copy=False)
    if scipy.sparse.issparse(piece):
        return _by_column(piece, wide**2)
    if isinstance(wide, np.ndarray):
        return np.asarray(np.einsum("nd,nd->d", wide, wide))
    # One pass, without a temporary array of the size of the piece.
    return to_numpy(xp.linalg.vector_norm(wide, axis=0)) ** 2


def column_labels(columns: Columns, chosen: np.ndarray) -> str:
    """The columns marked True in (d,), by number and name, at most ten."""
    marked = np.flatnonzero(chosen)
    more = f" and {len(marked) - 10} more" if len(marked) > 10 else ""
    return ", ".join(columns.column_label(int(column)) for column in marked[:10]) + more
