"""DecentralizedPCA: the whole of eigenmesh behind scikit-learn's interface."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from eigenmesh._atomic_write import require_writable
from eigenmesh.averaging import Averaging
from eigenmesh.dask import is_dask
from eigenmesh.data import Shards, Split, split_by_name
from eigenmesh.errors import InputError
from eigenmesh.estimator._projection import Projection
from eigenmesh.fitting import (
    Costs,
    Data,
    Fit,
    NodeData,
    Plan,
    Request,
    count_nodes,
    fit,
    fit_at_every_node,
    model_of,
    parse_weights,
    plan,
    prepare,
)
from eigenmesh.iteration import DEFAULT_MAX_ROUNDS, DEFAULT_TOL, Callback, Record
from eigenmesh.model_file import write_model
from eigenmesh.solvers import Solver
from eigenmesh.transports import Transport, TransportKind, transport_by_name, transport_kind

# Settings of a network that is chosen, or of one array that is split: dask data bring both with them.
NOT_ON_DASK = ("topology", "weights", "averaging", "split", "transport", "device")


class DecentralizedPCA(Projection):
    """Exact PCA of samples that are spread over the nodes of a network without a server.

    The fitted attributes are those of ``sklearn.decomposition.PCA``, and they are equal to what it gives on the
    pooled data, within ``tol``.

    Parameters
    ----------
    n_components : int, float or None
        K; or, between 0 and 1, the share of the variance to explain; None for min(N - 1, d).
    solver : str or Solver
        Name of a solver or a configured one, such as ``FastPCA(step_size=0.7)``. "auto" takes what the planner finds
        cheapest for data and network; it never takes a solver that sends covariances as such.
    topology : str, networkx graph, Weights or (M, M) matrix
        The network: a name for ``eigenmesh.graphs.topology``, a graph, or its weights.
    n_nodes : int or None
        M where the topology is a name. None: as many as the data have parts; 10 for one array, or fewer so that
        each node has at least two samples.
    weights : str
        How a graph gets its weights: "metropolis", "max_degree", "best_constant".
    averaging : str or Averaging
        How exact averages are made: "tree", "polynomial", "chebyshev", "gossip"; "auto" takes the quickest.
    split : str or Split
        How one array is split over the nodes: "random", "contiguous", "label" (by y), "dirichlet:0.1" (by y),
        "sizes:10,20".
    tol : float
        Bound on sin(angle) between every component at every node and the true one.
    max_rounds : int
        Budget of neighbour exchanges.
    step_size : float or "auto"
        Step of the solvers that have one and are given by name.
    scale : bool
        Divide each feature by its pooled standard deviation: correlation PCA.
    whiten : bool
        Give ``transform`` outputs unit variance.
    missing : "error" or "mean"
        What to do with NaN and infinite entries: name the first, or put the pooled mean there.
    covariance : "auto", "formed", "matrix-free", "chunked" or "sparse"
        How products with a node's covariance are made.
    device : str or None
        Where arrays are: None for NumPy; "cpu", "cuda", "cuda:1" for PyTorch.
    transport : Transport, "threads", "mpi", "torch" or None
        None simulates all nodes in this process, "threads" runs each of them in a thread. Otherwise this process is one
        node, ``fit`` is given this node's samples alone, and all processes call it alike; a name joins the processes
        that the engine has started.
    random_state : int, RandomState or None
        Seed of the split, the graph and the start. None is a fixed seed, since all nodes must share it.
    costs : Costs or None
        Latency, bandwidth, speed and memory of the nodes, by which "auto" decides; None for the defaults.
    callback : callable or None
        Called with a ``Record`` every few rounds.
    verbose : bool
        Show live progress on standard error.

    Attributes
    ----------
    components_ : array of shape (K, d)
        The components that all nodes agree on, largest variance first.
    explained_variance_, explained_variance_ratio_, singular_values_ : arrays of shape (K,)
        As scikit-learn defines them, for the pooled samples.
    mean_ : array of shape (d,)
        Mean of the pooled samples.
    scale_ : array of shape (d,) or None
        Their standard deviation, where features are divided by it.
    noise_variance_ : float
        Mean of the variances beyond K.
    n_components_, n_samples_, n_features_in_, n_nodes_, n_iter_ : int
        K, N, d, M and the iterations taken.
    node_components_ : array of shape (M, K, d)
        The estimate of each node; (1, K, d) at a process that is one node.
    node_names_ : tuple of str
        Names of the nodes; their numbers where they have none.
    weights_ : Weights
        The network.
    certificate_ : Certificate
        Bounds on the angles to the true components.
    traffic_ : Traffic
        What the whole fit sent.
    history_ : tuple of Record
        How the fit went, every few rounds.
    stop_reason_ : StopReason
        Why it ended.
    result_ : Result
        Components, certificate, traffic and history in one object.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenmesh import DecentralizedPCA
    >>> X, y = load_digits(return_X_y=True)
    >>> pca = DecentralizedPCA(n_components=3, n_nodes=8, topology="complete").fit(X)
    >>> pca.certificate_.error_bound < 1e-6
    True
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        solver: str | Solver = "auto",
        topology: Any = "erdos_renyi",
        n_nodes: int | None = None,
        weights: str = "metropolis",
        averaging: str | Averaging = "auto",
        split: str | Split = "random",
        tol: float = DEFAULT_TOL,
        max_rounds: int = DEFAULT_MAX_ROUNDS,
        step_size: float | str = "auto",
        scale: bool = False,
        whiten: bool = False,
        missing: Literal["error", "mean"] = "error",
        covariance: str = "auto",
        device: str | None = None,
        transport: Transport | str | None = None,
        random_state: Any = None,
        costs: Costs | None = None,
        callback: Callable[[Record], Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.topology = topology
        self.n_nodes = n_nodes
        self.weights = weights
        self.averaging = averaging
        self.split = split
        self.tol = tol
        self.max_rounds = max_rounds
        self.step_size = step_size
        self.scale = scale
        self.whiten = whiten
        self.missing = missing
        self.covariance = covariance
        self.device = device
        self.transport = transport
        self.random_state = random_state
        self.costs = costs
        self.callback = callback
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, nodes: Any = None) -> Self:
        """Find the principal components of the samples of all nodes.

        Parameters
        ----------
        X : array, memory map, sparse matrix, data frame or Source of shape (N, d)
            The samples; or a list of M of these; or Shards; or a dask array or data frame, whose blocks are the nodes.
            With a transport: the samples of this node.
        y : array of shape (N,) or None
            Labels, used only by the splits "label" and "dirichlet:...".
        nodes : array of shape (N,) or None
            The node that holds each sample, instead of a split.
        """
        request, engine = self._request(), self._engine()
        with ExitStack() as stack:
            callback = self._callback(stack)
            if is_dask(X):
                fitted = fit(prepare(request, self._dask_data(X, nodes)), callback=callback)
            elif engine is not None and engine.run_nodes is not None:
                shards, weights = self._problem(X, y, nodes, request.seed)
                fitted = fit_at_every_node(engine.run_nodes, request, shards, weights, callback)
            else:
                fitted = fit(prepare(request, self._data(X, y, nodes, request, stack)), callback=callback)
        self._set_fitted(fitted)
        if not self.result_.converged:
            warnings.warn(self._not_converged(), ConvergenceWarning, stacklevel=2)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one .npz file for ``eigenmesh.load_model`` and ``eigenmesh transform``."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        model = replace(
            model_of(self._fitted),
            feature_names=None if names is None else tuple(str(name) for name in names),
            # As transform is set up now, which may be otherwise than when it was fitted.
            whiten=self.whiten,
            missing=self.missing,
        )
        write_model(require_writable(path), model)

    def plan(self, X: Any, y: Any = None, nodes: Any = None, costs: Costs | None = None) -> Plan:
        """What every solver with every averaging would cost on these data, and which is best; nothing is fitted.

        Parameters
        ----------
        X, y, nodes : arrays
            As for ``fit``.
        costs : Costs or None
            As the parameter of that name, which it stands in for.
        """
        # On a copy, since checking X leaves its marks on an estimator, which may be fitted to something else.
        planned = clone(self).set_params(**({} if costs is None else {"costs": costs}))
        request = planned._request()
        with ExitStack() as stack:
            return plan(request, planned._data(X, y, nodes, request, stack))

    def _request(self) -> Request:
        """What the parameters ask for."""
        return Request.parse(
            n_components=self.n_components,
            solver=self.solver,
            averaging=self.averaging,
            step_size=self.step_size,
            tol=self.tol,
            max_rounds=self.max_rounds,
            scale=bool(self.scale),
            missing=self.missing,
            covariance=self.covariance,
            device=self.device,
            random_state=self.random_state,
            costs=self.costs,
        )

    def _callback(self, stack: ExitStack) -> Callback:
        """Tell the user's callback and, if asked for, the terminal."""
        listeners = [] if self.callback is None else [self.callback]
        if self.verbose:
            from eigenmesh.report._progress import live_progress

            listeners.append(stack.enter_context(live_progress(self.max_rounds)))

        def report(record: Record) -> None:
            for listener in listeners:
                listener(record)

        return report

    def _set_fitted(self, fitted: Fit) -> None:
        result, moments = fitted.result, fitted.moments
        self._fitted, self.result_ = fitted, result
        self.components_, self.node_components_ = result.components, result.node_components
        self.explained_variance_ = np.asarray(result.explained_variance, dtype=float)
        self.explained_variance_ratio_ = fitted.explained_variance_ratio
        self.singular_values_ = fitted.singular_values
        self.noise_variance_ = fitted.noise_variance
        self.mean_, self.scale_ = moments.mean, moments.scale
        self.n_components_, self.n_samples_ = len(result.explained_variance), moments.n_samples
        self.n_nodes_, self.weights_ = fitted.facts.n_nodes, fitted.weights
        self.node_names_ = fitted.facts.node_names or tuple(str(node) for node in range(self.n_nodes_))
        self.certificate_, self.history_ = result.certificate, result.history
        self.stop_reason_, self.n_iter_ = result.stop_reason, result.iterations
        self.traffic_ = result.traffic

    def _not_converged(self) -> str:
        bound = self.certificate_.error_bound
        return (
            f"stopped after {self.traffic_.rounds} rounds ({self.stop_reason_.label}): the angles to the true "
            f"components are bounded by {bound:.2g}, not by tol = {self.tol:g}. {self.stop_reason_.advice}"
        )

    def _engine(self) -> TransportKind | None:
        """The transport that is asked for by name."""
        named = self.transport is not None and not isinstance(self.transport, Transport)
        return transport_kind(self.transport, self.device) if named else None

    def _data(self, X: Any, y: Any, nodes: Any, request: Request, stack: ExitStack) -> NodeData:
        """Samples of all nodes, or of this node where each is a process; the stack closes its transport."""
        transport, engine = self.transport, self._engine()
        if engine is not None:
            all_here = engine.connect is None
            transport = None if all_here else stack.enter_context(transport_by_name(engine.name, self.device))
        if transport is None:
            return NodeData(*self._problem(X, y, nodes, request.seed))
        shards = self._own_shards(X, y, nodes, transport)
        return NodeData(shards, parse_weights(self.topology, self.weights, shards.n_nodes, request.seed), transport)

    def _problem(self, X: Any, y: Any, nodes: Any, seed: int) -> tuple[Shards, Any]:
        """Who holds what, and who talks to whom, where this process holds all nodes."""
        shards = self._shards(X, y, nodes, seed)
        return shards, parse_weights(self.topology, self.weights, shards.n_nodes, seed)

    def _dask_data(self, X: Any, nodes: Any) -> Data:
        from eigenmesh.dask._data import DaskData
        from eigenmesh.dask._scores import check_features

        if nodes is not None:
            raise InputError("nodes= splits one array; dask data are split by their chunks. Leave it out.")
        usual = type(self)().get_params(deep=False)
        for name in NOT_ON_DASK:
            value = getattr(self, name)
            if value is not usual[name] and not (isinstance(value, str) and value == usual[name]):
                raise InputError(
                    f"{name} = {value!r} has no meaning for dask data: every block is a node where it is, and Dask "
                    f"sums over them. Leave {name} out."
                )
        data = DaskData.of(X)
        if self.n_nodes not in (None, data.facts.n_nodes):
            raise InputError(
                f"n_nodes = {self.n_nodes}, but the data have {data.facts.n_nodes} blocks of rows and every block is a "
                "node. Leave n_nodes out, or rechunk the data."
            )
        check_features(self, X, reset=True)
        return data

    def _own_shards(self, X: Any, y: Any, nodes: Any, transport: Transport) -> Shards:
        """The samples of the node that this process is."""
        if y is not None or nodes is not None:
            raise InputError("y= and nodes= split one array; with a transport this process is one node.")
        if is_parts(X):
            raise InputError("with a transport this process is one node: give its own samples, not a list of parts.")
        if isinstance(X, Shards):
            return self._shards(X, None, None, seed=0)
        names = getattr(X, "columns", None)
        X = self._checked(X, reset=True, fewest=1)
        shards = Shards.from_list([X], ids=[transport.rank], n_nodes=transport.size)
        return shards if names is None else replace(shards, feature_names=tuple(str(name) for name in names))

    def _shards(self, X: Any, y: Any, nodes: Any, seed: int) -> Shards:
        if isinstance(X, Shards) or is_parts(X):
            if nodes is not None:
                raise InputError("nodes= goes with one array; the data given are already in parts.")
            shards = X if isinstance(X, Shards) else Shards.from_list(list(X))
            self.n_features_in_ = shards.n_features
            if shards.feature_names is not None:
                self.feature_names_in_ = np.asarray(shards.feature_names, dtype=object)
            elif hasattr(self, "feature_names_in_"):
                # Left over from an earlier fit.
                del self.feature_names_in_
            return shards
        X = self._checked(X, reset=True)
        if nodes is not None:
            return Shards.from_labels(X, nodes)
        n_nodes = count_nodes(self.topology, self.n_nodes, X.shape[0])
        return Shards.from_array(X, n_nodes, split_by_name(self.split, seed), y)


def is_parts(X: Any) -> bool:
    """True for a list of matrices; a nested list of numbers is one matrix."""
    return isinstance(X, Sequence) and len(X) > 0 and all(len(getattr(part, "shape", ())) == 2 for part in X)
