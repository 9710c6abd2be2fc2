"""The inputs of ``fit``: which node has which samples, the network, the transport and the listeners."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh._lookup import canonical_name
from eigenmesh.dask import is_dask
from eigenmesh.data import FeatureShards, Shards, Source, as_source, split_by_name
from eigenmesh.data._files import expand
from eigenmesh.data._frames import as_narwhals
from eigenmesh.data._source import is_frame
from eigenmesh.errors import InputError
from eigenmesh.events import EventLog, Listener
from eigenmesh.fitting import PARTITIONS, Data, count_nodes, node_data, parse_weights
from eigenmesh.transports import Transport, transport_by_name, transport_kind

if TYPE_CHECKING:
    from eigenmesh.dask._data import DaskData

# Settings of the network and of the split. Dask data have their own, so these are refused.
NOT_ON_DASK = ("topology", "weights", "averaging", "privacy", "split", "partition", "transport", "device")


def connect(pca: Any, X: Any, stack: ExitStack) -> tuple[Transport | None, Callable[..., list[Any]] | None]:
    """The transport that makes this process one node, or the function that starts all nodes in this process, if any.

    A transport that is given by name is closed with the stack.
    """
    if not isinstance(pca.transport, str):
        return pca.transport, None
    kind = transport_kind(pca.transport, pca.device)
    # Dask data have their own engine; `data_of_dask` raises if a transport is set.
    if kind.run_nodes is not None or is_dask(X):
        return None, kind.run_nodes
    return stack.enter_context(transport_by_name(kind.name, pca.device)), None


def event_log(pca: Any, stack: ExitStack, keep: bool = True) -> EventLog:
    """A log for the user's listeners and, if ``verbose``, for live progress until the stack is closed.

    With ``keep``, a notebook shows the progress afterwards too.
    """
    listeners: list[Listener] = [] if pca.on_event is None else [pca.on_event]
    if pca.verbose:
        from eigenmesh.report._progress import live_progress

        listeners.append(stack.enter_context(live_progress(keep=keep)))
    return EventLog(*listeners)


def data_for(
    pca: Any, X: Any, y: Any, nodes: Any, seed: int, transport: Transport | None, sample_weight: Any = None
) -> Data:
    """Samples and network of the estimator; with a transport this process is one node."""
    if is_dask(X):
        if sample_weight is not None:
            raise InputError("dask data take no sample_weight; repeat the rows, or compute() the data.")
        return data_of_dask(pca, X, nodes)
    if transport is None:
        shards = _shards(pca, X, y, nodes, seed, sample_weight)
    else:
        shards = _own_shards(pca, X, y, nodes, transport).weighted([sample_weight])
    if pca.n_nodes not in (None, shards.n_nodes):
        raise InputError(f"n_nodes = {pca.n_nodes}, but data and network have {shards.n_nodes} nodes; leave it out.")
    weights = parse_weights(pca.topology, pca.weights, shards.n_nodes, seed, shards.node_names)
    return node_data(shards, weights, transport)


def _kind(pca: Any) -> type[Shards]:
    """The class of the data: shards of rows or, if columns are split, of columns."""
    return PARTITIONS[canonical_name("partition", pca.partition, PARTITIONS)]


def data_of_dask(pca: Any, X: Any, nodes: Any, first: bool = True) -> DaskData:
    """Blocks of a dask array or data frame, one per node; reads nothing. Later batches must have the same columns."""
    from eigenmesh.dask._data import DaskData, check_features

    if nodes is not None:
        raise InputError("nodes= splits one array; dask data are split by their chunks. Leave it out.")
    known = inspect.signature(type(pca)).parameters
    # A subclass may set a parameter that its users cannot, and a stream has no partition.
    for name in filter(known.__contains__, NOT_ON_DASK):
        value, default = getattr(pca, name), known[name].default
        if value is not default and not (isinstance(value, str) and value == default):
            raise InputError(f"{name} = {value!r} has no meaning for dask data: Dask sums over them. Leave {name} out.")
    data = DaskData.of(X)
    n_blocks = data.facts.n_nodes
    if pca.n_nodes not in (None, n_blocks):
        raise InputError(f"n_nodes = {pca.n_nodes}, but the data have {n_blocks} blocks, one per node; leave it out.")
    check_features(pca, X, reset=first)
    return data


def _own_shards(pca: Any, X: Any, y: Any, nodes: Any, transport: Transport) -> Shards:
    if y is not None or nodes is not None:
        raise InputError("y= and nodes= split one array; with a transport this process is one node.")
    if is_parts(X):
        raise InputError("with a transport this process is one node: give its own samples, not a list of parts.")
    if isinstance(X, Shards):
        return _shards(pca, X, None, None, 0, None)
    X = _with_names(pca, X, fewest=1)
    return _kind(pca).from_list([X], ids=[transport.rank], n_nodes=transport.size)


def _shards(pca: Any, X: Any, y: Any, nodes: Any, seed: int, sample_weight: Any) -> Shards:
    kind = _kind(pca)
    X = [X] if isinstance(X, str | os.PathLike) else X
    if isinstance(X, Shards) or is_parts(X):
        if nodes is not None:
            raise InputError("nodes= goes with one array; the data given are already in parts.")
        shards = X if isinstance(X, Shards) else _from_parts(X, kind)
        if type(shards) is not kind:
            raise InputError(f"partition = {pca.partition!r} is for {kind.__name__}; got {type(shards).__name__}.")
        _set_features(pca, shards)
        return shards if sample_weight is None else shards.weighted(_weights_of_parts(X, sample_weight, shards))
    by_columns = issubclass(kind, FeatureShards)
    if by_columns and isinstance(nodes, str):
        raise InputError(f"nodes={nodes!r} is for samples; where columns are split, give one entry per column.")
    X, nodes = nodes_from_column(pca, X, nodes)
    X = _with_names(pca, X)
    if nodes is not None:
        return kind.from_labels(X, nodes).weighted_rows(sample_weight)
    n_rows = X.shape[0] if sample_weight is None else int(np.count_nonzero(np.asarray(sample_weight)))
    n_nodes = count_nodes(pca.topology, pca.n_nodes, X.shape[1] if by_columns else n_rows)
    # The labels y belong to samples, so they cannot split columns.
    return kind.from_array(X, n_nodes, split_by_name(pca.split, seed), None if by_columns else y, sample_weight)


def _set_features(pca: Any, shards: Shards) -> None:
    """Set the number and names of columns on the estimator, for data that scikit-learn has not checked."""
    pca.n_features_in_ = shards.n_features
    if shards.feature_names is not None:
        pca.feature_names_in_ = np.asarray(shards.feature_names, dtype=object)
    elif hasattr(pca, "feature_names_in_"):
        # Left over from an earlier fit.
        del pca.feature_names_in_


def _weights_of_parts(X: Any, sample_weight: Any, shards: Shards) -> list[Any]:
    """Weights for each part: a list of arrays in their order, or a dict with their names."""
    names = list(X) if isinstance(X, Mapping) else None
    if isinstance(sample_weight, Mapping) and names is not None and set(sample_weight) == set(names):
        return [sample_weight[name] for name in names]
    if isinstance(sample_weight, Mapping) or len(sample_weight) != len(shards.blocks):
        raise InputError(f"sample_weight must have one array for each of {len(shards.blocks)} parts of the data.")
    return list(sample_weight)


def _with_names(pca: Any, X: Any, fewest: int = 2) -> Source:
    """Samples that scikit-learn has checked, with their feature names."""
    names = as_narwhals(X, "X").columns if is_frame(X) else None
    checked = pca._checked(X, reset=True, fewest=fewest)
    return as_source(checked, feature_names=None if names is None else tuple(map(str, names)))


def nodes_from_column(pca: Any, X: Any, nodes: Any) -> tuple[Any, Any]:
    """Samples and their nodes: as given, or a data frame without its column of nodes, and that column."""
    # Remembered for `transform`, which drops this column from a frame that still has it.
    pca._nodes_column = column = nodes if isinstance(nodes, str) else None
    if column is None:
        return X, nodes
    if not is_frame(X):
        raise InputError(f"nodes={column!r} names a column, but X is not a data frame; give an array of nodes.")
    frame = as_narwhals(X, "X")
    if column not in frame.columns:
        raise InputError(
            f"X has no column {column!r} for nodes=; its columns are {', '.join(map(str, frame.columns[:10]))}."
        )
    return frame.drop(column).to_native(), frame[column].to_numpy()


def _from_parts(X: Any, kind: type[Shards]) -> Shards:
    """One node per matrix or file; the keys of a dict are the names of the nodes."""
    names, parts = (tuple(map(str, X)), list(X.values())) if isinstance(X, Mapping) else (None, list(X))
    if all(isinstance(part, str | os.PathLike) for part in parts):
        files = expand(parts)
        if len(files) < 2:
            raise InputError(f"{files[0]} is one file; read it with eigenmesh.data.read_table, and give its X.")
        shards = kind.from_files(files)
        return shards if names is None else replace(shards, node_names=names)
    return kind.from_list(parts, node_names=names)


def is_parts(X: Any) -> bool:
    """True for a list or dict of matrices or of paths; a nested list of numbers is one matrix."""
    parts = list(X.values()) if isinstance(X, Mapping) else X
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not len(parts):
        return False
    paths = all(isinstance(part, str | os.PathLike) for part in parts)
    return paths or all(len(getattr(part, "shape", ())) == 2 for part in parts)
