"""Published methods of streaming PCA: one pass, an estimate per node, an average of gradients for every few samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from sklearn.decomposition import IncrementalPCA

from eigenmesh.arrays import normalised, orthonormal
from eigenmesh.estimator import StreamingPCA
from eigenmesh.networks import Network, Traffic


@dataclass(frozen=True, eq=False)
class SampleStream:
    """Samples (T, M, d), one per node at each tick, and a network; ``gap``: l_K - l_{K+1} or less, for the steps.

    truth: (d, K) leading eigenvectors of the distribution. start: (d, K) with orthonormal columns.
    """

    samples: np.ndarray
    network: Network
    truth: np.ndarray
    start: np.ndarray
    gap: float

    def parts(self, ticks: int) -> Iterator[np.ndarray]:
        """The samples in parts of ``ticks`` ticks each: (ticks, M, d)."""
        for first in range(0, len(self.samples), ticks):
            yield self.samples[first : first + ticks]


class OnePass(Protocol):
    """A method that sees every sample once."""

    def estimates(self, stream: SampleStream) -> Iterator[tuple[np.ndarray, Traffic]]:
        """Estimates (nodes, d, K) after every part of the stream, with the traffic so far."""
        ...

    @property
    def ticks(self) -> int:
        """Samples per node between two estimates."""
        ...


@dataclass(frozen=True)
class Stepped:
    """Step sizes ``g_t = c / (L + t)`` with ``c = c_0 / (2 gap)``, and one step per ``ticks`` samples of each node."""

    c_0: float
    offset: float
    ticks: int = 1

    def _steps(self, stream: SampleStream) -> Iterator[tuple[float, np.ndarray]]:
        for t, part in enumerate(stream.parts(self.ticks), start=1):
            yield self.c_0 / (2 * stream.gap) / (self.offset + t), part


@dataclass(frozen=True)
class DKrasulina(Stepped):
    """D-Krasulina and, with more than one sample per node and step, DM-Krasulina. K = 1.

    ::

        xi_i = mean over x of (x (x^T v) - ((x^T v)^2 / |v|^2) v),  v <- v + g_t mean over nodes of xi_i

    The averages are exact, so all nodes have the same v.

    References
    ----------
    H. Raja and W. U. Bajwa, "Distributed stochastic algorithms for high-rate streaming principal component analysis",
    Transactions on Machine Learning Research (2022), algorithms 1 and 2.
    """

    def estimates(self, stream: SampleStream) -> Iterator[tuple[np.ndarray, Traffic]]:
        v, network = stream.start[:, 0], stream.network
        for step, part in self._steps(stream):
            along = part @ v
            squares = np.mean(along**2, axis=0)[:, np.newaxis]
            xi = np.einsum("tm,tmd->md", along, part) / len(part) - squares / (v @ v) * v
            v = v + step * network.mean(xi)[0]
            yield normalised(v[np.newaxis, :, np.newaxis]), network.traffic


@dataclass(frozen=True)
class DistributedOja(Stepped):
    """Oja's method with averages of gradients by mixing; for K = 1 it is C-DIEGO.

    ::

        Z_i = mean over x of x (x^T Q_i),  Z <- W^m Z,  Q_i <- QR(Q_i + g_t Z_i)

    W are the weights of the network and m the ``mixes``; with None the averages are exact.

    References
    ----------
    M. Zulqarnain, A. Gang and W. U. Bajwa, "C-DIEGO: an algorithm with near-optimal sample complexity for distributed,
    streaming PCA", CISS (2023). For K > 1: E. Oja and J. Karhunen, "On stochastic approximation of the eigenvectors and
    eigenvalues of the expectation of a random matrix", Journal of Mathematical Analysis and Applications 106 (1985).
    """

    mixes: int | None = None

    def estimates(self, stream: SampleStream) -> Iterator[tuple[np.ndarray, Traffic]]:
        network = stream.network
        Q = np.repeat(stream.start[np.newaxis], stream.samples.shape[1], axis=0)
        for step, part in self._steps(stream):
            samples = part.transpose(1, 0, 2)
            Z = samples.mT @ (samples @ Q) / len(part)
            if self.mixes is None:
                Z = network.mean(Z)
            for _ in range(self.mixes or 0):
                Z = network.mix(Z)
            Q = orthonormal(Q + step * Z)
            yield Q, network.traffic


@dataclass(frozen=True)
class EveryBatch:
    """``StreamingPCA.partial_fit``: the components of all samples so far, certified after every batch."""

    ticks: int

    def estimates(self, stream: SampleStream) -> Iterator[tuple[np.ndarray, Traffic]]:
        k, weights = stream.truth.shape[1], stream.network.weights
        pca = StreamingPCA(k, topology=weights, averaging="tree", random_state=0)
        sent = Traffic()
        for part in stream.parts(self.ticks):
            pca.partial_fit(list(part.transpose(1, 0, 2)))
            sent = sent + pca.traffic_
            yield pca.node_components_.mT, sent


@dataclass(frozen=True)
class InOnePlace:
    """scikit-learn's ``IncrementalPCA`` at one node; all others send it their samples, one message per batch."""

    ticks: int

    def estimates(self, stream: SampleStream) -> Iterator[tuple[np.ndarray, Traffic]]:
        theirs, sent = IncrementalPCA(stream.truth.shape[1]), Traffic()
        for part in stream.parts(self.ticks):
            senders = part.shape[1] - 1
            theirs.partial_fit(part.reshape(-1, part.shape[2]))
            sent = sent + Traffic(1, senders, senders, part[:, 1:].nbytes)
            yield theirs.components_.T[np.newaxis], sent
