"""DecentralizedPCA: the whole of eigenmesh behind scikit-learn's interface."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from sklearn.base import clone

from eigenmesh.coordinators import is_dask
from eigenmesh.data import FeatureShards, Shards, Source, as_narwhals, as_source, expand, is_frame, split_by_name
from eigenmesh.errors import InputError
from eigenmesh.estimator.projection import FittedPCA, takes_settings
from eigenmesh.events import EventLog, Listener
from eigenmesh.fitting import (
    PARTITIONS,
    ColumnData,
    Costs,
    Data,
    NodeData,
    Plan,
    count_nodes,
    fit,
    fit_at_every_node,
    node_data,
    parse_weights,
    plan,
    prepare,
)
from eigenmesh.settings import ONE_FIT, OfOneFit
from eigenmesh.transports import Transport, transport_by_name, transport_kind
from eigenmesh.words import canonical_name

if TYPE_CHECKING:
    from eigenmesh.coordinators.dask import DaskData


# The inputs of ``fit``: which node has which samples, the network, the transport and the listeners.


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
        from eigenmesh.report.tables import live_progress

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
    from eigenmesh.coordinators.dask import DaskData, check_features

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


@takes_settings(ONE_FIT)
class DecentralizedPCA(FittedPCA):
    """Exact PCA of samples that are spread over the nodes of a network, without a server.

    The fitted attributes are those of :class:`sklearn.decomposition.PCA` on the pooled data, within ``tol``.

    Parameters
    ----------
    (the settings of eigenmesh.settings)

    Attributes
    ----------
    components_ : array of shape (K, d)
        The components, the average over all nodes, largest variance first.
    explained_variance_, explained_variance_ratio_, singular_values_ : arrays of shape (K,)
        As scikit-learn defines them, for the pooled samples.
    mean_ : array of shape (d,)
        Mean of the pooled samples.
    scale_ : array of shape (d,) or None
        Their standard deviation, if features are divided by it.
    noise_variance_ : float
        Mean of the variances beyond K.
    n_components_, n_samples_, n_features_in_, n_nodes_, n_iter_ : int
        K, N (with weights, their sum), d, M and the number of iterations.
    node_components_ : array of shape (M, K, d)
        The estimate of each node; (1, K, d) at a process that is one node.
    scores_ : array of shape (N, K)
        Scores of the samples that were fitted, the same at all nodes; only with partition="features".
    node_names_ : tuple of str
        Names of the nodes, or their numbers if they have none.
    weights_ : Weights
        The network and its weights; a single node if Dask sums over all blocks.
    certificate_ : Certificate
        Bounds on the angles to the true components.
    traffic_ : Traffic
        Traffic of the whole fit.
    history_ : tuple of Record
        Progress of the fit, every few rounds.
    stop_reason_ : StopReason
        Why the fit ended.
    result_ : Result
        Components, certificate, traffic and history in one object.
    fitted_ : Fit
        The result with moments, network and request, as input of the functions of ``eigenmesh.fitting``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenmesh import DecentralizedPCA
    >>> X, y = load_digits(return_X_y=True)
    >>> pca = DecentralizedPCA(n_components=3, n_nodes=8, topology="complete").fit(X)
    >>> pca.certificate_.error_bound < 1e-6
    True
    """

    def __init__(self, n_components: int | float | None = None, **settings: Unpack[OfOneFit]) -> None:
        self._store(n_components=n_components, **settings)

    def fit(self, X: Any, y: Any = None, nodes: Any = None, sample_weight: Any = None) -> Self:
        """Find the principal components of the samples of all nodes.

        Parameters
        ----------
        X : array, CUDA tensor, memory map, sparse matrix, data frame or Source of shape (N, d)
            The samples; or a list of M of these, or a dict with the names of the nodes; or a list of files, one per
            node; or Shards; or a dask array or data frame, whose blocks are the nodes. Data frames may be of pandas,
            polars, pyarrow or any library that narwhals supports. With a transport: the samples of this node.
        y : array of shape (N,) or None
            Labels, used only by the splits "label" and "dirichlet:...".
        nodes : array of shape (N,), str or None
            The node of each sample, or the name of a column of a data frame, instead of a split.
        sample_weight : array of shape (N,) or None
            Number of equal samples that each row stands for, 0 or more; if X has parts, a list or dict of such arrays.
            The result is that of repeated rows, and N is the sum of the weights.
        """
        request = self._request()
        with ExitStack() as stack:
            transport, run_nodes = connect(self, X, stack)
            events = event_log(self, stack)
            data = data_for(self, X, y, nodes, request.layout_seed, transport, sample_weight)
            if run_nodes is not None and isinstance(data, NodeData):
                fitted = fit_at_every_node(run_nodes, request, data, events)
            else:
                fitted = fit(prepare(request, data), events=events)
            events.emit(fitted.result.ended)
        self._set_fitted(fitted)
        self._warn_unless_converged()
        return self

    def plan(self, X: Any, y: Any = None, nodes: Any = None, costs: Costs | None = None) -> Plan:
        """Forecast the cost of every solver with every averaging on these data, and which is best; nothing is fitted.

        Parameters
        ----------
        X, y, nodes : arrays
            As for ``fit``.
        costs : Costs or None
            Replaces the parameter of the same name.
        """
        # On a copy, because validating X sets attributes of an estimator that may be fitted to other data.
        planned = clone(self).set_params(**({} if costs is None else {"costs": costs}))
        request = planned._request()
        with ExitStack() as stack:
            transport, _ = connect(planned, X, stack)
            data = data_for(planned, X, y, nodes, request.layout_seed, transport)
            if not isinstance(data, NodeData):
                raise InputError("dask data support only fit and transform: there is no network to plan for.")
            if isinstance(data, ColumnData):
                raise InputError('a plan is for partition="samples"; split columns are fitted without one.')
            return plan(request, data)
