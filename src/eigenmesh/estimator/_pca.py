"""DecentralizedPCA: the whole of eigenmesh behind scikit-learn's interface."""

from contextlib import ExitStack
from typing import Any, Self, Unpack

from sklearn.base import clone

from eigenmesh.errors import InputError
from eigenmesh.estimator._inputs import connect, data_for, event_log
from eigenmesh.estimator._projection import FittedPCA, takes_settings
from eigenmesh.fitting import ColumnData, Costs, NodeData, Plan, fit, fit_at_every_node, plan, prepare
from eigenmesh.settings import ONE_FIT, OfOneFit


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
