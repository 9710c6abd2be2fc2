"""DecentralizedPCA: the whole of eigenmesh behind scikit-learn's interface."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone

from eigenmesh.certificate import GivenComponents
from eigenmesh.coordinators import coordinator_of, is_asked
from eigenmesh.data import (
    FeatureShards,
    NamedComponents,
    Partition,
    Table,
    TableOptions,
    as_narwhals,
    as_source,
    is_anndata,
    is_frame,
    read_components,
    table_in_memory,
)
from eigenmesh.errors import InputError
from eigenmesh.estimator.projection import FittedPCA, takes_settings
from eigenmesh.events import EventLog, Listener
from eigenmesh.fitting import (
    ColumnData,
    Costs,
    Data,
    Fit,
    NodeData,
    Plan,
    Spread,
    certified,
    fit_at_every_node,
    plan,
    to_certify,
)
from eigenmesh.iteration import DEFAULT_TOL
from eigenmesh.settings import OfOneFit, Request
from eigenmesh.transports import Transport, transport_by_name, transport_kind
from eigenmesh.words import listed

if TYPE_CHECKING:
    from eigenmesh.coordinators.asked import AskedData


# The inputs of ``fit``: which node has which samples, the network, the transport and the listeners.


EVERYTHING = TableOptions()
# Settings of the network and of the split. Data behind a coordinator have their own, so these are refused.
NOT_ASKED = ("topology", "weights", "averaging", "privacy", "split", "partition", "transport", "device")


def connect(pca: Any, X: Any, stack: ExitStack) -> tuple[Transport | None, Callable[..., list[Any]] | None]:
    """The transport that makes this process one node, or the function that starts all nodes in this process, if any.

    A transport that is given by name is closed with the stack.
    """
    if not isinstance(pca.transport, str):
        return pca.transport, None
    kind = transport_kind(pca.transport, pca.device)
    # An engine is asked for sums; `asked_data` raises if a transport is set.
    if kind.run_nodes is not None or is_asked(X):
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


def spread_of(pca: Any, seed: int, transport: Transport | None) -> Spread:
    """How the estimator spreads samples over its network."""
    return Spread(pca.topology, pca.n_nodes, pca.weights, pca.split, pca.partition, seed, transport)


def data_for(
    pca: Any,
    X: Any,
    y: Any,
    nodes: Any,
    seed: int,
    transport: Transport | None,
    sample_weight: Any = None,
    options: TableOptions = EVERYTHING,
) -> Data:
    """Samples and network of the estimator; with a transport this process is one node."""
    pca._read_with = options.remembered
    if options != EVERYTHING and not _has_columns(X):
        given = "columns, drop, id_column, categories and layer"
        raise InputError(f"{given} are for frames, AnnData and files, not for a {type(X).__name__}; leave them out.")
    if is_asked(X):
        return asked_data(pca, X, nodes, sample_weight)
    spread, own = spread_of(pca, seed, transport), transport is not None
    X = [X] if isinstance(X, str | os.PathLike) else X
    if own and (y is not None or nodes is not None):
        raise InputError("y= and nodes= split one array; with a transport this process is one node.")
    if isinstance(X, Partition) or is_parts(X):
        if own and not isinstance(X, Partition):
            raise InputError("with a transport this process is one node: give its own samples, not a list of parts.")
        if nodes is not None:
            raise InputError("nodes= goes with one array; the data given are already in parts.")
        weights = [sample_weight] if own and sample_weight is not None else sample_weight
        data = spread.of_parts(_read_parts(X, options), weights, **vars(options))
        pca._set_features(data.shards.n_features, data.shards.feature_names)
        return data
    if spread.kind is FeatureShards and isinstance(nodes, str):
        raise InputError(f"nodes={nodes!r} is for samples; where columns are split, give one entry per column.")
    X, nodes = nodes_from_column(pca, X, nodes)
    if is_anndata(X) or options != EVERYTHING:
        X = table_in_memory(X, options, "X").source
    names = as_narwhals(X, "X").columns if is_frame(X) else None
    checked = pca._checked(X, reset=True, fewest=1 if own else 2)
    source = as_source(checked, feature_names=None if names is None else tuple(map(str, names)))
    table = Table(source, labels=y, weights=sample_weight)
    return spread.of_own(table) if own else spread.of_table(table, nodes)


def asked_data(pca: Any, X: Any, nodes: Any, sample_weight: Any) -> AskedData:
    """Samples of an engine that is asked for sums, or behind a coordinator; reads nothing if the columns are known."""
    from eigenmesh.coordinators.asked import AskedData, AskedSites

    engine = coordinator_of(X, sample_weight)
    if nodes is not None:
        raise InputError(f"nodes= splits one array; {engine.name} data are in parts already. Leave it out.")
    known = inspect.signature(type(pca)).parameters
    # A subclass may set a parameter that its users cannot.
    for name in filter(known.__contains__, NOT_ASKED):
        value, default = getattr(pca, name), known[name].default
        if value is not default and not (isinstance(value, str) and value == default):
            only = f"{engine.name} data: all parts are asked for sums"
            raise InputError(f"{name} = {value!r} has no meaning for {only}. Leave {name} out.")
    sites = AskedSites(engine, fills=pca._request().missing == "mean")
    data = AskedData(sites)
    n_parts = data.facts.n_nodes
    if pca.n_nodes not in (None, n_parts):
        raise InputError(f"n_nodes = {pca.n_nodes}, but the data have {n_parts} parts, one per node; leave it out.")
    pca._set_features(sites.n_features, sites.feature_names)
    return data


def _has_columns(X: Any) -> bool:
    """Whether options about columns can be given: for frames, AnnData, files and lists of them."""
    if is_parts(X):
        return all(map(_has_columns, X.values() if isinstance(X, Mapping) else X))
    return isinstance(X, str | os.PathLike) or is_anndata(X) or (is_frame(X) and not is_asked(X))


def _read_parts(parts: Any, options: TableOptions) -> Any:
    """The parts, with AnnData and, if there are options, frames read."""

    def read(part: Any, where: str) -> Any:
        in_memory = is_anndata(part) or (is_frame(part) and options != EVERYTHING)
        return table_in_memory(part, options, where).source if in_memory else part

    if isinstance(parts, Partition):
        return parts
    if isinstance(parts, Mapping):
        return {name: read(part, f"X at {name}") for name, part in parts.items()}
    return [read(part, f"X at node {node}") for node, part in enumerate(parts)]


def nodes_from_column(pca: Any, X: Any, nodes: Any) -> tuple[Any, Any]:
    """Samples and their nodes: as given, or a data frame without its column of nodes, and that column."""
    # Remembered for `transform`, which drops this column from a frame that still has it.
    pca._nodes_column = column = nodes if isinstance(nodes, str) else None
    if column is None:
        return X, nodes
    if is_anndata(X):
        pca._nodes_column = None
        if column not in X.obs:
            raise InputError(f"X has no column {column!r} in obs for nodes=; it has {listed(list(X.obs)) or 'none'}.")
        return X, X.obs[column].to_numpy()
    if not is_frame(X):
        raise InputError(f"nodes={column!r} names a column, but X is not a data frame; give an array of nodes.")
    frame = as_narwhals(X, "X")
    if column not in frame.columns:
        raise InputError(
            f"X has no column {column!r} for nodes=; its columns are {', '.join(map(str, frame.columns[:10]))}."
        )
    return frame.drop(column).to_native(), frame[column].to_numpy()


def is_parts(X: Any) -> bool:
    """True for a list or dict of matrices or of paths; a nested list of numbers is one matrix."""
    parts = list(X.values()) if isinstance(X, Mapping) else X
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not len(parts):
        return False
    paths = all(isinstance(part, str | os.PathLike) for part in parts)
    return paths or all(len(getattr(part, "shape", ())) == 2 for part in parts)


@takes_settings
class DecentralizedPCA(FittedPCA, OfOneFit):
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
        The network and its weights; a single node if an engine is asked for sums over all of them.
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

    def fit(
        self,
        X: Any,
        y: Any = None,
        nodes: Any = None,
        sample_weight: Any = None,
        *,
        columns: Any = None,
        drop: Any = None,
        id_column: str | int | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        layer: str | None = None,
    ) -> Self:
        """Find the principal components of the samples of all nodes.

        The last five parameters are for data frames, AnnData and files. ``transform`` reads frames and AnnData in the
        same way, and a saved model remembers it.

        Parameters
        ----------
        X : array, CUDA tensor, memory map, sparse matrix, data frame, AnnData or Source of shape (N, d)
            The samples; or a list of M of these, or a dict with the names of the nodes; or a list of files, one per
            node; or Shards; or data of an engine (Dask), whose blocks are the nodes, or a Coordinator. Data frames may
            be of pandas, polars, pyarrow or any library that narwhals supports. With a transport: the samples of this
            node.
        y : array of shape (N,) or None
            Labels, used only by the splits "label" and "dirichlet:...".
        nodes : array of shape (N,), str or None
            The node of each sample, or the name of a column of a data frame or of ``obs``, instead of a split.
        sample_weight : array of shape (N,), str, list, dict or None
            Number of equal samples that each row stands for, 0 or more; if X has parts, a list or dict of such arrays.
            The result is that of repeated rows, and N is the sum of the weights. For data of an engine, the name of a
            column, or a dask array, or a list of references. Sites behind a Coordinator have their own.
        columns : list of names or numbers, or None
            Use only these columns, or genes, in this order.
        drop : name, number, list of these, or None
            Columns to leave out.
        id_column : name, number or None
            A column that names the samples; no two may be alike. It is not a feature.
        categories : dict or None
            {column: levels}; each level becomes a column of 0 and 1 named ``column=level``.
        layer : str or None
            The layer of AnnData to use; X if None.
        """
        options = TableOptions.of(columns=columns, drop=drop, id_column=id_column, categories=categories, layer=layer)
        self._set_fitted(self._fit(self._request(), X, y, nodes, sample_weight, options))
        self._warn_unless_converged()
        return self

    def _fit(
        self,
        request: Request,
        X: Any,
        y: Any = None,
        nodes: Any = None,
        sample_weight: Any = None,
        options: TableOptions = EVERYTHING,
    ) -> Fit:
        with ExitStack() as stack:
            transport, run_nodes = connect(self, X, stack)
            events = event_log(self, stack)
            data = data_for(self, X, y, nodes, request.layout_seed, transport, sample_weight, options)
            stack.callback(data.close)
            fitted = fit_at_every_node(run_nodes, request, data, events)
            events.emit(fitted.result.ended)
        return fitted

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
                raise InputError("data of an engine support only fit and transform: there is no network to plan for.")
            if isinstance(data, ColumnData):
                raise InputError('a plan is for partition="samples"; split columns are fitted without one.')
            return plan(request, data)


# Components of other tools.


def certify(
    X: Any,
    components: Any,
    *,
    mean: Any = None,
    nodes: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    tol: float = DEFAULT_TOL,
    **settings: Any,
) -> GivenComponents:
    """Bound how far components from any tool are from the true principal components of X.

    The true ones are found with a certificate, and compared. So the bounds hold wherever the components come from.

    Parameters
    ----------
    X : array, sparse matrix, data frame, files, data of an engine, Coordinator
        Whatever ``DecentralizedPCA.fit`` takes.
    components : array of shape (K, d), path, or a fitted estimator
        The components in rows (or in columns), in any length and sign; a file of them; or an object that has
        ``components_``, such as scikit-learn's PCA.
    mean : array of shape (d,) or None
        The mean that they were computed with, to compare it with the pooled one. A file or an estimator may have it.
    nodes, y, sample_weight : arrays or None
        As for ``DecentralizedPCA.fit``.
    tol : float
        Bound on sin(angle) that matters to you. The true components are found to a hundredth of it.
    **settings : object
        Other parameters of ``DecentralizedPCA``; ``scale=True`` for components of standardised features.

    Returns
    -------
    GivenComponents
        A bound for every component, and what is different, in words.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> from eigenmesh import certify
    >>> X, _ = load_digits(return_X_y=True)
    >>> certify(X, PCA(3).fit(X)).error_bound < 1e-6
    True
    """
    if isinstance(components, str | os.PathLike):
        given = read_components(Path(components))
    else:
        names = getattr(components, "feature_names_in_", None)
        values = np.asarray(getattr(components, "components_", components), dtype=float)
        given = NamedComponents(
            values, None if names is None else tuple(map(str, names)), getattr(components, "mean_", None)
        )
    given = given if mean is None else replace(given, mean=np.asarray(mean, dtype=float))
    pca = DecentralizedPCA(tol=tol, **settings)
    request = to_certify(pca._request(), given)
    return certified(pca._fit(request, X, y, nodes, sample_weight), given, "components")
