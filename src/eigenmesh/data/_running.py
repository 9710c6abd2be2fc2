"""Running moments of the samples of a stream at one node: number, mean and scatter, merged exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.data._choice import CovarianceKind
from eigenmesh.data._place import HOST, Place


class Running(Protocol):
    """Samples of one node so far, each with a weight w: ``n = sum w``, mean m and ``S = sum w (y - m)(y - m)^T``."""

    @property
    def kind(self) -> CovarianceKind: ...

    @property
    def count(self) -> float:
        """n, the sum of the weights."""

    @property
    def mean(self) -> np.ndarray:
        """m: (d,)."""

    @property
    def squares(self) -> np.ndarray:
        """Diagonal of S: (d,)."""

    @property
    def n_bytes(self) -> int:
        """Bytes of memory."""

    def place(self, values: np.ndarray) -> Array:
        """Values of any shape on the device of the samples."""

    def ticked(self, rows: Array, forgetting: float) -> Self:
        """After one batch: earlier samples are weighted by ``forgetting``, new rows (n, d) by 1."""

    def product(self, X: Array) -> Array:
        """S X, on the device of the samples: (d, k) -> (d, k)."""

    def trace_beyond(self, U: np.ndarray, scale: np.ndarray | float) -> float:
        """``trace((I - U U^T) D^-1 S D^-1 (I - U U^T))`` without cancellation: D = diag(scale).

        U (d, K) has orthonormal columns.
        """


class Summary(NamedTuple):
    """Sum of the weights, mean, and scatter as a matrix (d, d) or its diagonal (d,)."""

    weight: float
    mean: Array
    scatter: Array

    @classmethod
    def of(cls, rows: Array, whole: bool) -> Summary:
        """Summary of rows (n, d) float64, n >= 1, with the whole scatter matrix or its diagonal."""
        xp = ea.namespace(rows)
        mean = xp.mean(rows, axis=0)
        centred = rows - mean
        # Correct the mean by what the long sum has rounded off.
        rest = xp.mean(centred, axis=0)
        mean, centred = mean + rest, centred - rest
        return cls(float(len(rows)), mean, centred.mT @ centred if whole else np.einsum("nd,nd->d", centred, centred))

    def merged(self, other: Summary) -> Summary:
        """Summary of both sets of samples (Chan et al. 1979)::

        m = m_a + (n_b / n) (m_b - m_a),  S = S_a + S_b + (n_a n_b / n) (m_b - m_a)(m_b - m_a)^T
        """
        weight, shift = self.weight + other.weight, other.mean - self.mean
        between = shift**2 if self.scatter.ndim == 1 else shift[:, None] * shift
        mean = self.mean + (other.weight / weight) * shift
        return Summary(weight, mean, self.scatter + other.scatter + (self.weight * other.weight / weight) * between)

    def times(self, factor: float) -> Summary:
        return Summary(factor * self.weight, self.mean, factor * self.scatter)


@dataclass(frozen=True, eq=False)
class RunningScatter:
    """Moments with S as a (d, d) matrix; no rows are kept. They stay on their device."""

    summary: Summary
    kind: ClassVar[CovarianceKind] = CovarianceKind.FORMED

    @classmethod
    def empty(cls, n_features: int, place: Place = HOST) -> RunningScatter:
        mean, scatter = place.put(np.zeros(n_features)), place.put(np.zeros((n_features, n_features)))
        return cls(Summary(0.0, mean, scatter))

    @property
    def count(self) -> float:
        return self.summary.weight

    @property
    def mean(self) -> np.ndarray:
        return ea.to_numpy(self.summary.mean)

    @property
    def squares(self) -> np.ndarray:
        return ea.to_numpy(ea.namespace(self.summary.scatter).linalg.diagonal(self.summary.scatter))

    @property
    def n_bytes(self) -> int:
        return 8 * len(self.summary.mean) ** 2

    def place(self, values: np.ndarray) -> Array:
        return ea.like(values, self.summary.scatter)

    def ticked(self, rows: Array, forgetting: float) -> RunningScatter:
        return self.joined(Summary.of(rows, whole=True) if len(rows) else None, forgetting)

    def joined(self, new: Summary | None, forgetting: float) -> RunningScatter:
        """After a batch with these moments, or an empty batch."""
        before = self.summary if forgetting == 1 else self.summary.times(forgetting)
        return RunningScatter(before if new is None else before.merged(new))

    def product(self, X: Array) -> Array:
        return self.summary.scatter @ X

    def trace_beyond(self, U: np.ndarray, scale: np.ndarray | float) -> float:
        outside = np.linalg.qr(U, mode="complete")[0][:, U.shape[1] :]
        beyond = self.place((outside.T / scale).T)
        return float(ea.namespace(beyond).sum(beyond * self.product(beyond)))


@dataclass(frozen=True, eq=False)
class RunningCovariance:
    """C_i of the nodes in this process, about the pooled mean mu and after scaling by D = diag(scale)::

        C_i = (M / (N - 1)) D^-1 (S_i + n_i (m_i - mu)(m_i - mu)^T) D^-1

    Their average is the covariance of all samples.
    """

    nodes: Sequence[Running]
    centre: np.ndarray
    factor: float
    scale: np.ndarray | float = 1.0

    @property
    def kind(self) -> CovarianceKind:
        return self.nodes[0].kind

    @property
    def n_features(self) -> int:
        return len(self.centre)

    def place(self, values: np.ndarray) -> Array:
        return self.nodes[0].place(values)

    @property
    def rounding_size(self) -> float:
        """The largest ``sqrt(n_i tr C_i) |w m_i| / 4`` with weights w, since a mean is rounded at every merge.

        An error delta of a mean changes the scatter between batches and nodes, ``sum n shift shift^T``, by at most
        ``2 |delta| sqrt(n tr S)``.
        """
        sizes = [0.0]
        for node in self.nodes:
            shift, squares = node.mean - self.centre, node.squares / np.square(self.scale)
            trace = float(np.sum(squares) + node.count * np.sum(np.square(shift / self.scale)))
            sizes.append((node.count * trace) ** 0.5 * float(np.linalg.norm(node.mean / self.scale)))
        return self.factor * max(sizes) / 4

    def apply(self, X: Array) -> Array:
        products, scale = [], self.place(np.broadcast_to(self.scale, self.n_features)[:, np.newaxis])
        for node, block in zip(self.nodes, X, strict=True):
            scaled, shift = block / scale, self.place((node.mean - self.centre)[:, np.newaxis])
            whole = node.product(scaled) + (node.count * shift) @ (shift.mT @ scaled)
            products.append(self.factor * (whole / scale))
        return ea.namespace(X).stack(products)

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        traces = []
        for node in self.nodes:
            shift = (node.mean - self.centre) / self.scale
            outside = shift - U @ (U.T @ shift)
            traces.append(node.trace_beyond(U, self.scale) + node.count * float(outside @ outside))
        return self.factor * np.array(traces)
