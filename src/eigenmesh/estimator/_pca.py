"""DecentralizedPCA: the whole of eigenmesh behind scikit-learn's interface."""

from contextlib import ExitStack
from typing import Any, ClassVar, Literal, Self

from sklearn.base import clone

from eigenmesh.averaging import Averaging
from eigenmesh.data import Split
from eigenmesh.errors import InputError
from eigenmesh.estimator._inputs import connect, data_for, event_log
from eigenmesh.estimator._parameters import OF_ONE_FIT, request_of
from eigenmesh.estimator._projection import FittedPCA
from eigenmesh.events import Listener
from eigenmesh.fitting import ColumnData, Costs, NodeData, Plan, fit, fit_at_every_node, plan, prepare
from eigenmesh.iteration import DEFAULT_MAX_ROUNDS, DEFAULT_TOL
from eigenmesh.solvers import Solver
from eigenmesh.transports import Transport


class DecentralizedPCA(FittedPCA):
    """Exact PCA of samples that are spread over the nodes of a network, without a server.

    The fitted attributes are those of :class:`sklearn.decomposition.PCA` on the pooled data, within ``tol``.

    Parameters
    ----------
    n_components : int, float or None
        K; or, between 0 and 1, the share of the variance to explain; None for min(N - 1, d).
    solver : str or Solver
        Name of a solver, or a solver object such as ``FastPCA(step_size=0.7)``. "auto" is the fastest one for data and
        network by the planner, but never a solver that sends covariance matrices.
    topology : str, networkx graph, list of pairs, Weights or (M, M) matrix
        The network: a name for ``eigenmesh.graphs.topology``; a graph; its links, such as [("oslo", "bergen"), ..] or
        [(0, 1), ..]; a matrix of 0 and 1; or its weights. Nodes with the names of the parts are matched to them.
    n_nodes : int or None
        M if the topology is a name. None: as many as the data have parts; for one array 10, or fewer so that each node
        has at least two samples.
    weights : str
        Rule for the weights of a graph: "metropolis", "max_degree", "best_constant"; for one-way links "balanced",
        "push", "pull". "auto" is metropolis or, for one-way links, balanced.
    averaging : str or Averaging
        How exact averages are computed: "tree", "factored", "polynomial", "chebyshev", "gossip"; "integers" for the
        same bits on any network and engine; "auto" is the fastest, except "factored", whose search may take a minute.
    privacy : "open" or "masked"
        "masked": only sums over all nodes are revealed, never what a single node adds. It needs at least three nodes,
        and a solver that only averages; it takes the rounds and bytes of integer averages.
    split : str or Split
        How one array is split over the nodes: "random", "contiguous", "label" (by y), "dirichlet:0.1" (by y),
        "sizes:10,20".
    partition : "samples" or "features"
        What is split over the nodes: samples with the same features, or features of the same samples in the same order.
        With "features", parts and ``split`` are of columns, and all nodes learn the scores of all samples; a process
        that is one node has only the loadings of its own columns.
    tol : float
        Bound on sin(angle) between every component at every node and the true one.
    max_rounds : int
        Budget of neighbour exchanges.
    scale : bool or "binomial"
        Divide each feature by its pooled standard deviation: correlation PCA. "binomial" is for genotypes, 0, 1 or 2
        copies of an allele: divide by sqrt(2 p (1 - p)) with the pooled frequency p; missing entries count as 2 p, and
        variants that are constant over all samples are left out.
    whiten : bool
        Give ``transform`` outputs unit variance.
    missing : "error" or "mean"
        What to do with NaN and infinite entries: raise an error that names the first, or use the pooled mean instead.
    covariance : "auto", "formed", "matrix-free", "chunked" or "sparse"
        How products with a node's covariance are computed.
    device : str or None
        Device of the arrays: "cpu", "cuda", "cuda:1" for PyTorch; None for that of the samples, which is NumPy unless
        they are on a GPU.
    transport : Transport, "threads", "mpi", "torch" or None
        None simulates all nodes in this process; "threads" runs each of them in a thread. Otherwise this process is one
        node: ``fit`` takes only the samples of this node, and all processes must call it in the same way. A name joins
        the processes that the engine has started.
    random_state : int, RandomState or None
        Seed of the split, the graph and the start. None: the nodes draw the seed of the start together at run time, so
        that the data cannot depend on it; split and graph are then always the same. ``result_.seed`` repeats the fit.
    costs : Costs or None
        Latency, bandwidth, speed and memory of the nodes, for the choices of "auto"; None for the defaults.
    on_event : callable or None
        Called with every ``Entry`` of the event log. ``eigenmesh.events`` has some: ``JsonlWriter("run.jsonl")`` writes
        them to a file, and ``on_record(function)`` calls a function with every ``Record`` of the history.
    verbose : bool
        Show live progress: on standard error, or in Jupyter and marimo as a picture in the notebook.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = OF_ONE_FIT

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        solver: str | Solver = "auto",
        topology: Any = "erdos_renyi",
        n_nodes: int | None = None,
        weights: str = "auto",
        averaging: str | Averaging = "auto",
        privacy: Literal["open", "masked"] = "open",
        split: str | Split = "random",
        partition: Literal["samples", "features"] = "samples",
        tol: float = DEFAULT_TOL,
        max_rounds: int = DEFAULT_MAX_ROUNDS,
        scale: bool | Literal["binomial"] = False,
        whiten: bool = False,
        missing: Literal["error", "mean"] = "error",
        covariance: str = "auto",
        device: str | None = None,
        transport: Transport | str | None = None,
        random_state: Any = None,
        costs: Costs | None = None,
        on_event: Listener | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components, self.solver = n_components, solver
        self.topology, self.n_nodes, self.weights = topology, n_nodes, weights
        self.averaging, self.random_state = averaging, random_state
        self.split, self.partition = split, partition
        self.privacy = privacy
        self.tol, self.max_rounds, self.costs = tol, max_rounds, costs
        self.scale, self.whiten, self.missing = scale, whiten, missing
        self.covariance, self.device, self.transport = covariance, device, transport
        self.on_event, self.verbose = on_event, verbose

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
        request = request_of(self)
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
        request = request_of(planned)
        with ExitStack() as stack:
            transport, _ = connect(planned, X, stack)
            data = data_for(planned, X, y, nodes, request.layout_seed, transport)
            if not isinstance(data, NodeData):
                raise InputError("dask data support only fit and transform: there is no network to plan for.")
            if isinstance(data, ColumnData):
                raise InputError('a plan is for partition="samples"; split columns are fitted without one.')
            return plan(request, data)
