"""``partial_fit``: batches are read and merged into what the nodes keep, and the fit is that of any other data."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from eigenmesh.data import MEMORY_BYTES, split_by_name
from eigenmesh.data._running import Running, RunningScatter
from eigenmesh.data._running_rows import RunningRows
from eigenmesh.data._summaries import first_not_finite
from eigenmesh.data._table_options import column_label
from eigenmesh.errors import DataError, DataWarning, InputError, TooFewSamplesError
from eigenmesh.estimator._inputs import connect, event_log, is_parts
from eigenmesh.estimator._parameters import request_of
from eigenmesh.events import BatchChecked
from eigenmesh.fitting import Costs, Fit, count_nodes, fit, fit_at_every_node, parse_weights, prepare
from eigenmesh.fitting._monitor import Monitor, Sums, renewed
from eigenmesh.fitting._stream import StreamData
from eigenmesh.transports import Transport

# Directions that are kept for the next batch beside the components: the more, the nearer it begins to its answer.
KEPT_BEYOND = 50


class Streaming:
    """``partial_fit`` of an estimator; it has ``_set_fitted``, ``_warn_unless_converged`` and the parameters."""

    averages_per_batch: int | None
    on_alarm: Callable[[BatchChecked], Any] | None
    _set_fitted: Callable[[Fit], None]
    _warn_unless_converged: Callable[[], None]

    def partial_fit(self, X: Any, y: Any = None, nodes: Any = None, *, batch: Any = None) -> Self:
        """Add a batch to the samples seen so far, and find the principal components of all of them.

        The answer and its certificate are those of ``fit`` on everything seen, with less to send: one average brings
        the moments and begins where the last batch ended. One call is one tick of the network, also for nodes without
        new samples. Nothing of a batch is counted if it cannot be worked with.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n, d)
            The new samples; or a list of M of these, some of which may have no rows. With a transport: the new samples
            of this node, or none.
        y : array of shape (n,) or None
            Labels, used only by the splits "label" and "dirichlet:...".
        nodes : array of shape (n,) or None
            The node that has each sample: its number if ``n_nodes`` is set, otherwise a name that the first batch had.
        batch : hashable or None
            Id of the batch; one that was counted before is refused.
        """
        stream, found = take_batch(self, X, y, nodes, batch)
        self._stream, self.n_samples_seen_ = stream, stream.n_seen
        checked = stream.checked
        self.batch_ = None if checked is None else checked.event
        self.batch_residuals_ = None if checked is None else checked.residuals
        if self.on_alarm is not None and checked is not None and checked.event.alarm:
            self.on_alarm(checked.event)
        if isinstance(found, TooFewSamplesError):
            message = f"nothing is fitted yet: {found} The {stream.n_seen} samples seen so far are kept."
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
            return self
        self._set_fitted(found)
        if self.averages_per_batch is None:
            self._warn_unless_converged()
        return self

    @property
    def _quiet_spe(self) -> tuple[float, float] | None:
        """Mean and variance of SPE in the quiet batches of a stream."""
        stream = getattr(self, "_stream", None)
        monitor = None if stream is None else stream.data.monitor
        return None if monitor is None else monitor.quiet_spe

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there are components; samples may have been seen before."""
        return hasattr(self, "components_")


@dataclass(frozen=True, eq=False)
class Stream:
    """What an estimator keeps between two batches.

    labels: what ``nodes`` calls the nodes. dtype: of the batches. ids: of those that were counted, where they had any.
    """

    data: StreamData
    dtype: np.dtype
    labels: tuple[Any, ...]
    n_seen: int = 0
    n_batches: int = 0
    ids: frozenset[Any] = frozenset()
    checked: CheckedBatch | None = None


class CheckedBatch(NamedTuple):
    """What was told of a batch, and the mean squared residual of each feature: (d,)."""

    event: BatchChecked
    residuals: np.ndarray


def take_batch(pca: Any, X: Any, y: Any, nodes: Any, batch: Any) -> tuple[Stream, Fit | TooFewSamplesError]:
    """The stream after one more batch, and the fit to all of it, or why it has to wait."""
    request, stream = request_of(pca), getattr(pca, "_stream", None)
    if stream is None and hasattr(pca, "_fitted"):
        told = "fit keeps nothing that a batch could be added to, so the stream begins with this batch."
        warnings.warn(f"{told} Use partial_fit from the first batch on.", DataWarning, stacklevel=3)
    if stream is not None and batch is not None and batch in stream.ids:
        raise DataError(f"batch {batch!r} was counted before; give every batch an id of its own.")
    with ExitStack() as stack:
        transport, run_nodes = connect(pca, X, stack)
        parts, stream = _read(pca, X, y, nodes, request.seed or 0, transport, stream)
        rows = [np.asarray(part, dtype=np.float64) for part in parts]
        monitor = stream.data.monitor
        sums = None if monitor is None else np.stack([monitor.node_sums(own) for own in rows])
        kept = [node.ticked(own, pca.forgetting) for node, own in zip(stream.data.nodes, rows, strict=True)]
        data = replace(stream.data, nodes=kept, transport=transport, batch_sums=sums)
        if request.seed is not None:
            # Directions that an earlier batch has looked along tell nothing new.
            state = np.random.SeedSequence([request.seed, stream.n_batches]).generate_state(1, np.uint64)
            request = replace(request, seed=int(state[0]))
        budget = pca.averages_per_batch
        settings: dict[str, Any] = {"max_iterations": None if budget is None else budget - 1}
        settings["keep"] = min(data.n_features, KEPT_BEYOND + _count(pca.n_components))
        found: Fit | TooFewSamplesError
        checked, events = None, event_log(pca, stack)
        try:
            if run_nodes is not None:
                found = fit_at_every_node(run_nodes, request, data, events, **settings)
            else:
                found = fit(prepare(request, data), events=events, **settings)
            monitor, checked = _checked_batch(monitor, found, stream.n_batches)
            data = replace(data, last=found.moments, space=found.result.space, monitor=monitor)
            if checked is not None:
                events.emit(checked.event)
        except TooFewSamplesError as error:
            found = error
    seen = stream.n_seen + sum(part.shape[0] for part in parts)
    ids = stream.ids if batch is None else stream.ids | {batch}
    data = replace(data, transport=None, batch_sums=None)
    settings = {"n_seen": seen, "n_batches": stream.n_batches + 1, "ids": ids, "checked": checked}
    return replace(stream, data=data, **settings), found


def _checked_batch(monitor: Monitor | None, found: Fit, batch: int) -> tuple[Monitor, CheckedBatch | None]:
    """The monitor for the next batch, and what the last one says of this, if there was one."""
    result = found.result
    following = renewed(monitor, result.components, result.explained_variance, found.moments)
    if monitor is None or found.checked is None:
        return following, None
    # Counts are whole, but an average rounds.
    new = Sums(*np.rint(found.checked.sums[:3]).tolist(), *found.checked.sums[3:5].tolist())
    lost = 1 - found.checked.explained / float(np.sum(result.explained_variance[: len(monitor.variances)]))
    event = monitor.checked(batch, new, lost)
    residuals = found.checked.sums[5:] / max(new.samples, 1)
    return replace(following, quiet=monitor.after(new, event)), CheckedBatch(event, residuals)


def _count(n_components: Any) -> int:
    return n_components if isinstance(n_components, int) else 0


def _read(
    pca: Any, X: Any, y: Any, nodes: Any, seed: int, transport: Transport | None, stream: Stream | None
) -> tuple[list[np.ndarray], Stream]:
    """The rows of each node held here, checked, and the stream that they belong to."""
    if transport is not None and (y is not None or nodes is not None or is_parts(X)):
        raise InputError("with a transport this process is one node: give its own samples, and neither y nor nodes.")
    if is_parts(X) and nodes is not None:
        raise InputError("nodes= goes with one array; the batch is already in parts.")
    matrices = [_checked(pca, part, stream is None and not k) for k, part in enumerate(X if is_parts(X) else [X])]
    labels: Sequence[Any] = range(transport.size) if transport is not None else ()
    owners = np.zeros(matrices[0].shape[0], dtype=int)
    if transport is None and is_parts(X):
        labels = range(len(matrices))
    elif transport is None:
        labels, owners = _owners(pca, matrices[0], y, nodes, seed, stream)
    if stream is None:
        stream = _begun(pca, matrices[0], tuple(labels), seed, transport)
    for number, rows in enumerate(matrices):
        _require_alike(pca, rows, stream, f"part {number} of the batch" if is_parts(X) else "the batch")
    if len(labels) != len(stream.labels):
        raise DataError(f"the batch is for {len(labels)} nodes, but the stream has {len(stream.labels)}.")
    if transport is None and not is_parts(X):
        matrices = [matrices[0][owners == node] for node in range(len(labels))]
    return matrices, stream


def _checked(pca: Any, X: Any, first: bool) -> np.ndarray:
    """A dense matrix (n, d) of float32 or float64 whose columns are those of the stream; n may be 0."""
    checks: Any = {"ensure_min_samples": 0, "ensure_all_finite": False, "accept_sparse": "csr"}
    matrix = validate_data(pca, X, reset=first, dtype=[np.float64, np.float32], **checks)
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix)


def _require_alike(pca: Any, rows: np.ndarray, stream: Stream, where: str) -> None:
    """Raise for another dtype than that of the stream, and for entries that are missing."""
    if rows.dtype != stream.dtype and rows.shape[0]:
        raise DataError(f"{where} is {rows.dtype}, but the stream has {stream.dtype}; convert it.")
    if not np.isfinite(rows).all():
        row, column, value = first_not_finite(rows)
        at = f"{where}: row {row}, {column_label(getattr(pca, 'feature_names_in_', None), column)}"
        raise DataError(f"{at} is {value}; drop the row. Nothing of the batch was counted.")


def _owners(
    pca: Any, X: np.ndarray, y: Any, nodes: Any, seed: int, stream: Stream | None
) -> tuple[Sequence[Any], np.ndarray]:
    """What the nodes are called, and the number of the node that has each row: (n,)."""
    fixed = pca.n_nodes is not None or not isinstance(pca.topology, str)
    if nodes is None:
        n_nodes = count_nodes(pca.topology, pca.n_nodes, X.shape[0]) if stream is None else len(stream.labels)
        return range(n_nodes), _split(pca, X.shape[0], n_nodes, y, seed, 0 if stream is None else stream.n_batches)
    values = np.asarray(nodes)
    if values.shape != (X.shape[0],):
        raise DataError(f"nodes must have one entry for each of {X.shape[0]} samples; got shape {values.shape}.")
    if stream is not None:
        labels: Sequence[Any] = stream.labels
    elif fixed and values.dtype.kind in "iu":
        labels = range(count_nodes(pca.topology, pca.n_nodes, X.shape[0]))
    else:
        labels = np.unique(values).tolist()
    numbers = {label: number for number, label in enumerate(labels)}
    unknown = [value for value in values.tolist() if value not in numbers]
    if unknown:
        known = f"{', '.join(map(str, labels[:5]))}{', ..' if len(labels) > 5 else ''}"
        raise DataError(
            f"node {unknown[0]!r} is not one of the stream's ({known}); set n_nodes before the first batch."
        )
    return labels, np.array([numbers[value] for value in values.tolist()], dtype=int)


def _split(pca: Any, n_rows: int, n_nodes: int, y: Any, seed: int, tick: int) -> np.ndarray:
    """The node of each row, by the split of the estimator; in turns where there are fewer rows than nodes."""
    if n_rows < n_nodes:
        return (np.arange(n_rows) + tick) % n_nodes
    owners = np.empty(n_rows, dtype=int)
    split = split_by_name(pca.split, seed + tick)
    for node, rows in enumerate(split.rows(n_rows, n_nodes, None if y is None else np.asarray(y))):
        owners[rows] = node
    return owners


def _begun(pca: Any, X: np.ndarray, labels: tuple[Any, ...], seed: int, transport: Transport | None) -> Stream:
    """A stream of the columns and nodes of the first batch, without a sample yet."""
    names = getattr(pca, "feature_names_in_", None)
    weights = parse_weights(pca.topology, pca.weights, len(labels), seed)
    held = len(labels) if transport is None else 1
    data = StreamData(
        [_kept_by_a_node(pca, held, X.shape[1])] * held,
        weights,
        transport,
        feature_names=None if names is None else tuple(map(str, names)),
        node_names=None if labels == tuple(range(len(labels))) else tuple(map(str, labels)),
    )
    return Stream(data, X.dtype, labels)


def _kept_by_a_node(pca: Any, n_held: int, n_features: int) -> Running:
    """The moments alone where they fit into memory; otherwise, and for a window, the rows."""
    limit = min(MEMORY_BYTES, (pca.costs or Costs()).memory_bytes)
    if pca.window is None and pca.store is None and 8 * n_held * n_features**2 <= limit:
        return RunningScatter.empty(n_features)
    small_enough = pca.window is not None and pca.store is None
    folder = None if small_enough else tempfile.gettempdir() if pca.store is None else os.fspath(pca.store)
    if folder is not None and not os.path.isdir(folder):
        raise InputError(f"store = {folder!r} must be a folder that exists; make it first.")
    return RunningRows(n_features, pca.window, folder)
