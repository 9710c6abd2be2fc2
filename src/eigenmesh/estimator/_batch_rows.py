"""The rows of a batch: validation, and which node has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from eigenmesh.arrays import Array, as_tensor, namespace, to_numpy
from eigenmesh.data import Source, split_by_name
from eigenmesh.data._place import Place
from eigenmesh.data._source import checkable, is_device_array, require_exact
from eigenmesh.data._splits import rows_by_value
from eigenmesh.data._summaries import first_not_finite
from eigenmesh.data._table_options import column_label
from eigenmesh.errors import DataError, InputError
from eigenmesh.estimator._inputs import is_parts, nodes_from_column
from eigenmesh.estimator._stream_state import StreamState, empty_stream
from eigenmesh.fitting import count_nodes
from eigenmesh.transports import Transport


def read_rows(
    pca: Any, X: Any, y: Any, nodes: Any, seed: int, transport: Transport | None, stream: StreamState | None
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
        stream = empty_stream(pca, matrices[0], tuple(labels), seed, transport)
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


def _checked(pca: Any, X: Any, first: bool) -> Array:
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


def _read_source(pca: Any, source: Source, first: bool) -> np.ndarray:
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


def _require_valid(pca: Any, rows: Array, where: str) -> None:
    """Raise if entries are missing, or if a whole number is too large for float64."""
    xp, d = namespace(rows), rows.shape[1]
    require_exact(rows, lambda at: f"row {at // d} of {where}, column {at % d},")
    if not bool(xp.all(xp.isfinite(rows))):
        row, column, value = first_not_finite(to_numpy(rows))
        at = f"{where}: row {row}, {column_label(getattr(pca, 'feature_names_in_', None), column)}"
        raise DataError(f"{at} is {value}; drop the row. Nothing of the batch was counted.")


def _owners(
    pca: Any, n_rows: int, y: Any, nodes: Any, seed: int, stream: StreamState | None
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


def _split(pca: Any, n_rows: int, n_nodes: int, y: Any, seed: int, tick: int) -> np.ndarray:
    """The node of each row, by the split of the estimator; in turn if there are fewer rows than nodes: (n,)."""
    if n_rows < n_nodes:
        return (np.arange(n_rows) + tick) % n_nodes
    owners = np.empty(n_rows, dtype=int)
    split = split_by_name(pca.split, seed + tick)
    for node, rows in enumerate(split.rows(n_rows, n_nodes, None if y is None else np.asarray(y))):
        owners[rows] = node
    return owners
