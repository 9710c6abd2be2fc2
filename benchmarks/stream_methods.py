"""One pass over a stream of samples, compared with published methods: ``python benchmarks/stream_methods.py``.

Prints the error and the traffic of each method at the end of three streams, medians of ten trials, and with ``--plot
FILE`` draws the error against samples and against messages. ``--quick`` takes a tenth of the samples.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from rich.console import Console
from sklearn.decomposition import IncrementalPCA

from eigenmesh import graphs
from eigenmesh.arrays import normalised, orthonormal
from eigenmesh.averaging import Tree
from eigenmesh.data.datasets import random_axes
from eigenmesh.estimator import StreamingPCA
from eigenmesh.metrics import mean_error
from eigenmesh.networks import Network, Stacked, Traffic
from eigenmesh.report import save_picture
from eigenmesh.report.pictures import draw_frame, new_figure, set_heading
from eigenmesh.report.tables import new_table
from eigenmesh.solvers import random_basis
from eigenmesh.words import readable_bytes

# Published methods of streaming PCA: one pass, an estimate per node, an average of gradients for every few samples.


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

    W are the weights of the network and m the ``mixes``.

    References
    ----------
    M. Zulqarnain, A. Gang and W. U. Bajwa, "C-DIEGO: an algorithm with near-optimal sample complexity for distributed,
    streaming PCA", CISS (2023). For K > 1: E. Oja and J. Karhunen, "On stochastic approximation of the eigenvectors and
    eigenvalues of the expectation of a random matrix", Journal of Mathematical Analysis and Applications 106 (1985).
    """

    mixes: int = 10

    def estimates(self, stream: SampleStream) -> Iterator[tuple[np.ndarray, Traffic]]:
        network = stream.network
        Q = np.repeat(stream.start[np.newaxis], stream.samples.shape[1], axis=0)
        for step, part in self._steps(stream):
            samples = part.transpose(1, 0, 2)
            Z = samples.mT @ (samples @ Q) / len(part)
            for _ in range(self.mixes):
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


# Points of a curve; not every estimate is measured, because there may be one per sample.
POINTS = 150
# Step sizes of the published methods: c_0 and L of c_0 / (2 gap) / (L + t). The best pair is shown.
GRID = tuple((c_0, offset) for c_0 in (2.0, 4.0) for offset in (50.0, 500.0))
OUR_STREAM = "partial_fit"
QUICK_SAMPLES = 10_000
STREAM_UNITS = {"samples": "samples at all nodes so far", "messages": "messages over all links"}


@dataclass(frozen=True)
class StreamMethod:
    """A method with its settings, under the name that tables and legends use."""

    label: str
    method: OnePass

    @property
    def words(self) -> str:
        return ", ".join(f"{name}={value:g}" for name, value in vars(self.method).items())


@dataclass(frozen=True)
class StreamPanel:
    """Gaussian samples, one per node at each tick, on a random graph; eigenvalue K + 1 is gap times eigenvalue K."""

    title: str
    gap: float
    n_components: int
    methods: tuple[StreamMethod, ...]
    n_samples: int = 100_000
    n_nodes: int = 20
    d: int = 20

    def drawn(self, seed: int, trial: int) -> SampleStream:
        """Samples, network and start of one trial."""
        data_seed, graph_seed, start_seed = map(int, np.random.SeedSequence(seed, spawn_key=(trial,)).generate_state(3))
        leading, rng = np.linspace(1.0, 0.8, k := self.n_components), np.random.default_rng(data_seed)
        spectrum = np.concatenate([leading, np.linspace(self.gap * leading[-1], 0.1, self.d - k)])
        axes, ticks = random_axes(self.d, rng), self.n_samples // self.n_nodes
        samples = (rng.standard_normal((ticks, self.n_nodes, self.d)) * np.sqrt(spectrum)) @ axes.T
        weights = graphs.metropolis(graphs.topology("erdos_renyi", self.n_nodes, seed=graph_seed))
        gap = float(np.min(-np.diff(spectrum[: k + 1])))
        return SampleStream(samples, Stacked(weights, Tree()), axes[:, :k], random_basis(self.d, k, start_seed), gap)


class StreamCurve(NamedTuple):
    """Samples seen and messages and bytes sent by all nodes so far, and the mean sin^2 to the truth: all (n,)."""

    samples: np.ndarray
    messages: np.ndarray
    bytes: np.ndarray
    error: np.ndarray


class StreamRow(NamedTuple):
    """A method and its curves, one per trial."""

    method: StreamMethod
    curves: Sequence[StreamCurve]

    def at_end(self, what: str) -> float:
        """Median over the trials of the last value: of "error", "messages" or "bytes"."""
        return float(np.median([getattr(curve, what)[-1] for curve in self.curves]))


def streaming_panels(n_samples: int | None = None) -> tuple[StreamPanel, ...]:
    """K = 1 with a wide and a narrow gap, and K = 5."""
    one = (
        *_grid("D-Krasulina", DKrasulina(2, 50)),
        *_grid("DM-Krasulina", DKrasulina(2, 50, ticks=10)),
        *_grid("C-DIEGO", DistributedOja(2, 50)),
    )
    several = _grid("distributed Oja", DistributedOja(2, 50))
    whole = (StreamMethod("IncrementalPCA", InOnePlace(ticks=250)), StreamMethod(OUR_STREAM, EveryBatch(ticks=250)))
    panels = (
        StreamPanel("K = 1, gap 0.8", 0.8, 1, (*one, *whole)),
        StreamPanel("K = 1, gap 0.97", 0.97, 1, (*one, *whole)),
        StreamPanel("K = 5, gap 0.8", 0.8, 5, (*several, *whole)),
    )
    return panels if n_samples is None else tuple(replace(panel, n_samples=n_samples) for panel in panels)


def _grid(label: str, method: Any) -> list[StreamMethod]:
    # With more samples per step there are fewer steps, so the step size has to fall sooner.
    return [StreamMethod(label, replace(method, c_0=c_0, offset=offset / method.ticks)) for c_0, offset in GRID]


def follow_stream(method: StreamMethod, panel: StreamPanel, seed: int, trial: int) -> StreamCurve:
    """One pass of a method over the samples of a trial."""
    stream = panel.drawn(seed, trial)
    n_parts = -(-len(stream.samples) // method.method.ticks)
    measured = set(np.unique(np.geomspace(1, n_parts, min(POINTS, n_parts)).astype(int)).tolist())
    points = []
    for part, (estimate, sent) in enumerate(method.method.estimates(stream), start=1):
        if part in measured:
            seen = min(part * method.method.ticks, len(stream.samples)) * panel.n_nodes
            points.append((seen, sent.messages, sent.bytes, mean_error(estimate, stream.truth)))
    return StreamCurve(*np.array(points).T)


def streaming_rows(panel: StreamPanel, trials: int, seed: int) -> list[StreamRow]:
    """All methods on all trials, each with the setting of its grid that ends with the smallest median error."""
    rows = [
        StreamRow(method, [follow_stream(method, panel, seed, trial) for trial in range(trials)])
        for method in panel.methods
    ]
    by_label = groupby(rows, key=lambda row: row.method.label)
    return [min(same, key=lambda row: row.at_end("error")) for _, same in by_label]


HEADINGS = ("method", "settings", "error", "messages", "payload", "x error", "x messages")
# No error of a picture is smaller: streams are finite samples of a distribution.
LEAST = 3e-4
LOOKS = ("-", "--", "-.", ":", (0, (8, 3)), (0, (3, 1, 1, 1)))


def print_table(console: Console, panel: StreamPanel, rows: Sequence[StreamRow]) -> None:
    """Medians at the end of a stream, and their ratios to those of ``partial_fit``."""
    (ours,) = (row for row in rows if row.method.label == OUR_STREAM)
    cells = []
    for row in rows:
        error, messages, sent = (row.at_end(what) for what in ("error", "messages", "bytes"))
        ratios = [f"{error / ours.at_end('error'):.3g}", f"{messages / ours.at_end('messages'):.3g}"]
        numbers = [f"{error:.2e}", f"{messages:,.0f}", readable_bytes(sent), *ratios]
        cells.append([row.method.label, row.method.words, *numbers])
    console.print(new_table(*HEADINGS, left=2, rows=cells, title=panel.title))


def draw(path: Path, results: Sequence[tuple[StreamPanel, Sequence[StreamRow]]]) -> None:
    """For each stream, the error of the first trial against samples and, next to it, against messages."""
    figure = new_figure(10, 3.7 * len(results) + 1.2)
    for (panel, rows), pair in zip(results, np.atleast_2d(figure.subplots(len(results), 2)), strict=True):
        for axes, unit in zip(pair, STREAM_UNITS, strict=True):
            for row, look in zip(rows, LOOKS, strict=False):
                axes.plot(getattr(row.curves[0], unit), row.curves[0].error, linestyle=look, label=row.method.label)
            axes.set(xscale="log", yscale="log", ylim=(LEAST, 2))
            draw_frame(axes, f"{STREAM_UNITS[unit]} (log scale)", "error: mean of sin²(angle)")
            set_heading(axes, panel.title, f"{panel.n_nodes} nodes, {panel.n_samples:,} samples of {panel.d} features")
        pair[0].legend(frameon=False, loc="lower left")
    save_picture(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plot", type=Path)
    wanted = parser.parse_args()
    console, results = Console(width=120), []
    for panel in streaming_panels(QUICK_SAMPLES if wanted.quick else None):
        results.append((panel, streaming_rows(panel, wanted.trials, wanted.seed)))
        print_table(console, *results[-1])
    if wanted.plot:
        draw(wanted.plot, results)


if __name__ == "__main__":
    main()
