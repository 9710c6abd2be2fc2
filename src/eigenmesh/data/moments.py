"""Pooled size, mean and variance: what every node must know before the first iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from eigenmesh.data.block import Block
from eigenmesh.data.centring import CHUNK_BYTES, Centring, dense_rows, stored_rows
from eigenmesh.data.shards import Shards
from eigenmesh.data.table import Samples
from eigenmesh.errors import DataError, InputError, UnknownNameError

Missing: TypeAlias = Literal["error", "mean"]


class Averager(Protocol):
    """The part of a network that moments need: an exact average over all M nodes."""

    @property
    def n_nodes(self) -> int:
        """Number of nodes, M."""
        ...

    def mean(self, array: np.ndarray, /) -> np.ndarray:
        """Average over all nodes, at every node held here: (nodes, ..) -> (nodes, ..)."""
        ...


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the pooled samples, the same at every node.

    n_samples: N. mean (d,), variance (d,) with divisor N-1, scale (d,) the standard deviation with divisor N,
    None where columns are not scaled. n_missing: entries that were missing and count as their column's mean.
    """

    n_samples: int
    mean: np.ndarray
    variance: np.ndarray
    scale: np.ndarray | None = None
    n_missing: int = 0

    @property
    def total_variance(self) -> float:
        """Trace of the pooled covariance, after scaling where columns are scaled."""
        return float(np.sum(self.variance if self.scale is None else self.variance / self.scale**2))

    def centring(self, n_nodes: int) -> Centring:
        """The map y -> a = sqrt(M/(N-1)) (y - mean) / scale, with which C_i = A_i^T A_i, eq (1)."""
        weight = np.sqrt(n_nodes / (self.n_samples - 1))
        factor = float(weight) if self.scale is None else weight / self.scale
        return Centring(self.mean, factor, fills=self.n_missing > 0)


def pooled_moments(shards: Shards, network: Averager, *, scale: bool = False, missing: Missing = "error") -> Moments:
    """Moments of all M nodes' samples, by two passes over the data held here and two network averages.

    First N and mean = (1/N) sum y, then the squared deviations from that mean. The second pass also yields
    the rounding error of the first mean, which is taken out of both. Accumulates in float64; reads in chunks.
    A non-finite entry is an error, or with ``missing="mean"`` counts as the pooled mean of its column.
    """
    if missing not in ("error", "mean"):
        raise UnknownNameError("policy for missing entries", missing, ("error", "mean"))
    if network.n_nodes != shards.n_nodes:
        raise InputError(f"the network has {network.n_nodes} nodes but the data are split over {shards.n_nodes}")
    fills = missing == "mean"
    n_samples, observed, mean = _first_pass(shards, network, fills)
    n_missing = n_samples * shards.n_features - int(observed.sum())

    centring = Centring(mean, fills=n_missing > 0)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by name below
        deviations = np.stack([_deviations(block, centring) for block in shards.blocks])
        shift, squares = shards.n_nodes * network.mean(deviations)[0]
        shift = shift / observed
        variance = np.maximum(squares - observed * shift**2, 0.0) / (n_samples - 1)
    return _finish(shards, Moments(n_samples, mean + shift, variance, n_missing=n_missing), scale)


def _first_pass(shards: Shards, network: Averager, fills: bool) -> tuple[int, np.ndarray, np.ndarray]:
    """N, the number of observed entries of each column (d,), and the mean (d,)."""
    sums, observed = zip(*(_sums(shards, position, fills) for position in range(len(shards.blocks))), strict=True)
    counts = np.array([[float(block.n_rows)] for block in shards.blocks])
    # Observed entries need sending only where some may be missing; all nodes know the policy, so all agree.
    parts = [counts, np.stack(sums), *([np.stack(observed)] if fills else [])]
    pooled = shards.n_nodes * network.mean(np.concatenate(parts, axis=1))[0]

    d = shards.n_features
    n_samples = int(np.rint(pooled[0]))
    if n_samples < 2:
        raise DataError(f"n_samples = {n_samples} over all nodes; a covariance needs at least 2 samples")
    seen = np.rint(pooled[1 + d :]) if fills else np.full(d, float(n_samples))
    if not seen.all():
        raise DataError(f"no node has a finite entry in {_columns(shards, seen == 0)}; drop such columns")
    return n_samples, seen, pooled[1 : 1 + d] / seen


def _sums(shards: Shards, position: int, fills: bool) -> tuple[np.ndarray, np.ndarray]:
    """Column sums (d,) of the finite entries of one node, and how many they are (d,)."""
    block = shards.blocks[position]
    total = np.zeros(block.n_features)
    observed = np.full(block.n_features, float(block.n_rows))
    for start, piece in block.chunks(_chunk_rows(block)):
        sums = _column_sums(piece)
        # Sums are not finite where an entry is not, so a clean piece is never searched.
        if not np.isfinite(sums).all():
            absent = ~np.isfinite(piece.data if block.is_sparse else piece)
            if absent.any() and not fills:
                raise _not_finite(shards, position, start, piece, absent)
            observed -= _column_counts(piece, absent)
            sums = _column_sums(_without(piece, absent))
        total += sums
    if not np.isfinite(total).all():
        columns = _columns(shards, ~np.isfinite(total))
        raise DataError(
            f"sums overflow float64 at {shards.node_label(position)} in {columns}; divide them by a constant"
        )
    return total, observed


def _deviations(block: Block, centring: Centring) -> np.ndarray:
    """Sums of the deviations from the mean and of their squares, (2, d), of one node."""
    total = np.zeros((2, block.n_features))
    for _, piece in block.chunks(_chunk_rows(block)):
        if not block.is_sparse:
            ready = centring.apply(piece)
            total += [ready.sum(axis=0), np.einsum("nd,nd->d", ready, ready)]
            continue
        # Entries that are not stored are zeros, each a deviation of -mean: no square is ever subtracted.
        ready = centring.stored(piece)
        zeros = piece.shape[0] - np.bincount(piece.indices, minlength=block.n_features)
        total += [_by_column(piece, ready), _by_column(piece, ready**2)]
        total += [-zeros * centring.mean, zeros * centring.mean**2]
    return total


def _finish(shards: Shards, moments: Moments, scale: bool) -> Moments:
    """Refuse what has no covariance to speak of, and add the scale."""
    variance = moments.variance
    if not np.isfinite(variance).all():
        columns = _columns(shards, ~np.isfinite(variance))
        raise DataError(f"the variance overflows float64 in {columns}; divide such columns by a constant")
    # A spread of some units in the last place of the mean is what rounding leaves of a constant.
    constant = np.sqrt(variance) <= 16 * np.finfo(np.float64).eps * np.abs(moments.mean)
    if constant.all():
        raise DataError("the total variance is zero: all samples are equal, there are no principal components")
    if not scale:
        _require_range(float(variance.sum()), shards.dtype)
        return moments
    if constant.any():
        columns = _columns(shards, constant)
        raise DataError(f"scale=True cannot divide by the zero spread of constant {columns}; drop them")
    n = moments.n_samples
    return Moments(n, moments.mean, variance, np.sqrt(variance * ((n - 1) / n)), moments.n_missing)


def _require_range(total: float, dtype: np.dtype) -> None:
    """Refuse data so large or small that squares of their variance leave the range of the dtype."""
    limit = 1e15 if dtype == np.float32 else 1e100
    if not 1 / limit <= total <= limit:
        raise DataError(
            f"the total variance is {total:.2g}; in {dtype} it must lie between {1 / limit:g} and {limit:g}: multiply "
            "the data by a constant, or use scale=True"
        )


def _not_finite(shards: Shards, position: int, start: int, piece: Samples, absent: np.ndarray) -> DataError:
    if isinstance(piece, np.ndarray):
        row, column = np.unravel_index(int(np.argmax(absent)), absent.shape)
        value = piece[row, column]
    else:
        entry = int(np.argmax(absent))
        row = np.searchsorted(piece.indptr, entry, side="right") - 1
        column, value = piece.indices[entry], piece.data[entry]
    own = start + int(row)
    source = shards.blocks[position].source_row(own)
    here = f"row {own}" if source == own else f"row {own} (row {source} of the data)"
    where = f"{shards.node_label(position)}, {here}, {shards.column_label(int(column))}"
    return DataError(f'{where} is {"NaN" if np.isnan(value) else value}; drop or fill it, or pass missing="mean"')


def _chunk_rows(block: Block) -> int:
    return stored_rows(block, CHUNK_BYTES) if block.is_sparse else dense_rows(block, CHUNK_BYTES)


def _by_column(piece: Samples, values: np.ndarray) -> np.ndarray:
    """Sums by column (d,) of values given for the stored entries of a CSR piece."""
    return np.bincount(piece.indices, weights=values, minlength=piece.shape[1])


def _column_sums(piece: Samples) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        if isinstance(piece, np.ndarray):
            return np.asarray(piece.sum(axis=0, dtype=np.float64))
        return _by_column(piece, piece.data)


def _column_counts(piece: Samples, absent: np.ndarray) -> np.ndarray:
    return absent.sum(axis=0) if isinstance(piece, np.ndarray) else _by_column(piece, absent)


def _without(piece: Samples, absent: np.ndarray) -> Samples:
    """The piece with zeros where entries are absent, which leaves sums as they should be."""
    if isinstance(piece, np.ndarray):
        return np.where(absent, piece.dtype.type(0), piece)
    filled = piece.copy()
    filled.data[absent] = 0
    return filled


def _columns(shards: Shards, chosen: np.ndarray) -> str:
    """The columns marked True, by number and name, ten at most."""
    columns = np.flatnonzero(chosen)
    more = f" and {len(columns) - 10} more" if len(columns) > 10 else ""
    return ", ".join(shards.column_label(int(column)) for column in columns[:10]) + more
