"""StreamingPCA: exact PCA of samples that arrive in batches, as scikit-learn has IncrementalPCA beside PCA."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from eigenmesh import fitting
from eigenmesh.arrays import Array, namespace, to_numpy
from eigenmesh.coordinators import coordinator_of, is_asked
from eigenmesh.data import (
    HOST,
    MEMORY_BYTES,
    Place,
    Running,
    RunningRows,
    RunningScatter,
    Source,
    aligned,
    as_source,
    checkable,
    column_label,
    first_not_finite,
    is_device_array,
    is_frame,
    require_exact,
    rows_by_value,
)
from eigenmesh.errors import DataError, InputError, TooFewSamplesError, warn_user
from eigenmesh.estimator.pca import connect, event_log, is_parts, nodes_from_column, spread_of
from eigenmesh.estimator.projection import FittedPCA, takes_settings
from eigenmesh.events import EventLog
from eigenmesh.fitting import StreamData
from eigenmesh.graphs import NetworkSequence
from eigenmesh.settings import A_STREAM, ONE_FIT, OfAStream
from eigenmesh.transports import Transport

# A batch of a stream: its rows are checked, given to their nodes and counted, before any of it is accepted.


def count_batch(
    pca: StreamingPCA, X: Any, y: Any, nodes: Any, seed: int, transport: Transport | None, stream: StreamData | None
) -> StreamData:
    """The stream with a batch that is in no fit yet; the stream that is given does not change."""
    rows, stream = _read_rows(pca, X, y, nodes, seed, transport, stream)
    monitor = stream.monitor
    sums = None if monitor is None else np.stack([monitor.node_sums(own) for own in rows])
    kept = [node.ticked(own, pca.forgetting) for node, own in zip(stream.nodes, rows, strict=True)]
    return stream.counted(kept, sums, np.array([own.shape[0] for own in rows]))


def _read_rows(
    pca: StreamingPCA, X: Any, y: Any, nodes: Any, seed: int, transport: Transport | None, stream: StreamData | None
) -> tuple[list[Array], StreamData]:
    """The validated rows (n, d) float64 of each node in this process, and the stream that they belong to."""
    # A batch is small enough for this process, or can be cut into smaller ones.
    X = coordinator_of(X).collected() if is_asked(X) else X
    in_parts = is_parts(X)
    if transport is not None and (y is not None or nodes is not None or in_parts):
        raise InputError("with a transport this process is one node: give its own samples, and neither y nor nodes.")
    if in_parts and nodes is not None:
        raise InputError("nodes= goes with one array; the batch is already in parts.")
    X, nodes = nodes_from_column(pca, X, nodes)
    matrices = [_checked(pca, part, stream is None and not k) for k, part in enumerate(X if in_parts else [X])]
    labels: Sequence[Any] = range(transport.size) if transport is not None else ()
    owners = np.zeros(matrices[0].shape[0], dtype=int)
    if transport is None and in_parts:
        labels = range(len(matrices))
    elif transport is None:
        labels, owners = _owners(pca, matrices[0].shape[0], y, nodes, seed, stream)
    if stream is None:
        stream = _empty_stream(pca, matrices[0], tuple(labels), seed, transport)
    for number, rows in enumerate(matrices):
        _require_valid(pca, rows, f"part {number} of the batch" if in_parts else "the batch")
    if len(labels) != len(stream.labels):
        raise DataError(f"the batch is for {len(labels)} nodes, but the stream has {len(stream.labels)}.")
    if transport is None and not in_parts:
        matrices = [matrices[0][owners == node] for node in range(len(labels))]
    place = Place.named(stream.device)
    placed = [place.put(rows) for rows in matrices]
    return [namespace(rows).astype(rows, place.xp.float64, copy=False) for rows in placed], stream


def _checked(pca: StreamingPCA, X: Any, first: bool) -> Array:
    """A dense matrix of numbers (n, d) with the columns of the stream; n may be 0."""
    if isinstance(X, Source) or is_device_array(X) or (is_frame(X) and not first and pca._feature_names):
        # scikit-learn can only read CPU memory, knows no names but those of data frames, and refuses them in any order.
        source = as_source(X, "the batch")
        if first:
            pca._set_features(source.shape[1], source.feature_names)
        source = aligned(source, pca.n_features_in_, pca._feature_names, "the batch", "the stream")
        rows = source.read(slice(0, source.shape[0]))
    else:
        checks: Any = {"ensure_min_samples": 0, "ensure_all_finite": False, "accept_sparse": "csr"}
        rows = validate_data(pca, checkable(X, "the batch"), reset=first, **checks)
    return rows.toarray() if sparse.issparse(rows) else rows


def _require_valid(pca: StreamingPCA, rows: Array, where: str) -> None:
    """Raise if entries are missing, or if a whole number is too large for float64."""
    xp, d = namespace(rows), rows.shape[1]
    require_exact(rows, lambda at: f"row {at // d} of {where}, column {at % d},")
    if not bool(xp.all(xp.isfinite(rows))):
        row, column, value = first_not_finite(to_numpy(rows))
        at = f"{where}: row {row}, {column_label(pca._feature_names, column)}"
        raise DataError(
            f"{at} is {value}; drop the row, as a stream takes no NaN or infinity. Nothing of the batch was counted."
        )


def _owners(
    pca: StreamingPCA, n_rows: int, y: Any, nodes: Any, seed: int, stream: StreamData | None
) -> tuple[Sequence[Any], np.ndarray]:
    """The labels of the nodes, and the number of the node that has each row: (n,)."""
    fixed, spread = pca.n_nodes is not None or not isinstance(pca.topology, str), spread_of(pca, seed, None)
    if nodes is None:
        n_nodes = spread.count(n_rows) if stream is None else len(stream.labels)
        return range(n_nodes), _split(pca, n_rows, n_nodes, y, seed, 0 if stream is None else stream.n_batches)
    values = np.asarray(nodes)
    if values.shape != (n_rows,):
        raise DataError(f"nodes must have one entry for each of {n_rows} samples; got shape {values.shape}.")
    if stream is not None:
        labels: Sequence[Any] = stream.labels
    elif fixed and values.dtype.kind in "iu":
        labels = range(spread.count(n_rows))
    else:
        labels = rows_by_value(values, "nodes")[0].tolist()
    numbers = {label: number for number, label in enumerate(labels)}
    unknown = [value for value in values.tolist() if value not in numbers]
    if unknown:
        known = f"{', '.join(map(str, labels[:5]))}{', ..' if len(labels) > 5 else ''}"
        raise DataError(
            f"node {unknown[0]!r} is not a node of the stream ({known}); set n_nodes before the first batch."
        )
    return labels, np.array([numbers[value] for value in values.tolist()], dtype=int)


def _split(pca: StreamingPCA, n_rows: int, n_nodes: int, y: Any, seed: int, tick: int) -> np.ndarray:
    """The node of each row, by the split of the estimator; in turn if there are fewer rows than nodes: (n,)."""
    if n_rows < n_nodes:
        return (np.arange(n_rows) + tick) % n_nodes
    owners = np.empty(n_rows, dtype=int)
    rule = spread_of(pca, seed + tick, None).rule()
    for node, rows in enumerate(rule.rows(n_rows, n_nodes, None if y is None else np.asarray(y))):
        owners[rows] = node
    return owners


def _empty_stream(
    pca: StreamingPCA, rows: Array, labels: tuple[Any, ...], seed: int, transport: Transport | None
) -> StreamData:
    """An empty stream with the columns and nodes of the first batch."""
    weights = spread_of(pca, seed, transport).network(len(labels))
    held = len(labels) if transport is None else 1
    # On a network that changes, arrays are NumPy arrays, whatever the transport supports.
    carries = None if isinstance(weights, NetworkSequence) else transport
    place = fitting.place_of(pca.device, None if isinstance(rows, np.ndarray) else rows.device, carries)
    return StreamData(
        [_storage_per_node(pca, held, rows.shape[1], place)] * held,
        weights,
        transport,
        labels,
        None if place.device is None else str(place.device),
        feature_names=pca._feature_names,
        node_names=None if labels == tuple(range(len(labels))) else tuple(map(str, labels)),
    )


def _storage_per_node(pca: StreamingPCA, n_held: int, n_features: int, place: Place) -> Running:
    """Moments if they fit into memory; otherwise, and for a window, the rows."""
    limit = min(MEMORY_BYTES, (pca.costs or fitting.Costs()).memory_bytes)
    fits = 8 * n_held * n_features**2 <= limit or place.is_gpu
    if pca.window is None and pca.store is None and fits:
        return RunningScatter.empty(n_features, place)
    if place != HOST:
        raise InputError(f"window = {pca.window} and store = {pca.store} keep rows in NumPy; leave out the device.")
    small_enough = pca.window is not None and pca.store is None
    folder = None if small_enough else tempfile.gettempdir() if pca.store is None else os.fspath(pca.store)
    if folder is not None and not os.path.isdir(folder):
        raise InputError(f"store = {folder!r} must be a folder that exists; make it first.")
    return RunningRows(n_features, pca.window, folder)


# Directions beyond the components to keep for the next batch: with more, it starts closer to its result.
KEPT_BEYOND = 50
# Parameters of a stream that must be the same at all nodes. The seed of a request is another one for every batch.
STREAM_SETTINGS = [name for name, row in A_STREAM.items() if row.agree and name not in ONE_FIT] + ["random_state"]


@takes_settings
class StreamingPCA(FittedPCA, OfAStream):
    """Exact PCA of samples that arrive over time at the nodes of a network, batch by batch.

    After every batch the components are those of *all* samples so far, within ``tol``, with less communication than a
    fit from the start. For samples that are all there, use :class:`DecentralizedPCA`.

    Parameters
    ----------
    (the settings of eigenmesh.settings)

    Attributes
    ----------
    components_, explained_variance_, mean_, certificate_, .. :
        As those of :class:`DecentralizedPCA`, for all samples so far.
    n_samples_seen_ : int
        Samples of all batches in this process; ``n_samples_`` is their current weight, over all nodes.
    batch_ : BatchChecked or None
        How the last batch compares with those before it. None for the first one.
    batch_residuals_ : array of shape (d,) or None
        Mean squared residual of each feature in that batch, with the components before it.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenmesh import StreamingPCA
    >>> X, _ = load_digits(return_X_y=True)
    >>> pca = StreamingPCA(n_components=3, n_nodes=8, topology="complete")
    >>> for batch in (X[:600], X[600:1200], X[1200:]):
    ...     pca = pca.partial_fit(batch)
    >>> pca.certificate_.error_bound < 1e-6
    True
    """

    def fit(self, X: Any, y: Any = None, nodes: Any = None) -> Self:
        """Begin a new stream, whose first batch are these samples; for the parameters see ``partial_fit``."""
        stream, outcome = self._take_batch(None, X, y, nodes)
        if isinstance(outcome, TooFewSamplesError):
            # In a stream more samples may come, but whoever calls fit wants components now.
            raise outcome
        return self._accept(stream, outcome)

    def partial_fit(self, X: Any, y: Any = None, nodes: Any = None, *, batch: Any = None) -> Self:
        """Add a batch to the samples seen so far, and find the principal components of all of them.

        The result and its certificate are those of ``fit`` on all samples so far, with less communication: one average
        gives the moments and continues from the last batch. All nodes must call it for every batch, even those without
        new samples. If a batch is invalid, none of it is counted.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n, d)
            The new samples; or a list of M of these, some of which may have no rows. With a transport: the new samples
            of this node, or none.
        y : array of shape (n,) or None
            Labels, used only by the splits "label" and "dirichlet:...".
        nodes : array of shape (n,), str or None
            The node that has each sample: its number if ``n_nodes`` is set, otherwise a name from the first batch; or
            the name of a column of a data frame.
        batch : hashable or None
            Id of the batch; an id that was counted before raises an error.
        """
        return self._accept(*self._take_batch(getattr(self, "_stream", None), X, y, nodes, batch))

    def _accept(self, stream: StreamData, outcome: fitting.Fit | TooFewSamplesError) -> Self:
        """Set the attributes to those after a batch."""
        self._stream, self.n_samples_seen_ = stream, stream.n_seen
        checked = stream.checked
        self.batch_ = None if checked is None else checked.event
        self.batch_residuals_ = None if checked is None else checked.residuals
        if self.on_alarm is not None and checked is not None and checked.event.alarm:
            self.on_alarm(checked.event)
        if isinstance(outcome, TooFewSamplesError):
            so_far = "these are not in the components yet" if hasattr(self, "components_") else "nothing is fitted yet"
            message = f"{so_far}: {outcome} The {stream.n_seen} samples seen so far are kept."
            warn_user(message, ConvergenceWarning)
            return self
        self._set_fitted(outcome)
        if self.averages_per_batch is None:
            self._warn_unless_converged()
        return self

    def _take_batch(
        self, stream: StreamData | None, X: Any, y: Any, nodes: Any, batch: Any = None
    ) -> tuple[StreamData, fitting.Fit | TooFewSamplesError]:
        """The stream after one more batch, and the fit to all of it, or the error if there are too few samples yet."""
        request = self._request()
        if stream is not None and batch is not None and batch in stream.ids:
            raise DataError(f"batch {batch!r} was counted before; give every batch its own id.")
        with ExitStack() as stack:
            transport, run_nodes = connect(self, X, stack)
            data = count_batch(self, X, y, nodes, request.layout_seed, transport, stream)
            number, settings = data.n_batches, {name: getattr(self, name) for name in STREAM_SETTINGS}
            name = None if batch is None else str(batch)
            data = replace(data, transport=transport, batch=name, checked=None, settings=settings)
            events = event_log(self, stack, keep=False)
            found: fitting.Fit | TooFewSamplesError
            try:
                found = self._fit_of_all(_request_of_batch(request, number), data, run_nodes, events)
                data = data.after(found.result, found.moments, found.checked)
                if data.checked is not None:
                    events.emit(data.checked.event)
            except TooFewSamplesError as error:
                found = error
        ids = data.ids if batch is None else data.ids | {batch}
        return replace(data, transport=None, n_batches=number + 1, ids=ids), found

    def _fit_of_all(
        self,
        request: fitting.Request,
        data: StreamData,
        run_nodes: Callable[..., list[fitting.Fit]] | None,
        events: EventLog,
    ) -> fitting.Fit:
        """The fit to all batches so far, within the budget per batch, with directions for the start of the next one."""
        budget = self.averages_per_batch
        settings: dict[str, Any] = {"max_iterations": None if budget is None else budget - 1}
        settings["keep"] = min(data.n_features, KEPT_BEYOND + _count(self.n_components))
        return fitting.fit_at_every_node(run_nodes, request, data, events, **settings)

    @property
    def _quiet_spe(self) -> tuple[float, float] | None:
        """Mean and variance of SPE in the quiet batches of a stream."""
        stream = getattr(self, "_stream", None)
        monitor = None if stream is None else stream.monitor
        return None if monitor is None else monitor.quiet_spe

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there are components; the first batches may have had too few samples."""
        return hasattr(self, "components_")


def _request_of_batch(request: fitting.Request, number: int) -> fitting.Request:
    """The request with its own seed for the batch: the random directions of earlier batches would show nothing new."""
    if request.seed is not None:
        state = np.random.SeedSequence([request.seed, number]).generate_state(1, np.uint64)
        request = replace(request, seed=int(state[0]))
    # With masks samples are always counted, because the count decides whether a batch may be summed.
    return replace(request, min_samples=max(1, request.min_samples)) if request.masked else request


def _count(n_components: Any) -> int:
    return n_components if isinstance(n_components, int) else 0
