"""Running moments of the samples of a stream at one node: number, mean and scatter, merged exactly."""

from __future__ import annotations

import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.data.choice import CovarianceKind
from eigenmesh.data.covariance import squares_beyond
from eigenmesh.data.source import CHUNK_BYTES, HOST, Place


class Summary(NamedTuple):
    """Sum of the weights, mean, and scatter as a matrix (d, d) or its diagonal (d,).

    The mean is ``mean + rest``: a sample that moves a large mean by less than its last digit must not be lost.
    ``merges`` counts the sums that the scatter went through; those of forgotten samples count less.
    """

    weight: float
    mean: Array
    rest: Array
    scatter: Array
    merges: float = 0.0

    @classmethod
    def about(cls, weight: float, centre: Array, shift: Array, scatter: Array, merges: float = 0.0) -> Summary:
        """Summary with the mean ``centre + shift``."""
        mean = centre + shift
        # The error of the sum, exactly (Knuth).
        of_shift = mean - centre
        rest = (centre - (mean - of_shift)) + (shift - of_shift)
        return cls(weight, mean, rest, scatter, merges)

    @classmethod
    def of(cls, rows: Array, whole: bool) -> Summary:
        """Summary of rows (n, d) float64, n >= 1, with the whole scatter matrix or its diagonal."""
        xp = ea.namespace(rows)
        mean = xp.mean(rows, axis=0)
        centred = rows - mean
        # What the long sum has rounded off the mean.
        shift = xp.mean(centred, axis=0)
        centred = centred - shift
        scatter = centred.mT @ centred if whole else np.einsum("nd,nd->d", centred, centred)
        return cls.about(float(len(rows)), mean, shift, scatter)

    def mean_from(self, centre: Array) -> Array:
        """The mean minus a centre: (d,)."""
        return (self.mean - centre) + self.rest

    def merged(self, other: Summary) -> Summary:
        """Summary of both sets of samples (Chan et al. 1979)::

        m = m_a + (n_b / n) (m_b - m_a),  S = S_a + S_b + (n_a n_b / n) (m_b - m_a)(m_b - m_a)^T
        """
        if not self.weight:
            return other
        weight, shift = self.weight + other.weight, other.mean_from(self.mean) - self.rest
        between = shift**2 if self.scatter.ndim == 1 else shift[:, None] * shift
        scatter = self.scatter + other.scatter + (self.weight * other.weight / weight) * between
        merges = max(self.merges, other.merges) + 1
        return Summary.about(weight, self.mean, self.rest + (other.weight / weight) * shift, scatter, merges)

    def times(self, factor: float) -> Summary:
        return self._replace(weight=factor * self.weight, scatter=factor * self.scatter, merges=factor * self.merges)


class Running(ABC):
    """Samples of one node so far, each with a weight w: ``n = sum w``, mean m and ``S = sum w (y - m)(y - m)^T``."""

    # Their moments, with S or its diagonal.
    summary: Summary

    @property
    @abstractmethod
    def kind(self) -> CovarianceKind:
        """How products are computed."""

    @property
    def count(self) -> float:
        """n, the sum of the weights."""
        return self.summary.weight

    @property
    def mean(self) -> np.ndarray:
        """m, rounded to float64: (d,)."""
        return ea.to_numpy(self.summary.mean)

    @property
    def squares(self) -> np.ndarray:
        """Diagonal of S: (d,)."""
        scatter = self.summary.scatter
        return ea.to_numpy(scatter if scatter.ndim == 1 else ea.namespace(scatter).linalg.diagonal(scatter))

    def mean_from(self, centre: np.ndarray) -> np.ndarray:
        """``m - centre`` with what float64 has rounded off m: (d,)."""
        return ea.to_numpy(self.summary.mean_from(self.place(centre)))

    def place(self, values: np.ndarray) -> Array:
        """Values of any shape on the device of the samples."""
        return ea.like(values, self.summary.scatter)

    @property
    @abstractmethod
    def rounded(self) -> float:
        """Bound of the relative error of S, in units of the rounding of float64, from adding up batches."""

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Bytes of memory."""

    @abstractmethod
    def ticked(self, rows: Array, forgetting: float) -> Self:
        """After one batch: earlier samples are weighted by ``forgetting``, new rows (n, d) by 1."""

    @abstractmethod
    def product(self, X: Array) -> Array:
        """S X, on the device of the samples: (d, k) -> (d, k)."""

    @abstractmethod
    def trace_beyond(self, U: np.ndarray, scale: np.ndarray | float) -> float:
        """``trace((I - U U^T) D^-1 S D^-1 (I - U U^T))`` without cancellation: D = diag(scale).

        U (d, K) has orthonormal columns.
        """


@dataclass(frozen=True, eq=False)
class RunningScatter(Running):
    """Moments with S as a (d, d) matrix; no rows are kept. They stay on their device."""

    summary: Summary
    kind: ClassVar[CovarianceKind] = CovarianceKind.FORMED

    @classmethod
    def empty(cls, n_features: int, place: Place = HOST) -> RunningScatter:
        mean, scatter = place.put(np.zeros(n_features)), place.put(np.zeros((n_features, n_features)))
        return cls(Summary(0.0, mean, mean, scatter))

    @property
    def rounded(self) -> float:
        return self.summary.merges

    @property
    def n_bytes(self) -> int:
        return 8 * len(self.summary.mean) ** 2

    def ticked(self, rows: Array, forgetting: float) -> RunningScatter:
        before = self.summary if forgetting == 1 else self.summary.times(forgetting)
        return RunningScatter(before.merged(Summary.of(rows, whole=True)) if len(rows) else before)

    def product(self, X: Array) -> Array:
        return self.summary.scatter @ X

    def trace_beyond(self, U: np.ndarray, scale: np.ndarray | float) -> float:
        outside = np.linalg.qr(U, mode="complete")[0][:, U.shape[1] :]
        beyond = self.place((outside.T / scale).T)
        return float(ea.namespace(beyond).sum(beyond * self.product(beyond)))


@dataclass(frozen=True, eq=False)
class RunningCovariance:
    """C_i of the nodes in this process, about the pooled mean mu = centre + rest and after scaling by D = diag(scale)::

        C_i = (M / (N - 1)) D^-1 (S_i + n_i (m_i - mu)(m_i - mu)^T) D^-1

    Their average is the covariance of all samples.
    """

    nodes: Sequence[Running]
    centre: np.ndarray
    factor: float
    scale: np.ndarray | float = 1.0
    rest: np.ndarray | float = 0.0

    @property
    def kind(self) -> CovarianceKind:
        return self.nodes[0].kind

    @property
    def n_features(self) -> int:
        return len(self.centre)

    def place(self, values: np.ndarray) -> Array:
        return self.nodes[0].place(values)

    def _shift(self, node: Running) -> np.ndarray:
        """m_i - mu: (d,)."""
        return node.mean_from(self.centre) - self.rest

    @property
    def rounding_size(self) -> float:
        """The largest ``tr S_i`` times the number of sums that S_i went through, each of which rounds it."""
        sizes = [node.rounded * float(np.sum(node.squares / np.square(self.scale))) for node in self.nodes]
        # A certificate takes the uncertainty of a product as 16 roundings of this size.
        return self.factor * max(sizes, default=0.0) / 16

    def apply(self, X: Array) -> Array:
        products, scale = [], self.place(np.broadcast_to(self.scale, self.n_features)[:, np.newaxis])
        for node, block in zip(self.nodes, X, strict=True):
            scaled, shift = block / scale, self.place(self._shift(node)[:, np.newaxis])
            whole = node.product(scaled) + (node.count * shift) @ (shift.mT @ scaled)
            products.append(self.factor * (whole / scale))
        return ea.namespace(X).stack(products)

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        traces = []
        for node in self.nodes:
            shift = self._shift(node) / self.scale
            outside = shift - U @ (U.T @ shift)
            traces.append(node.trace_beyond(U, self.scale) + node.count * float(outside @ outside))
        return self.factor * np.array(traces)


# Stored rows of a stream: for a window, or in files if d x d moments do not fit into memory.


# Rows with less than this weight are dropped: next to new rows they have no effect in float64.
LEAST_WEIGHT = 1e-20


class RowsFile:
    """Rows (n, d) in a temporary file, which is deleted with the last object that uses it."""

    def __init__(self, rows: np.ndarray, folder: str) -> None:
        self.shape, self.dtype, self.folder = rows.shape, rows.dtype, folder
        handle, self.path = tempfile.mkstemp(suffix=".rows", prefix="eigenmesh-", dir=folder)
        weakref.finalize(self, _remove, self.path)
        with os.fdopen(handle, "wb") as file:
            np.ascontiguousarray(rows).tofile(file)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(len(self))
        width = self.shape[1]
        # Not memory-mapped, because mapped pages would count as memory of this process.
        read = np.fromfile(self.path, self.dtype, (stop - start) * width, offset=start * width * self.dtype.itemsize)
        return read.reshape(-1, width)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowsFile, (self[:], self.folder)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


class KeptRows(NamedTuple):
    """The rows of one batch, their current weight, and their moments."""

    tick: int
    weight: float
    rows: np.ndarray | RowsFile
    summary: Summary


@dataclass(frozen=True, eq=False)
class RunningRows(Running):
    """All rows of the last ``window`` batches, or of all batches if it is None; in files if there is a ``folder``.

    The files are as large as the rows that count: those of a window, or with forgetting f those of the last
    log(1e-20) / log(f) batches. Nothing is rounded.
    """

    n_features: int
    window: int | None = None
    folder: str | None = None
    chunks: tuple[KeptRows, ...] = ()
    tick: int = 0

    @property
    def kind(self) -> CovarianceKind:
        return CovarianceKind.MATRIX_FREE if self.folder is None else CovarianceKind.CHUNKED

    @cached_property
    def summary(self) -> Summary:  # type: ignore[override]
        if not self.chunks:
            nothing = np.zeros(self.n_features)
            return Summary(0.0, nothing, nothing, nothing)
        return reduce(Summary.merged, (chunk.summary.times(chunk.weight) for chunk in self.chunks))

    @property
    def rounded(self) -> float:
        # Products are computed from the rows.
        return 0.0

    @property
    def n_bytes(self) -> int:
        in_memory = (chunk.rows.nbytes for chunk in self.chunks if isinstance(chunk.rows, np.ndarray))
        return sum(in_memory, 2 * CHUNK_BYTES)

    def ticked(self, rows: np.ndarray, forgetting: float) -> RunningRows:
        tick = self.tick + 1
        kept = [chunk._replace(weight=chunk.weight * forgetting) for chunk in self.chunks]
        kept = [chunk for chunk in kept if chunk.weight >= LEAST_WEIGHT]
        if self.window is not None:
            kept = [chunk for chunk in kept if tick - chunk.tick < self.window]
        if len(rows):
            stored = rows.copy() if self.folder is None else RowsFile(rows, self.folder)
            kept.append(KeptRows(tick, 1.0, stored, Summary.of(rows, whole=False)))
        return replace(self, chunks=tuple(kept), tick=tick)

    def _pieces(self) -> Iterator[tuple[float, np.ndarray]]:
        """Weights and centred rows, (n, d), a few megabytes at a time."""
        step = max(1, CHUNK_BYTES // (8 * self.n_features))
        for chunk in self.chunks:
            for start in range(0, len(chunk.rows), step):
                yield chunk.weight, (chunk.rows[start : start + step] - self.mean) - self.summary.rest

    def product(self, X: np.ndarray) -> np.ndarray:
        total = np.zeros_like(X)
        for weight, rows in self._pieces():
            total += rows.T @ (weight * (rows @ X))
        return total

    def trace_beyond(self, U: np.ndarray, scale: np.ndarray | float) -> float:
        return sum(weight * float(squares_beyond(rows / scale, U)) for weight, rows in self._pieces())
