"""A batch of a stream: its rows are checked, given to their nodes and counted, before any of it is accepted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from eigenmesh.arrays import Array, as_tensor, namespace, to_numpy
from eigenmesh.dask import is_dask
from eigenmesh.data import MEMORY_BYTES, Source, split_by_name
from eigenmesh.data._place import HOST, Place
from eigenmesh.data._running import Running, RunningScatter
from eigenmesh.data._running_rows import RunningRows
from eigenmesh.data._source import checkable, is_device_array, require_exact
from eigenmesh.data._splits import rows_by_value
from eigenmesh.data._summaries import first_not_finite
from eigenmesh.data._table_options import column_label
from eigenmesh.errors import DataError, InputError
from eigenmesh.estimator._inputs import data_of_dask, is_parts, nodes_from_column
from eigenmesh.events import BatchChecked
from eigenmesh.fitting import Costs, count_nodes, parse_weights
from eigenmesh.fitting._place import place_of
from eigenmesh.fitting._stream import StreamData
from eigenmesh.graphs import NetworkSequence
from eigenmesh.networks import Traffic
from eigenmesh.transports import Transport

if TYPE_CHECKING:
    from eigenmesh.estimator._streaming import StreamingPCA


@dataclass(frozen=True, eq=False)
class CheckedBatch:
    """The verdict on a batch, and the mean squared residual of each feature: (d,)."""

    event: BatchChecked
    residuals: np.ndarray


@dataclass(frozen=True, eq=False)
class StreamState:
    """What an estimator keeps between two batches.

    labels : labels of the nodes in ``nodes``; ids : of the batches so far, if they had any.
    """

    data: StreamData
    labels: tuple[Any, ...]
    device: str | None = None
    n_seen: int = 0
    n_batches: int = 0
    ids: frozenset[Any] = frozenset()
    checked: CheckedBatch | None = None

    @property
    def place(self) -> Place:
        """Device of the moments; stored by name, because a stream can be pickled and a library cannot."""
        return Place.named(self.device)


class CountedBatch(NamedTuple):
    """A stream, and what its nodes will keep once a batch is accepted.

    sums : (nodes, width of the monitor), sums of the monitor over the new rows; n_rows : (nodes,), new rows; sent :
    traffic of reading them.
    """

    stream: StreamState
    nodes: Sequence[Running]
    sums: np.ndarray | None
    n_rows: np.ndarray
    sent: Traffic


def count_batch(
    pca: StreamingPCA, X: Any, y: Any, nodes: Any, seed: int, transport: Transport | None, stream: StreamState | None
) -> CountedBatch:
    """Read a batch, without changing the stream."""
    if is_dask(X):
        return _count_dask(pca, X, y, nodes, stream)
    rows, stream = _read_rows(pca, X, y, nodes, seed, transport, stream)
    monitor = stream.data.monitor
    sums = None if monitor is None else np.stack([monitor.node_sums(own) for own in rows])
    kept = [node.ticked(own, pca.forgetting) for node, own in zip(stream.data.nodes, rows, strict=True)]
    return CountedBatch(stream, kept, sums, np.array([own.shape[0] for own in rows]), Traffic())


def _count_dask(pca: StreamingPCA, X: Any, y: Any, nodes: Any, stream: StreamState | None) -> CountedBatch:
    """A batch of dask data: for the stream the cluster is a single node; moments are summed on the workers."""
    from eigenmesh.dask._stream import batch_moments

    if y is not None:
        raise InputError("y= splits one array; dask data are split by their chunks. Leave it out.")
    if pca.window is not None or pca.store is not None:
        raise InputError("window= and store= need rows, but dask data keep only moments; leave them out.")
    data = data_of_dask(pca, X, nodes, first=stream is None)
    blocks, d = data.blocks, data.blocks.n_features
    if 8 * d**2 > MEMORY_BYTES:
        raise InputError(f"{d} x {d} moments do not fit into memory; give fit all the dask data, or drop columns.")
    if stream is None:
        names = blocks.layout.feature_names
        stream = StreamState(StreamData([RunningScatter.empty(d)], data.weights, feature_names=names), (0,))
    node, last = stream.data.nodes[0], stream.data.last
    if len(stream.labels) != 1 or not isinstance(node, RunningScatter):
        raise DataError(f"the stream has {len(stream.labels)} nodes, but dask data are one; begin with dask data.")
    new, sums = batch_moments(blocks, None if last is None else last.mean, stream.data.monitor)
    kept = node.joined(new, pca.forgetting)
    return CountedBatch(stream, [kept], sums, np.array([0 if new is None else round(new.weight)]), blocks.traffic)


def _read_rows(
    pca: StreamingPCA, X: Any, y: Any, nodes: Any, seed: int, transport: Transport | None, stream: StreamState | None
) -> tuple[list[Array], StreamState]:
    """The validated rows (n, d) float64 of each node in this process, and the stream that they belong to."""
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
    return [_placed(rows, stream.place) for rows in matrices], stream


def _placed(rows: Array, place: Place) -> Array:
    rows = place.put(rows)
    return namespace(rows).astype(rows, place.xp.float64, copy=False)


def _checked(pca: StreamingPCA, X: Any, first: bool) -> Array:
    """A dense matrix of numbers (n, d) with the columns of the stream; n may be 0."""
    if is_device_array(X):
        # scikit-learn can only read CPU memory.
        rows = as_tensor(X)
        if rows.ndim != 2:
            raise DataError(f"the batch must be 2-D (samples, features); got shape {tuple(rows.shape)}.")
        validate_data(pca, rows, reset=first, skip_check_array=True)
        return rows
    if isinstance(X, Source):
        return _read_source(pca, X, first)
    checks: Any = {"ensure_min_samples": 0, "ensure_all_finite": False, "accept_sparse": "csr"}
    matrix = validate_data(pca, checkable(X, "the batch"), reset=first, **checks)
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix)


def _read_source(pca: StreamingPCA, source: Source, first: bool) -> np.ndarray:
    """All rows of a source; its columns must have the names of the stream."""
    names = source.feature_names
    if first:
        validate_data(pca, source, reset=True, skip_check_array=True)
        if names is not None:
            pca.feature_names_in_ = np.asarray(names, dtype=object)
    known = getattr(pca, "feature_names_in_", None)
    if source.shape[1] != pca.n_features_in_:
        raise DataError(f"the batch has {source.shape[1]} features, but the stream has {pca.n_features_in_} features.")
    if names is not None and known is not None and tuple(known) != names:
        other = next(place for place, name in enumerate(names) if name != known[place])
        raise DataError(f"column {other} of the batch is {names[other]!r}, but in the stream it is {known[other]!r}.")
    rows = source.read(slice(0, source.shape[0]))
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)


def _require_valid(pca: StreamingPCA, rows: Array, where: str) -> None:
    """Raise if entries are missing, or if a whole number is too large for float64."""
    xp, d = namespace(rows), rows.shape[1]
    require_exact(rows, lambda at: f"row {at // d} of {where}, column {at % d},")
    if not bool(xp.all(xp.isfinite(rows))):
        row, column, value = first_not_finite(to_numpy(rows))
        at = f"{where}: row {row}, {column_label(getattr(pca, 'feature_names_in_', None), column)}"
        raise DataError(
            f"{at} is {value}; drop the row, as a stream takes no NaN or infinity. Nothing of the batch was counted."
        )


def _owners(
    pca: StreamingPCA, n_rows: int, y: Any, nodes: Any, seed: int, stream: StreamState | None
) -> tuple[Sequence[Any], np.ndarray]:
    """The labels of the nodes, and the number of the node that has each row: (n,)."""
    fixed = pca.n_nodes is not None or not isinstance(pca.topology, str)
    if nodes is None:
        n_nodes = count_nodes(pca.topology, pca.n_nodes, n_rows) if stream is None else len(stream.labels)
        return range(n_nodes), _split(pca, n_rows, n_nodes, y, seed, 0 if stream is None else stream.n_batches)
    values = np.asarray(nodes)
    if values.shape != (n_rows,):
        raise DataError(f"nodes must have one entry for each of {n_rows} samples; got shape {values.shape}.")
    if stream is not None:
        labels: Sequence[Any] = stream.labels
    elif fixed and values.dtype.kind in "iu":
        labels = range(count_nodes(pca.topology, pca.n_nodes, n_rows))
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
    split = split_by_name(pca.split, seed + tick)
    for node, rows in enumerate(split.rows(n_rows, n_nodes, None if y is None else np.asarray(y))):
        owners[rows] = node
    return owners


def _empty_stream(
    pca: StreamingPCA, rows: Array, labels: tuple[Any, ...], seed: int, transport: Transport | None
) -> StreamState:
    """An empty stream with the columns and nodes of the first batch."""
    names = getattr(pca, "feature_names_in_", None)
    weights = parse_weights(pca.topology, pca.weights, len(labels), seed)
    held = len(labels) if transport is None else 1
    # On a network that changes, arrays are NumPy arrays, whatever the transport supports.
    carries = None if isinstance(weights, NetworkSequence) else transport
    place = place_of(pca.device, None if isinstance(rows, np.ndarray) else rows.device, carries)
    data = StreamData(
        [_storage_per_node(pca, held, rows.shape[1], place)] * held,
        weights,
        transport,
        feature_names=None if names is None else tuple(map(str, names)),
        node_names=None if labels == tuple(range(len(labels))) else tuple(map(str, labels)),
    )
    return StreamState(data, labels, None if place.device is None else str(place.device))


def _storage_per_node(pca: StreamingPCA, n_held: int, n_features: int, place: Place) -> Running:
    """Moments if they fit into memory; otherwise, and for a window, the rows."""
    limit = min(MEMORY_BYTES, (pca.costs or Costs()).memory_bytes)
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
