"""What a node of a stream keeps of the samples that it has seen: their number, mean and scatter, merged exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.data._choice import CovarianceKind


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
        """Memory that is taken."""

    def ticked(self, rows: np.ndarray, forgetting: float) -> Self:
        """After one tick of the network: what there was counts ``forgetting`` times as much, new rows (n, d) once."""

    def product(self, X: np.ndarray) -> np.ndarray:
        """S X: (d, k) -> (d, k)."""

    def trace_beyond(self, U: np.ndarray, scale: np.ndarray | float) -> float:
        """``trace((I - U U^T) D^-1 S D^-1 (I - U U^T))`` without cancellation: D = diag(scale), U^T U = I."""


class Summary(NamedTuple):
    """Sum of the weights, mean and squared deviations, the latter as a matrix (d, d) or its diagonal (d,)."""

    weight: float
    mean: np.ndarray
    scatter: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, whole: bool) -> Summary:
        """Of rows (n, d), n >= 1; the whole matrix or its diagonal."""
        mean = rows.mean(axis=0, dtype=np.float64)
        centred = rows - mean
        return cls(float(len(rows)), mean, centred.T @ centred if whole else np.einsum("nd,nd->d", centred, centred))

    def merged(self, other: Summary) -> Summary:
        """Of both together (Chan et al. 1979)::

        m = m_a + (n_b / n) (m_b - m_a),  S = S_a + S_b + (n_a n_b / n) (m_b - m_a)(m_b - m_a)^T
        """
        weight, shift = self.weight + other.weight, other.mean - self.mean
        between = shift**2 if self.scatter.ndim == 1 else np.outer(shift, shift)
        mean = self.mean + (other.weight / weight) * shift
        return Summary(weight, mean, self.scatter + other.scatter + (self.weight * other.weight / weight) * between)

    def times(self, factor: float) -> Summary:
        return Summary(factor * self.weight, self.mean, factor * self.scatter)


@dataclass(frozen=True, eq=False)
class RunningScatter:
    """Moments alone, with S as a (d, d) matrix: no row is kept."""

    summary: Summary
    kind: ClassVar[CovarianceKind] = CovarianceKind.FORMED

    @classmethod
    def empty(cls, n_features: int) -> RunningScatter:
        return cls(Summary(0.0, np.zeros(n_features), np.zeros((n_features, n_features))))

    @property
    def count(self) -> float:
        return self.summary.weight

    @property
    def mean(self) -> np.ndarray:
        return self.summary.mean

    @property
    def squares(self) -> np.ndarray:
        return np.diagonal(self.summary.scatter)

    @property
    def n_bytes(self) -> int:
        return int(self.summary.scatter.nbytes)

    def ticked(self, rows: np.ndarray, forgetting: float) -> RunningScatter:
        before = self.summary if forgetting == 1 else self.summary.times(forgetting)
        return RunningScatter(before if not len(rows) else before.merged(Summary.of(rows, whole=True)))

    def product(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.summary.scatter @ X)

    def trace_beyond(self, U: np.ndarray, scale: np.ndarray | float) -> float:
        beyond = (np.linalg.qr(U, mode="complete")[0][:, U.shape[1] :].T / scale).T
        return float(np.vdot(beyond, self.summary.scatter @ beyond))


@dataclass(frozen=True, eq=False)
class RunningCovariance:
    """C_i of the nodes held here, about the pooled mean mu and after any scaling D = diag(scale)::

        C_i = (M / (N - 1)) D^-1 (S_i + n_i (m_i - mu)(m_i - mu)^T) D^-1

    so that their average is the covariance of all samples, as for any other data.
    """

    nodes: Sequence[Running]
    centre: np.ndarray
    factor: float
    scale: np.ndarray | float = 1.0
    rounding_size: ClassVar[float] = 0.0

    @property
    def kind(self) -> CovarianceKind:
        return self.nodes[0].kind

    @property
    def n_features(self) -> int:
        return len(self.centre)

    def place(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)

    def apply(self, X: Array) -> np.ndarray:
        products = []
        for node, block in zip(self.nodes, X, strict=True):
            scaled, shift = (block.T / self.scale).T, node.mean - self.centre
            whole = node.product(scaled) + np.outer(node.count * shift, shift @ scaled)
            products.append(self.factor * (whole.T / self.scale).T)
        return np.stack(products)

    def traces_beyond(self, U: np.ndarray) -> np.ndarray:
        traces = []
        for node in self.nodes:
            shift = (node.mean - self.centre) / self.scale
            outside = shift - U @ (U.T @ shift)
            traces.append(node.trace_beyond(U, self.scale) + node.count * float(outside @ outside))
        return self.factor * np.array(traces)
