"""Stored rows of a stream: for a window, or in files if d x d moments do not fit into memory."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.data._choice import CovarianceKind
from eigenmesh.data._place import CHUNK_BYTES
from eigenmesh.data._running import Summary
from eigenmesh.data._sparse_covariance import squares_beyond

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
class RunningRows:
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
    def _summary(self) -> Summary:
        if not self.chunks:
            nothing = np.zeros(self.n_features)
            return Summary(0.0, nothing, nothing, nothing)
        return reduce(Summary.merged, (chunk.summary.times(chunk.weight) for chunk in self.chunks))

    @property
    def count(self) -> float:
        return self._summary.weight

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self._summary.mean)

    @property
    def rounded(self) -> float:
        # Products are computed from the rows.
        return 0.0

    def mean_from(self, centre: np.ndarray) -> np.ndarray:
        return np.asarray(self._summary.mean_from(centre))

    @property
    def squares(self) -> np.ndarray:
        return np.asarray(self._summary.scatter)

    @property
    def n_bytes(self) -> int:
        in_memory = (chunk.rows.nbytes for chunk in self.chunks if isinstance(chunk.rows, np.ndarray))
        return sum(in_memory, 2 * CHUNK_BYTES)

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

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
                yield chunk.weight, (chunk.rows[start : start + step] - self.mean) - self._summary.rest

    def product(self, X: np.ndarray) -> np.ndarray:
        total = np.zeros_like(X)
        for weight, rows in self._pieces():
            total += rows.T @ (weight * (rows @ X))
        return total

    def trace_beyond(self, U: np.ndarray, scale: np.ndarray | float) -> float:
        return sum(weight * float(squares_beyond(rows / scale, U)) for weight, rows in self._pieces())
