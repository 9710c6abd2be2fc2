"""DecentralizedPCA: the whole of eigenmesh behind scikit-learn's interface."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar, Literal, Self

from eigenmesh.averaging import Averaging
from eigenmesh.data import Split
from eigenmesh.estimator._in_notebooks import InNotebooks
from eigenmesh.estimator._inputs import connect, data_for, event_log
from eigenmesh.estimator._parameters import CONSTRAINTS, request_of
from eigenmesh.estimator._partial_fit import Streaming
from eigenmesh.estimator._planning import Planning
from eigenmesh.events import BatchChecked, Listener, Record
from eigenmesh.fitting import Costs, NodeData, fit, fit_at_every_node, prepare
from eigenmesh.iteration import DEFAULT_MAX_ROUNDS, DEFAULT_TOL
from eigenmesh.solvers import Solver
from eigenmesh.transports import Transport


class DecentralizedPCA(InNotebooks, Planning, Streaming):
    """Exact PCA of samples that are spread over the nodes of a network without a server.

    The fitted attributes are those of :class:`sklearn.decomposition.PCA`, and they are equal to what it gives on the
    pooled data, within ``tol``.

    Parameters
    ----------
    n_components : int, float or None
        K; or, between 0 and 1, the share of the variance to explain; None for min(N - 1, d).
    solver : str or Solver
        Name of a solver or a configured one, such as ``FastPCA(step_size=0.7)``. "auto" takes what the planner finds
        cheapest for data and network; it never takes a solver that sends covariances as such.
    topology : str, networkx graph, list of pairs, Weights or (M, M) matrix
        The network: a name for ``eigenmesh.graphs.topology``; a graph; its links, such as [("oslo", "bergen"), ..] or
        [(0, 1), ..]; a matrix of 0 and 1; or its weights. Nodes that have the names of the parts are matched to them.
    n_nodes : int or None
        M where the topology is a name. None: as many as the data have parts; 10 for one array, or fewer so that
        each node has at least two samples.
    weights : str
        How a graph gets its weights: "metropolis", "max_degree", "best_constant"; for one-way links "balanced", "push",
        "pull". "auto" is metropolis or, where links go one way, balanced.
    averaging : str or Averaging
        How exact averages are made: "tree", "factored", "polynomial", "chebyshev", "gossip"; "integers" for the same
        bits on any network and engine; "auto" takes the quickest but for "factored", whose search may take a minute.
    privacy : "open" or "masked"
        "masked": nobody sees what a node adds to an average, but only the sums over all nodes. Three nodes or more, and
        a solver that only averages; same rounds and bytes, in integers.
    split : str or Split
        How one array is split over the nodes: "random", "contiguous", "label" (by y), "dirichlet:0.1" (by y),
        "sizes:10,20".
    partition : "samples" or "features"
        What nodes have of their own: samples of the same features, or features of the same samples in the same order.
        With "features", parts and ``split`` are of columns, and the scores of all samples become known to all nodes;
        a process that is one node has the loadings of its own columns alone.
    tol : float
        Bound on sin(angle) between every component at every node and the true one.
    max_rounds : int
        Budget of neighbour exchanges.
    step_size : float or "auto"
        Step of the solvers that have one and are given by name.
    scale : bool or "binomial"
        Divide each feature by its pooled standard deviation: correlation PCA. "binomial" is for genotypes, 0, 1 or 2
        copies of an allele: divide by sqrt(2 p (1 - p)) with the pooled frequency p; missing ones count as 2 p, and
        variants that are the same in all samples are left out.
    whiten : bool
        Give ``transform`` outputs unit variance.
    missing : "error" or "mean"
        What to do with NaN and infinite entries: name the first, or put the pooled mean there.
    covariance : "auto", "formed", "matrix-free", "chunked" or "sparse"
        How products with a node's covariance are made.
    device : str or None
        Where arrays are: "cpu", "cuda", "cuda:1" for PyTorch; None for where the samples lie, which is NumPy unless
        they are on a GPU.
    transport : Transport, "threads", "mpi", "torch" or None
        None simulates all nodes in this process, "threads" runs each of them in a thread. Otherwise this process is one
        node, ``fit`` is given this node's samples alone, and all processes call it alike; a name joins the processes
        that the engine has started.
    random_state : int, RandomState or None
        Seed of the split, the graph and the start. None: the nodes draw that of the start together at run time, so
        that no data can know it; split and graph are then always the same. ``result_.seed`` repeats the fit.
    costs : Costs or None
        Latency, bandwidth, speed and memory of the nodes, by which "auto" decides; None for the defaults.
    forgetting : float
        What a sample still counts after one more batch of ``partial_fit``, in (0, 1]; 1 forgets nothing.
    window : int or None
        Only the samples of so many batches of ``partial_fit`` count; None for all. The nodes keep their rows.
    store : path or None
        Folder where ``partial_fit`` keeps rows in files instead of d x d moments in memory; the answer is the same.
        None: moments if those of the nodes held here fit into 2 GiB, else the folder for temporary files. Files take
        as much as the rows that count, and go with the estimator.
    sketch : int or None
        Rows of a Frequent Directions sketch that each node of ``partial_fit`` keeps, twice as many at times, instead of
        moments or rows: a fixed size for any d and any number of samples. The components are then not exact, nothing is
        certified, and that is said after every batch.
    averages_per_batch : int or None
        Budget of ``partial_fit``, at least 2 averages for each batch; the certificate says how good the components are.
        None: as many as ``tol`` needs.
    on_alarm : callable or None
        Called with ``batch_`` where a batch of ``partial_fit`` is unlike those before it.
    callback : callable or None
        Called with a ``Record`` every few rounds.
    on_event : callable or None
        Called with every ``Entry`` of the event log, such as ``JsonlWriter("run.jsonl")`` of ``eigenmesh.events``.
    verbose : bool
        Show live progress: on standard error, or in Jupyter and marimo as a picture in the notebook.

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
        K, N (the sum of the weights where samples have any), d, M and the iterations taken.
    n_samples_seen_ : int
        Samples of all batches of ``partial_fit``, at this process; ``n_samples_`` is then what they still count.
    batch_ : BatchChecked or None
        After ``partial_fit``: how the last batch looks beside those before it. None for the first one.
    batch_residuals_ : array of shape (d,) or None
        Mean squared residual of each feature in that batch, about the components before it.
    node_components_ : array of shape (M, K, d)
        The estimate of each node; (1, K, d) at a process that is one node.
    scores_ : array of shape (N, K)
        Scores of the samples that were fitted, the same at all nodes; only with partition="features".
    node_names_ : tuple of str
        Names of the nodes; their numbers where they have none.
    weights_ : Weights
        The network, as the topology and its weights came out; one node where Dask sums over all blocks.
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
    fitted_ : Fit
        The result with moments, network and what was asked for, as functions of ``eigenmesh.fitting`` take it.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenmesh import DecentralizedPCA
    >>> X, y = load_digits(return_X_y=True)
    >>> pca = DecentralizedPCA(n_components=3, n_nodes=8, topology="complete").fit(X)
    >>> pca.certificate_.error_bound < 1e-6
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS

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
        step_size: float | str = "auto",
        scale: bool | Literal["binomial"] = False,
        whiten: bool = False,
        missing: Literal["error", "mean"] = "error",
        covariance: str = "auto",
        device: str | None = None,
        transport: Transport | str | None = None,
        random_state: Any = None,
        costs: Costs | None = None,
        forgetting: float = 1.0,
        window: int | None = None,
        store: str | os.PathLike[str] | None = None,
        sketch: int | None = None,
        averages_per_batch: int | None = None,
        on_alarm: Callable[[BatchChecked], Any] | None = None,
        callback: Callable[[Record], Any] | None = None,
        on_event: Listener | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components, self.solver, self.step_size = n_components, solver, step_size
        self.topology, self.n_nodes, self.weights = topology, n_nodes, weights
        self.averaging, self.random_state = averaging, random_state
        self.split, self.partition = split, partition
        self.privacy = privacy
        self.tol, self.max_rounds, self.costs = tol, max_rounds, costs
        self.scale, self.whiten, self.missing = scale, whiten, missing
        self.covariance, self.device, self.transport = covariance, device, transport
        self.forgetting, self.window, self.store = forgetting, window, store
        self.sketch, self.averages_per_batch, self.on_alarm = sketch, averages_per_batch, on_alarm
        self.callback, self.on_event, self.verbose = callback, on_event, verbose

    def fit(self, X: Any, y: Any = None, nodes: Any = None, sample_weight: Any = None) -> Self:
        """Find the principal components of the samples of all nodes.

        Parameters
        ----------
        X : array, CUDA tensor, memory map, sparse matrix, data frame or Source of shape (N, d)
            The samples; or a list of M of these, or a dict with the names of the nodes; or a list of files, one per
            node; or Shards; or a dask array or data frame, whose blocks are the nodes. Data frames may be of pandas,
            polars, pyarrow or any library that narwhals knows. With a transport: the samples of this node.
        y : array of shape (N,) or None
            Labels, used only by the splits "label" and "dirichlet:...".
        nodes : array of shape (N,), str or None
            The node that holds each sample, or the column of a data frame that says so, instead of a split.
        sample_weight : array of shape (N,) or None
            How many equal samples each row stands for, 0 or more; where X has parts, a list or dict of such arrays. The
            answer is that of repeated rows, and their sum stands for N.
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
        # A stream ends here: its moments are not those of these samples.
        self.__dict__.pop("_stream", None)
        self._warn_unless_converged()
        return self
