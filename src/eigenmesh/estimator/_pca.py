"""DecentralizedPCA: the whole of eigenmesh behind scikit-learn's interface."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from eigenmesh import graphs
from eigenmesh._atomic_write import require_writable
from eigenmesh.arrays import namespace_for
from eigenmesh.averaging import AllReduce, Averaging, averaging_by_name
from eigenmesh.dask import is_dask
from eigenmesh.data import (
    Covariance,
    CovarianceKind,
    Moments,
    Shards,
    Split,
    build_covariance,
    pooled_moments,
    split_by_name,
)
from eigenmesh.errors import InputError
from eigenmesh.estimator._fitted_model import model_of
from eigenmesh.estimator._projection import Projection
from eigenmesh.fitting._matching import take_census
from eigenmesh.fitting._planner import Costs, Plan, cheapest_averaging, plan
from eigenmesh.fitting._resolve import (
    averaging_or_auto,
    components_of,
    covariance_kind,
    device_of,
    is_parts,
    nodes_of,
    require_exact,
    seed_of,
    solver_or_auto,
    weights_of,
)
from eigenmesh.iteration._result import Record, Result
from eigenmesh.iteration._run import DEFAULT_MAX_ROUNDS, DEFAULT_TOL, require_settings, run
from eigenmesh.iteration._variance import run_to_fraction
from eigenmesh.model_file import write_model
from eigenmesh.networks import Network, Peers, Stacked, Traffic
from eigenmesh.report._progress import live_progress
from eigenmesh.solvers import BlockKrylov, Solver, solver_by_name
from eigenmesh.transports import Transport, transport_by_name


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
        How one array is dealt out: "random", "contiguous", "label" (by y), "dirichlet:0.1" (by y), "sizes:10,20".
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
        Where arrays lie: None for NumPy; "cpu", "cuda", "cuda:1" for PyTorch.
    transport : Transport, "mpi", "torch" or None
        None simulates all nodes in this process. Otherwise this process is one node, ``fit`` is given this node's
        samples alone, and all processes call it alike; a name joins the processes that the engine has started.
    random_state : int, RandomState or None
        Seed of the split, the graph and the start. None is a fixed seed, since all nodes must share it.
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
        The estimate of each node; (1, K, d) with a transport.
    certificate_ : Certificate
        Bounds on the angles to the true components.
    traffic_ : Traffic
        What the whole fit sent.
    census_traffic_ : Traffic
        What was sent before it, to see that the data of all processes fit together; nothing in a simulation.
    history_ : tuple of Record
        How the fit went, every few rounds.
    stop_reason_ : StopReason
        Why it ended.
    result_ : Result
        All of the above in one object.

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
        self.callback = callback
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, nodes: Any = None) -> Self:
        """Find the principal components of the samples of all nodes.

        Parameters
        ----------
        X : (N, d) array, memory map, sparse matrix or data frame; or a list of M of them; or Shards; or a dask array or
            data frame, whose blocks are the nodes. With a transport: this node's own samples.
        y : (N,) labels, used only by the splits "label" and "dirichlet:...".
        nodes : (N,) the node that holds each sample, instead of a split.
        """
        # Everything that can be wrong without looking at the data is looked at first.
        seed = seed_of(self.random_state)
        solver_or_auto(self.solver, self.step_size)
        averaging_or_auto(self.averaging)
        kind = covariance_kind(self.covariance)
        require_settings(self.tol, self.max_rounds)
        if is_dask(X):
            self._fit_dask(X, nodes, kind, seed)
        else:
            with ExitStack() as stack:
                transport = self.transport
                if isinstance(transport, str):
                    transport = stack.enter_context(transport_by_name(transport, device=self.device))
                self._fit(X, y, nodes, kind, seed, transport)
        if not self.result_.converged:
            warnings.warn(self._not_converged(), ConvergenceWarning, stacklevel=2)
        return self

    def _fit(
        self, X: Any, y: Any, nodes: Any, kind: CovarianceKind | None, seed: int, transport: Transport | None
    ) -> None:
        xp, device = namespace_for(self.device if transport is None else device_of(transport, self.device))
        shards, weights, wanted = self._problem(X, y, nodes, seed, transport)
        expected = wanted if isinstance(wanted, int) else min(10, shards.n_features)
        solver, averaging = self.choose_method(shards, weights, expected, transport)
        network = Stacked(weights, averaging) if transport is None else Peers(weights, transport, averaging)
        require_exact(network.average.accuracy)

        moments = pooled_moments(shards, network, scale=bool(self.scale), missing=self.missing)
        covariance = build_covariance(
            shards,
            moments,
            kind=kind,
            n_components=solver.columns(expected, shards.n_features),
            products=solver.traits.expected_products,
            xp=xp,
            device=device,
        )
        self.result_ = self._run(solver, covariance, network, wanted, moments, seed)
        self._set_fitted(self.result_, moments, network)

    def _fit_dask(self, X: Any, nodes: Any, kind: CovarianceKind | None, seed: int) -> None:
        from eigenmesh.dask._problem import dask_problem

        problem = dask_problem(self, X, nodes, kind)
        self.result_ = self._run(
            problem.solver, problem.covariance, problem.network, problem.wanted, problem.moments, seed
        )
        self._set_fitted(self.result_, problem.moments, problem.network)
        self.n_nodes_ = problem.n_blocks

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one .npz file for ``eigenmesh.load_model`` and ``eigenmesh transform``."""
        check_is_fitted(self)
        write_model(require_writable(path), model_of(self))

    def plan(self, X: Any, y: Any = None, nodes: Any = None, costs: Costs | None = None) -> Plan:
        """What every solver with every averaging would cost on these data, and which is best; nothing is fitted.

        Parameters
        ----------
        X, y, nodes : as for ``fit``.
        costs : latency, bandwidth, speed and memory of the nodes; None for the defaults of ``eigenmesh.Costs``.
        """
        # On a copy, since checking X leaves its marks on an estimator, which may be fitted to something else.
        shards, weights, wanted = clone(self)._problem(X, y, nodes, seed_of(self.random_state))
        expected = wanted if isinstance(wanted, int) else min(10, shards.n_features)
        return plan(shards, weights, expected, tol=self.tol, costs=costs, scale=bool(self.scale), missing=self.missing)

    def _problem(
        self, X: Any, y: Any, nodes: Any, seed: int, transport: Transport | None = None
    ) -> tuple[Shards, graphs.Weights, int | float]:
        """Who holds what, who talks to whom, and how many components are wanted."""
        shards = self._shards(X, y, nodes, seed) if transport is None else self._own_shards(X, y, nodes, transport)
        weights = weights_of(self.topology, self.weights, shards.n_nodes, seed)
        if transport is None:
            n_samples, self.census_traffic_ = sum(block.n_rows for block in shards.blocks), Traffic()
        else:
            n_samples, self.census_traffic_ = take_census(shards, weights, transport)
        return shards, weights, components_of(self.n_components, n_samples, shards.n_features)

    def choose_method(
        self, shards: Shards, weights: graphs.Weights, k: int, transport: Transport | None = None
    ) -> tuple[Solver, Averaging]:
        """The solver and the averaging that ``fit`` uses for K = k: as asked for, planned where left open."""
        solver, averaging = solver_or_auto(self.solver, self.step_size), averaging_or_auto(self.averaging)
        if transport is not None:
            # All processes must choose alike, and none knows how many samples the others hold.
            usual = AllReduce() if transport.reduces else cheapest_averaging(weights, shards.n_features * k)
            return solver or BlockKrylov(), averaging or usual
        if solver is None and averaging is None:
            best = plan(shards, weights, k, tol=self.tol, rehearse=False).best
            return solver_by_name(best.solver), averaging_by_name(best.averaging)
        return solver or BlockKrylov(), averaging or cheapest_averaging(weights, shards.n_features * k)

    def _run(
        self,
        solver: Solver,
        covariance: Covariance,
        network: Network,
        wanted: int | float,
        moments: Moments,
        seed: int,
    ) -> Result:
        with live_progress(self.max_rounds) if self.verbose else nullcontext() as show:

            def report(record: Record) -> None:
                for listener in (show, self.callback):
                    if listener is not None:
                        listener(record)

            settings: dict[str, Any] = {
                "tol": self.tol,
                "max_rounds": self.max_rounds,
                "seed": seed,
                "callback": report,
            }
            if isinstance(wanted, int):
                return run(solver, covariance, network, wanted, **settings)
            limit = min(moments.n_samples - 1, covariance.n_features)
            return run_to_fraction(solver, covariance, network, wanted, moments.total_variance, limit=limit, **settings)

    def _set_fitted(self, result: Result, moments: Moments, network: Network) -> None:
        n_samples, total = moments.n_samples, moments.total_variance
        values = np.asarray(result.explained_variance, dtype=float)
        beyond = min(n_samples, len(moments.mean)) - len(values)
        self.components_ = result.components
        self.node_components_ = result.node_components
        self.explained_variance_ = values
        self.explained_variance_ratio_ = values / total
        self.singular_values_ = np.sqrt(np.maximum(values, 0) * (n_samples - 1))
        self.noise_variance_ = max(total - float(values.sum()), 0.0) / beyond if beyond > 0 else 0.0
        self.mean_, self.scale_ = moments.mean, moments.scale
        self.n_components_, self.n_samples_, self.n_nodes_ = len(values), n_samples, network.n_nodes
        self.certificate_, self.history_ = result.certificate, result.history
        self.stop_reason_, self.n_iter_ = result.stop_reason, result.iterations
        self.traffic_ = network.traffic.copy()

    def _not_converged(self) -> str:
        bound = self.certificate_.error_bound
        return (
            f"stopped after {self.traffic_.rounds} rounds ({self.stop_reason_.label}): the angles to the true "
            f"components are bounded by {bound:.2g}, not by tol = {self.tol:g}. {self.stop_reason_.advice}"
        )

    def _own_shards(self, X: Any, y: Any, nodes: Any, transport: Transport) -> Shards:
        """The samples of the node that this process is."""
        if y is not None or nodes is not None:
            raise InputError("y= and nodes= deal out one array; with a transport this process is one node.")
        if is_parts(X):
            raise InputError("with a transport this process is one node: give its own samples, not a list of parts.")
        if isinstance(X, Shards):
            if X.ids != (transport.rank,) or X.n_nodes != transport.size:
                raise InputError(
                    f"this process is node {transport.rank} of {transport.size}; the shards are of nodes "
                    f"{list(X.ids)} of {X.n_nodes}."
                )
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
        split = split_by_name(self.split, seed) if isinstance(self.split, str) else self.split
        return Shards.from_array(X, nodes_of(self.topology, self.n_nodes, X.shape[0]), split, y)
