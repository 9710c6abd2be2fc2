"""Pooled number of samples, mean and variance, which every node needs before the first iteration."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeAlias

import numpy as np

from eigenmesh._lookup import lookup
from eigenmesh.data._block import Centring
from eigenmesh.data._shards import Shards
from eigenmesh.data._source import Samples
from eigenmesh.errors import DataError, InputError

Missing: TypeAlias = Literal["error", "mean"]
MISSING: dict[str, Missing] = {"error": "error", "mean": "mean"}
# Summary of one node's samples, given its position among the nodes held here.
NodePart: TypeAlias = Callable[[Shards, int], np.ndarray]


class Averager(Protocol):
    """The part of a network that moments need: an exact average over all M nodes."""

    @property
    def n_nodes(self) -> int: ...

    def mean(self, array: np.ndarray, /) -> np.ndarray:
        """Average over all nodes, at every node held here: (nodes, ..) -> (nodes, ..)."""


class Columns(Protocol):
    """Facts about the columns that messages and limits need, wherever the samples are."""

    @property
    def n_features(self) -> int: ...
    @property
    def dtype(self) -> np.dtype: ...
    def column_label(self, column: int) -> str: ...


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the pooled samples, the same at every node.

    mean, variance, scale: of each column, (d,). The variance has divisor N - 1. The scale is the standard deviation
    with divisor N, None if columns are not scaled. n_missing: entries that count as the mean of their column.
    """

    n_samples: int
    mean: np.ndarray
    variance: np.ndarray
    scale: np.ndarray | None = None
    n_missing: int = 0

    @property
    def total_variance(self) -> float:
        """Trace of the pooled covariance, after any scaling."""
        return float(np.sum(self.variance if self.scale is None else self.variance / self.scale**2))

    def centring(self, n_nodes: int) -> Centring:
        """The map y -> a = sqrt(M/(N-1)) (y - mean) / scale, with which C_i = A_i^T A_i, eq (1)."""
        weight = np.sqrt(n_nodes / (self.n_samples - 1))
        factor = float(weight) if self.scale is None else weight / self.scale
        return Centring(self.mean, factor, fills=self.n_missing > 0)


def missing_policy(name: str) -> Missing:
    """The policy for missing entries of that name, in any spelling."""
    return lookup("policy for missing entries", name, MISSING)


def pooled_moments(shards: Shards, network: Averager, *, scale: bool = False, missing: Missing = "error") -> Moments:
    """Moments of all M nodes' samples, by two passes over the data held here and two network averages.

    First N and mean = (1/N) sum y, then the squared deviations from that mean. The second pass also gives
    the rounding error of the first mean, which corrects both. Accumulates in float64; reads in chunks.
    A non-finite entry is an error, or with ``missing="mean"`` counts as the pooled mean of its column.
    """
    if network.n_nodes != shards.n_nodes:
        raise InputError(f"the network has {network.n_nodes} nodes but the data {shards.n_nodes}; make them equal.")

    def over_nodes(part: NodePart) -> np.ndarray:
        parts = np.stack([part(shards, position) for position in range(len(shards.blocks))])
        return np.asarray(shards.n_nodes * network.mean(parts)[0])

    return moments_by_sums(over_nodes, shards, scale=scale, missing=missing)


def moments_by_sums(
    over_nodes: Callable[[NodePart], np.ndarray], columns: Columns, *, scale: bool = False, missing: Missing = "error"
) -> Moments:
    """``pooled_moments`` for any way to sum a summary over all nodes."""
    d, fills = columns.n_features, missing_policy(missing) == "mean"
    pooled = over_nodes(partial(count_and_sum, fills=fills))
    n_samples = int(np.rint(pooled[0]))
    if n_samples < 2:
        raise DataError(f"n_samples = {n_samples} over all nodes; a covariance needs at least 2 samples.")
    observed = np.rint(pooled[1 + d :]) if fills else np.full(d, float(n_samples))
    if not observed.all():
        raise DataError(f"no node has a finite entry in {_columns(columns, observed == 0)}; drop such columns.")
    mean, n_missing = pooled[1 : 1 + d] / observed, n_samples * d - int(observed.sum())
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported by column below
        sums, squares = over_nodes(partial(deviations, centring=Centring(mean, fills=n_missing > 0)))
    return moments_about(Moments(n_samples, mean, squares, n_missing=n_missing), sums, observed, columns, scale=scale)


def moments_about(
    about: Moments, sums: np.ndarray, observed: np.ndarray | int, columns: Columns, *, scale: bool
) -> Moments:
    """Moments from sums of deviations (d,) and, in place of the variance, of their squares about any centre.

    The nearer the centre is to the mean, the less precision is lost to cancellation.
    """
    n_samples = about.n_samples
    with np.errstate(over="ignore", invalid="ignore"):
        shift = sums / observed
        variance = np.maximum(about.variance - observed * shift**2, 0.0) / (n_samples - 1)
    mean, finite = about.mean + shift, np.isfinite(variance)
    if not finite.all():
        names = _columns(columns, ~finite)
        raise DataError(f"the variance overflows float64 in {names}; divide these columns by a constant.")
    # A constant column has a spread of some units in the last place of its mean, by rounding.
    constant = np.sqrt(variance) <= 16 * np.finfo(np.float64).eps * np.abs(mean)
    if constant.all():
        raise DataError("the total variance is zero because all samples are equal; give samples that differ.")
    if scale and constant.any():
        raise DataError(f"scale=True would divide by zero in constant {_columns(columns, constant)}; drop them.")
    # Squares of the variance must stay in the range of the dtype.
    total, limit = float(variance.sum()), 1e15 if columns.dtype == np.float32 else 1e100
    if not scale and not 1 / limit <= total <= limit:
        bounds = f"{1 / limit:g}..{limit:g} for {columns.dtype}"
        raise DataError(f"the total variance {total:.2g} must be in {bounds}; rescale the data, or use scale=True.")
    deviation = np.sqrt(variance * ((n_samples - 1) / n_samples)) if scale else None
    return Moments(n_samples, mean, variance, deviation, about.n_missing)


def count_and_sum(shards: Shards, position: int, fills: bool) -> np.ndarray:
    """N_i, the column sums (d,) of the finite entries of one node and, with ``fills``, their number (d,)."""
    block = shards.blocks[position]
    total = np.zeros(block.n_features)
    observed = np.full(block.n_features, float(block.n_rows))
    for start, piece in block.chunks(made_dense=False):
        values = stored(piece)
        sums = _by_column(piece, values)
        # A sum is not finite if an entry is not, so only such pieces are searched.
        if not np.isfinite(sums).all():
            absent = ~np.isfinite(values)
            if absent.any() and not fills:
                raise _not_finite(shards, position, start, piece)
            observed -= _by_column(piece, absent)
            sums = _by_column(piece, np.where(absent, values.dtype.type(0), values))
        total += sums
    if not np.isfinite(total).all():
        where = f"{shards.node_label(position)} in {_columns(shards, ~np.isfinite(total))}"
        raise DataError(f"sums overflow float64 at {where}; divide these columns by a constant.")
    # The counts are sent only if entries may be missing; all nodes know the policy, so all agree.
    return np.concatenate([[float(block.n_rows)], total, *([observed] if fills else [])])


@np.errstate(over="ignore", invalid="ignore")  # also when a Dask worker calls it
def deviations(shards: Shards, position: int, centring: Centring) -> np.ndarray:
    """Sums of the deviations from the mean and of their squares, (2, d), of one node."""
    block = shards.blocks[position]
    total = np.zeros((2, block.n_features))
    for _, piece in block.chunks(made_dense=False):
        if not block.is_sparse:
            ready = centring.apply(piece)
            total += [ready.sum(axis=0), np.einsum("nd,nd->d", ready, ready)]
            continue
        # Entries that are not stored are zeros, each with deviation -mean, so no square is subtracted.
        ready = centring.stored(piece)
        zeros = piece.shape[0] - np.bincount(piece.indices, minlength=block.n_features)
        total += [_by_column(piece, ready), _by_column(piece, ready**2)]
        total += [-zeros * centring.mean, zeros * centring.mean**2]
    return total


def _not_finite(shards: Shards, position: int, start: int, piece: Samples) -> DataError:
    offset, column, value = first_not_finite(piece)
    row = start + offset
    rows = shards.blocks[position].rows
    source = rows.start + row if isinstance(rows, slice) else rows[row]
    here = f"row {row}" if source == row else f"row {row} (row {source} of the data)"
    where = f"{shards.node_label(position)}, {here}, {shards.column_label(column)}"
    return DataError(f'{where} is {"NaN" if np.isnan(value) else value}; drop or fill it, or pass missing="mean".')


def stored(piece: Samples) -> np.ndarray:
    """Entries of a piece that are stored: all (rows, d) of an array, (stored,) of a csr_array."""
    return np.asarray(piece if isinstance(piece, np.ndarray) else piece.data)


def first_not_finite(piece: Samples) -> tuple[int, int, float]:
    """Row, column and value of the first entry of a piece that is NaN or infinite."""
    place = int(np.argmax(~np.isfinite(stored(piece))))
    if isinstance(piece, np.ndarray):
        return *divmod(place, piece.shape[1]), float(piece.flat[place])
    row = int(np.searchsorted(piece.indptr, place, side="right")) - 1
    return row, int(piece.indices[place]), float(piece.data[place])


@np.errstate(invalid="ignore", over="ignore")
def _by_column(piece: Samples, values: np.ndarray) -> np.ndarray:
    """Sums by column (d,) of values given for the stored entries of a piece."""
    if isinstance(piece, np.ndarray):
        return np.asarray(values.sum(axis=0, dtype=np.float64))
    return np.bincount(piece.indices, weights=values, minlength=piece.shape[1])


def _columns(columns: Columns, chosen: np.ndarray) -> str:
    """The columns marked True, by number and name, ten at most."""
    marked = np.flatnonzero(chosen)
    more = f" and {len(marked) - 10} more" if len(marked) > 10 else ""
    return ", ".join(columns.column_label(int(column)) for column in marked[:10]) + more
