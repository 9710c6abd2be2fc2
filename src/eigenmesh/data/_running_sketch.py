"""A sketch of the rows of a stream, for nodes that can store neither d x d moments nor the rows; not exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenmesh.data._choice import CovarianceKind
from eigenmesh.data._running import Summary
from eigenmesh.data._sparse_covariance import squares_beyond


@dataclass(frozen=True, eq=False)
class RunningSketch:
    """Frequent Directions: rows B with ``0 <= S - B^T B <= dropped I``; number, mean and diagonal of S are exact.

    Centred new rows are appended to B, and one more row for the shift of the mean. If B has more than 2 r rows, with
    singular values s and right singular vectors V, largest first::

        B <- sqrt(max(s^2 - s_{r+1}^2, 0)) V^T,  dropped <- dropped + s_{r+1}^2

    which has at most r nonzero rows.

    References
    ----------
    M. Ghashami, E. Liberty, J. M. Phillips and D. P. Woodruff, "Frequent Directions: simple and deterministic matrix
    sketching", SIAM Journal on Computing 45 (2016).
    """

    size: int
    summary: Summary
    rows: np.ndarray
    dropped: float = 0.0
    kind: ClassVar[CovarianceKind] = CovarianceKind.MATRIX_FREE

    @classmethod
    def empty(cls, n_features: int, size: int) -> RunningSketch:
        nothing = np.zeros(n_features)
        return cls(size, Summary(0.0, nothing, nothing, nothing), np.zeros((0, n_features)))

    @property
    def count(self) -> float:
        return self.summary.weight

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self.summary.mean)

    @property
    def rounded(self) -> float:
        return self.summary.merges

    def mean_from(self, centre: np.ndarray) -> np.ndarray:
        return np.asarray(self.summary.mean_from(centre))

    @property
    def squares(self) -> np.ndarray:
        return np.asarray(self.summary.scatter)

    @property
    def n_bytes(self) -> int:
        return 8 * 2 * self.size * len(self.mean)

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    def ticked(self, rows: np.ndarray, forgetting: float) -> RunningSketch:
        before, B, dropped = self.summary.times(forgetting), np.sqrt(forgetting) * self.rows, forgetting * self.dropped
        if not len(rows):
            return RunningSketch(self.size, before, B, dropped)
        new = Summary.of(rows, whole=False)
        share = before.weight * new.weight / (before.weight + new.weight)
        shift = np.sqrt(share) * (new.mean_from(before.mean) - before.rest)
        for start in range(0, len(rows), self.size):
            B, lost = self._shrunk(np.vstack([B, (rows[start : start + self.size] - new.mean) - new.rest]))
            dropped += lost
        B, lost = self._shrunk(np.vstack([B, shift]))
        return RunningSketch(self.size, before.merged(new), B, dropped + lost)

    def _shrunk(self, B: np.ndarray) -> tuple[np.ndarray, float]:
        if len(B) <= 2 * self.size:
            return B, 0.0
        _, s, Vt = np.linalg.svd(B, full_matrices=False)
        lost = float(s[self.size] ** 2) if len(s) > self.size else 0.0
        kept = np.sqrt(np.maximum(s[: self.size] ** 2 - lost, 0))
        return kept[:, np.newaxis] * Vt[: self.size], lost

    def product(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.rows.T @ (self.rows @ X))

    def trace_beyond(self, U: np.ndarray, scale: np.ndarray | float) -> float:
        """As in ``Running``, for U (d, K); what was dropped counts as outside U."""
        dropped = np.sum(self.squares / np.square(scale)) - np.sum((self.rows / scale) ** 2)
        return squares_beyond(self.rows / scale, U) + float(dropped)
