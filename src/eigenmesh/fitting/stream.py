"""``Data`` for samples that arrive in batches, from what the nodes keep of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from eigenmesh import data as samples
from eigenmesh.arrays import everywhere, to_numpy
from eigenmesh.data import Choice, Moments, Running, RunningCovariance
from eigenmesh.errors import InputError, TooFewSamplesError
from eigenmesh.events import BatchChecked
from eigenmesh.fitting.matching import described
from eigenmesh.fitting.monitor import NOTHING, Monitor
from eigenmesh.fitting.node_data import BatchSums, Data, DataFacts, Measurement, Size
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.iteration import Result
from eigenmesh.masking import MIN_SITES
from eigenmesh.networks import Network
from eigenmesh.settings import Request
from eigenmesh.solvers import Known, Solver
from eigenmesh.transports import Transport

# With masks, at least three nodes must have this many new samples, or the batch has to wait.
LEAST_NEW = 10


class CheckedBatch(NamedTuple):
    """The verdict on a batch, and the mean squared residual of each feature: (d,)."""

    event: BatchChecked
    residuals: np.ndarray


@dataclass(frozen=True, eq=False)
class StreamData(Data):
    """What the nodes in this process keep of a stream, their network, and the results of the last batch.

    Attributes
    ----------
    nodes : sequence of Running
        All M nodes in a simulation, one node with a transport.
    labels : tuple
        Labels of all nodes, by which users give samples to them.
    device : str or None
        Device of the moments; by name, because a stream can be pickled and a library cannot.
    last : Moments or None
        Pooled moments after the last batch.
    space : array of shape (d, w) or None
        Orthonormal directions from the last fit, the same at all nodes.
    monitor : Monitor or None
        Monitor after the last fit.
    checked : CheckedBatch or None
        What it has found in the last batch.
    batch_sums : array of shape (nodes, width of the monitor) or None
        Its sums over the new rows of each node in this process; sent with the moments.
    n_new : array of shape (nodes,)
        Rows of the nodes in this process that were in no fit yet.
    n_seen, n_batches : int
        Rows in this process and batches so far. The number of a batch, from 0, is the same at all nodes.
    batch : str or None
        Id of the batch, the same at all nodes.
    ids : frozenset
        Ids of the batches so far, if they had any.
    settings : mapping
        Settings of the stream that decide which samples count, and for how much. They must be the same at all nodes.
    """

    nodes: Sequence[Running]
    weights: Weights | NetworkSequence
    transport: Transport | None = None
    labels: tuple[Any, ...] = (0,)
    device: str | None = None
    last: Moments | None = None
    space: np.ndarray | None = None
    monitor: Monitor | None = None
    checked: CheckedBatch | None = None
    batch_sums: np.ndarray | None = None
    n_new: np.ndarray = field(default_factory=lambda: np.zeros(1))
    n_seen: int = 0
    n_batches: int = 0
    batch: str | None = None
    ids: frozenset[Any] = frozenset()
    settings: Mapping[str, Any] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    node_names: tuple[str, ...] | None = None

    @property
    def n_features(self) -> int:
        return len(self.nodes[0].mean)

    def column_label(self, column: int) -> str:
        return samples.column_label(self.feature_names, column)

    def node_label(self, position: int) -> str:
        return "this node" if self.transport is not None else f"node {position}"

    @property
    def facts(self) -> DataFacts:
        names = self.feature_names, self.node_names
        return DataFacts.of_rows(self.weights.n_nodes, self.n_features, self.transport, *names)

    def at_node(self, transport: Transport) -> StreamData:
        """The part of the data at one of the nodes."""
        rank = transport.rank
        sums = None if self.batch_sums is None else self.batch_sums[rank : rank + 1]
        n_new = self.n_new[rank : rank + 1]
        return replace(self, nodes=[self.nodes[rank]], batch_sums=sums, n_new=n_new, transport=transport)

    def counted(self, nodes: Sequence[Running], sums: np.ndarray | None, n_rows: np.ndarray) -> StreamData:
        """The stream with a batch that is in no fit yet.

        Parameters
        ----------
        nodes : sequence of Running
            What the nodes keep with it.
        sums : array of shape (nodes, width of the monitor) or None
            Sums of the monitor over its rows.
        n_rows : array of shape (nodes,)
            Its rows.
        """
        # Earlier batches may have waited for more samples, so their sums are added.
        sums = sums if self.batch_sums is None or sums is None else self.batch_sums + sums
        n_new, n_seen = self.n_new + n_rows, self.n_seen + int(n_rows.sum())
        return replace(self, nodes=nodes, batch_sums=sums, n_new=n_new, n_seen=n_seen)

    def after(self, result: Result, moments: Moments, sums: BatchSums | None) -> StreamData:
        """The stream after a fit of all its samples, with the monitor for the next batch and its verdict on this one.

        Parameters
        ----------
        result, moments : Result, Moments
            Those of the fit.
        sums : BatchSums or None
            Sums over the batch; None for the first one.
        """
        quiet, checked = NOTHING if self.monitor is None else self.monitor.quiet, None
        if self.monitor is not None and sums is not None:
            new, residuals = self.monitor.read(sums.sums)
            lost = 1 - sums.explained / float(np.sum(result.explained_variance[: len(self.monitor.variances)]))
            checked = CheckedBatch(self.monitor.checked(self.n_batches, new, lost), residuals)
            quiet = self.monitor.after(new, checked.event)
        following = Monitor(result.components, result.explained_variance, moments, quiet)
        known: dict[str, Any] = {"last": moments, "space": result.space, "monitor": following, "checked": checked}
        return replace(self, **known, batch_sums=None, n_new=np.zeros_like(self.n_new))

    @property
    def settings_of_data(self) -> dict[str, Any]:
        stream = {"batch_number": self.n_batches, "batch": self.batch, **self.settings}
        return {"stream": described(stream)}

    def check(self, request: Request) -> None:
        """Raise for requests that need all samples at once."""
        if request.missing != "error":
            raise InputError(
                'missing="mean" needs all samples at once, which a stream does not have; fill in missing entries first.'
            )

    def count(self, masked: bool) -> tuple[Size, Network]:
        """N over all nodes, by one average of one number.

        With masks, the first sum counts the nodes with enough new samples, so that the change between two batches
        always comes from three nodes or more.
        """
        network = self.counting_network(masked)
        if masked:
            ready = round(self.summed(network, self.n_new >= LEAST_NEW))
            if ready < MIN_SITES:
                what = f"{ready} nodes have {LEAST_NEW} new samples or more"
                raise TooFewSamplesError(f"{what}; masked, at least {MIN_SITES} must, or a sum would show one's own.")
        # With forgetting, weights do not sum to a whole number.
        return Size(round(self.summed(network, [node.count for node in self.nodes])), self.n_features), network

    def choose_covariance(
        self, request: Request, solver: Solver, n_components: int, network: Network | None = None
    ) -> Choice:
        return Choice(self.nodes[0].kind, sum(node.n_bytes for node in self.nodes), "kept of the stream", asked=True)

    def measure(self, network: Network, choice: Choice, request: Request) -> Measurement:
        """One average, which also gives C times the space of the last fit; one more for the first batch.

        With c the last pooled mean, a node sends ``[(S_i + n_i (m_i - c)(m_i - c)^T) X, n_i (m_i - c)]``, the squared
        deviations from c and n_i. From ``s = sum n_i (m_i - c)`` follow the mean ``c + s / N`` and

            C X = (sum_i (S_i + n_i (m_i - c)(m_i - c)^T) X - s (s^T X) / N) / (N - 1).
        """
        M, d, last = self.weights.n_nodes, self.n_features, self.last
        centre = self._first_centre(network) if last is None else last.mean
        before = 1.0 if last is None or last.scale is None else last.scale
        basis = np.zeros((d, 0)) if self.space is None else self.space
        X = (basis.T / before).T
        products, own = self._products_and_sums(X, centre)
        sent = np.hstack([products.reshape(len(products), -1), own])
        pooled = np.asarray(network.common_mean(sent)[0])
        parts = np.cumsum([basis.size, d, d, own.shape[1] - 2 * d - 1])
        product, s, squares, summed, (count,) = np.split(M * pooled, parts)
        if count < 2:
            raise TooFewSamplesError(f"n_samples = {count:g} so far over all nodes; a covariance needs at least 2.")
        # With forgetting, weights do not sum to a whole number; the divisor is their sum minus one.
        n_samples = max(2, int(np.rint(count)))
        share = (n_samples - 1) / (count - 1)
        about_centre = Moments(n_samples, centre, share * squares)
        how: Any = {"scale": request.scale, "resolution": network.resolution}
        moments = samples.moments_about(about_centre, share * s, share * count, self, **how)
        after = 1.0 if moments.scale is None else moments.scale
        factor, known, checked = M / (count - 1), None, None
        if self.space is not None:
            if network.masking is not None:
                network.masking.columns += basis.shape[1]
            image = (product.reshape(d, -1) - np.outer(s, s @ X) / count) / (count - 1)
            known = _known((X.T * after).T, (image.T / after).T, factor * products, after)
            checked = self._checked(summed, known)
            # If the rounding to integers exceeds that of doubles, the products must be computed again.
            rounded = network.resolution * np.linalg.norm(np.broadcast_to(1 / np.asarray(after), d)) / (count - 1)
            known = known if rounded <= np.finfo(np.float64).eps * moments.total_variance else None
        rest = 0.0 if moments.rest is None else moments.rest
        covariance = RunningCovariance(self.nodes, moments.mean, factor, after, rest)
        return Measurement(moments, covariance, known, checked)

    def _products_and_sums(self, X: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What nodes in this process send: products (nodes, d, w), and deviations, squares and counts (nodes, n)."""
        about = RunningCovariance(self.nodes, centre, 1.0)
        products = to_numpy(about.apply(everywhere(about.place(X[np.newaxis]), len(self.nodes))))
        shifts = np.stack([node.count * node.mean_from(centre) for node in self.nodes])
        squares = np.stack([node.squares + node.count * node.mean_from(centre) ** 2 for node in self.nodes])
        counts = np.array([[node.count] for node in self.nodes])
        batch_sums = np.zeros((len(self.nodes), 0)) if self.batch_sums is None else self.batch_sums
        return products, np.hstack([shifts, squares, batch_sums, counts])

    def _checked(self, summed: np.ndarray, known: Known) -> BatchSums | None:
        """The sums over the batch, and the variance that the last components explain now; None without a monitor."""
        if self.monitor is None:
            return None
        inside = known.basis.T @ self.monitor.components.T
        return BatchSums(summed, float(np.vdot(inside, known.basis.T @ known.image @ inside)))

    def _first_centre(self, network: Network) -> np.ndarray:
        """The pooled mean (d,): sums about a distant centre would lose digits."""
        sent = np.stack([np.append(node.count * node.mean, node.count) for node in self.nodes])
        *total, count = np.asarray(network.common_mean(sent)[0])
        if count <= 0:
            raise TooFewSamplesError("n_samples = 0 so far over all nodes; a covariance needs at least 2.")
        return np.asarray(np.asarray(total) / count)


def _known(basis: np.ndarray, image: np.ndarray, products: np.ndarray, scale: np.ndarray | float) -> Known:
    """Orthonormal columns and their image, from a basis and its image (d, w) and products at nodes (nodes, d, w).

    After a change of scale the columns of the last batch are not exactly orthogonal.
    """
    Q, R = np.linalg.qr(basis)
    norms = np.linalg.norm(products / np.reshape(scale, (-1, 1)), axis=1, keepdims=True)
    return Known(Q, np.linalg.solve(R.T, image.T).T, norms)
