"""What ``fit`` is given: who holds which samples, the network between them, and who is told how it goes."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from eigenmesh.dask import is_dask
from eigenmesh.data import Shards, split_by_name
from eigenmesh.errors import InputError
from eigenmesh.events import EventLog, on_record
from eigenmesh.fitting import Data, NodeData, count_nodes, parse_weights
from eigenmesh.transports import Transport, transport_by_name, transport_kind

# Settings of a network that is chosen, or of one array that is split: dask data bring both with them.
NOT_ON_DASK = ("topology", "weights", "averaging", "split", "transport", "device")


def connect(pca: Any, X: Any, stack: ExitStack) -> tuple[Transport | None, Callable[..., list[Any]] | None]:
    """The transport that makes this process one node, if any, and what starts all nodes where this process does that.

    A transport that is asked for by name is closed with the stack.
    """
    if not isinstance(pca.transport, str):
        return pca.transport, None
    kind = transport_kind(pca.transport, pca.device)
    # Dask data bring their own engine; that they take no transport is said where they are read.
    if kind.run_nodes is not None or is_dask(X):
        return None, kind.run_nodes
    return stack.enter_context(transport_by_name(kind.name, pca.device)), None


def event_log(pca: Any, stack: ExitStack) -> EventLog:
    """A log that tells the user's callback and, if asked for, the terminal until the stack is closed."""
    listeners = [] if pca.callback is None else [on_record(pca.callback)]
    if pca.verbose:
        from eigenmesh.report._progress import live_progress

        listeners.append(stack.enter_context(live_progress()))
    return EventLog(*listeners)


def data_for(pca: Any, X: Any, y: Any, nodes: Any, seed: int, transport: Transport | None) -> Data:
    """Samples and network of what the estimator is given; with a transport this process is one node."""
    if is_dask(X):
        return _data_of_dask(pca, X, nodes)
    shards = _shards(pca, X, y, nodes, seed) if transport is None else _own_shards(pca, X, y, nodes, transport)
    return NodeData(shards, parse_weights(pca.topology, pca.weights, shards.n_nodes, seed), transport)


def _data_of_dask(pca: Any, X: Any, nodes: Any) -> Data:
    """Blocks of a dask array or data frame, one node each; reads nothing."""
    from eigenmesh.dask._data import DaskData, check_features

    if nodes is not None:
        raise InputError("nodes= splits one array; dask data are split by their chunks. Leave it out.")
    usual = type(pca)().get_params(deep=False)
    for name in NOT_ON_DASK:
        value = getattr(pca, name)
        if value is not usual[name] and not (isinstance(value, str) and value == usual[name]):
            raise InputError(f"{name} = {value!r} has no meaning for dask data: Dask sums over them. Leave {name} out.")
    data = DaskData.of(X)
    n_blocks = data.facts.n_nodes
    if pca.n_nodes not in (None, n_blocks):
        raise InputError(f"n_nodes = {pca.n_nodes}, but the data have {n_blocks} blocks, one per node; leave it out.")
    check_features(pca, X, reset=True)
    return data


def _own_shards(pca: Any, X: Any, y: Any, nodes: Any, transport: Transport) -> Shards:
    if y is not None or nodes is not None:
        raise InputError("y= and nodes= split one array; with a transport this process is one node.")
    if _is_parts(X):
        raise InputError("with a transport this process is one node: give its own samples, not a list of parts.")
    if isinstance(X, Shards):
        return _shards(pca, X, None, None, seed=0)
    names = getattr(X, "columns", None)
    X = pca._checked(X, reset=True, fewest=1)
    shards = Shards.from_list([X], ids=[transport.rank], n_nodes=transport.size)
    return shards if names is None else replace(shards, feature_names=tuple(str(name) for name in names))


def _shards(pca: Any, X: Any, y: Any, nodes: Any, seed: int) -> Shards:
    if isinstance(X, Shards) or _is_parts(X):
        if nodes is not None:
            raise InputError("nodes= goes with one array; the data given are already in parts.")
        shards = X if isinstance(X, Shards) else Shards.from_list(list(X))
        pca.n_features_in_ = shards.n_features
        if shards.feature_names is not None:
            pca.feature_names_in_ = np.asarray(shards.feature_names, dtype=object)
        elif hasattr(pca, "feature_names_in_"):
            # Left over from an earlier fit.
            del pca.feature_names_in_
        return shards
    X = pca._checked(X, reset=True)
    if nodes is not None:
        return Shards.from_labels(X, nodes)
    n_nodes = count_nodes(pca.topology, pca.n_nodes, X.shape[0])
    return Shards.from_array(X, n_nodes, split_by_name(pca.split, seed), y)


def _is_parts(X: Any) -> bool:
    """True for a list of matrices; a nested list of numbers is one matrix."""
    return isinstance(X, Sequence) and len(X) > 0 and all(len(getattr(part, "shape", ())) == 2 for part in X)
