"""Run a prepared fit, and collect everything that is saved or shown with the components."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.averaging import name_of
from eigenmesh.data import Choice, Moments
from eigenmesh.data._feature_shards import FeatureShards
from eigenmesh.data._gram import ColumnMoments
from eigenmesh.events import CertificateInWords, EventLog, LinkTraffic, Started
from eigenmesh.fitting._data import NodeData
from eigenmesh.fitting._facts import DataFacts
from eigenmesh.fitting._loadings import in_columns
from eigenmesh.fitting._one_result import of_one_node
from eigenmesh.fitting._prepare import Prepared, prepare
from eigenmesh.fitting._stream import BatchSums, StreamData
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.iteration import Result, run
from eigenmesh.iteration._variance import run_to_fraction
from eigenmesh.networks import Network
from eigenmesh.settings import Request
from eigenmesh.solvers._bases import random_basis
from eigenmesh.solvers._step_size import common_basis
from eigenmesh.transports import Transport


@dataclass(frozen=True, eq=False)
class Fit:
    """Components, and everything that is saved or shown with them.

    Attributes
    ----------
    components : array of shape (K, d)
        Loadings of the columns in this process: those of ``result`` or, if columns are split, of this node's columns.
    noise_variance : float
        Mean variance of the directions beyond component K.
    scores : array of shape (N, K) or None
        Scores of all samples if columns are split; ``result`` then has their directions, which all nodes share.
    averaging : str
        Name of the averaging.
    choice : Choice
        How the covariances were stored.
    checked : BatchSums or None
        Sums over the last batch of a stream.
    """

    request: Request
    facts: DataFacts
    result: Result
    moments: Moments
    noise_variance: float
    weights: Weights | NetworkSequence
    averaging: str
    choice: Choice
    components: np.ndarray
    scores: np.ndarray | None = None
    checked: BatchSums | None = None

    @property
    def node_components(self) -> np.ndarray:
        """The estimate of each node in this process: (nodes, K, d)."""
        if self.scores is None:
            return self.result.node_components
        # All are computed from the directions that all nodes share.
        return np.broadcast_to(self.components, (len(self.result.node_components), *self.components.shape))

    @property
    def total_variance(self) -> float:
        """Trace of the pooled covariance."""
        return self.moments.total_variance

    @property
    def explained_variance_ratio(self) -> np.ndarray:
        """Share of the total variance of each component: (K,)."""
        return np.asarray(self.result.explained_variance / self.total_variance)

    @property
    def singular_values(self) -> np.ndarray:
        """Singular values of the centred pooled samples: (K,)."""
        return np.asarray(np.sqrt(np.maximum(self.result.explained_variance, 0) * (self.moments.n_samples - 1)))


def fit(
    prepared: Prepared,
    start: np.ndarray | None = None,
    *,
    average_start: bool = False,
    events: EventLog | None = None,
    on_estimate: Callable[[np.ndarray], Any] | None = None,
    reference: np.ndarray | None = None,
    check_every: int | None = None,
    share: bool = False,
    max_iterations: int | None = None,
    keep: int = 0,
) -> Fit:
    """Find the components.

    Parameters
    ----------
    start : array of shape (d, K) or None
        Start with orthonormal columns, the same at every node; None for a random one.
    average_start : bool
        True if ``start`` is this node's own estimate, or None if it has none: all nodes then start from the average of
        these. It must be the same at all nodes.
    events, on_estimate, reference, check_every
        As for ``run``.
    share : bool
        True for components, variances and bounds with the same bits at all nodes, whatever their processors: those of
        one node are sent to all, which compare them with their own. Integer averages imply it if the bits of the nodes
        differ.
    max_iterations, keep
        As for ``run``.
    """
    request, network = prepared.request, prepared.network
    events = EventLog() if events is None else events
    names = prepared.facts.node_names or tuple(str(node) for node in range(prepared.facts.n_nodes))
    events.emit(_started(prepared, names))
    wanted, before, set_up_exchanges = prepared.n_components, network.traffic.copy(), network.exchanges.copy()
    if average_start and isinstance(wanted, int):
        start = _averaged(prepared, start, wanted)
    result = _run(
        prepared,
        start,
        check_every=check_every,
        events=events,
        on_estimate=on_estimate,
        reference=reference,
        max_iterations=max_iterations,
        keep=keep,
        spent={"set-up": prepared.set_up + (network.traffic - before)},
    )
    # Everything computed below from shared components and agreed numbers is the same at all nodes.
    if (share or network.integers) and not result.alike:
        result = of_one_node(network, result, events)
    result, components, scores = in_columns(prepared.covariance, result, prepared.moments.n_samples)
    if events.listeners:
        _emit_end(events, network, names, result.certificate_words(request.tol))
    # The next fit with the same preparation counts the set-up and its own rounds, not those of this fit.
    network.exchanges = set_up_exchanges
    return Fit(
        request,
        prepared.facts,
        result,
        prepared.moments,
        _noise_variance(prepared.moments, result),
        prepared.weights,
        name_of(prepared.averaging),
        prepared.choice,
        components,
        scores,
        getattr(prepared.covariance, "checked", None),
    )


def _run(prepared: Prepared, start: np.ndarray | None, **settings: Any) -> Result:
    """Run with the requested number of components, or with as many as the requested share of the variance needs."""
    request, wanted, total = prepared.request, prepared.n_components, prepared.moments.total_variance
    settings |= {"tol": request.tol, "max_rounds": request.max_rounds}
    settings |= {"seed": prepared.seed, "drawn": request.seed is None}
    problem = prepared.solver, prepared.covariance, prepared.network
    if isinstance(wanted, int):
        return run(*problem, wanted, basis=start, total_variance=total, **settings)
    return run_to_fraction(*problem, wanted, total, prepared.largest_k, **settings)


def _started(prepared: Prepared, names: tuple[str, ...]) -> Started:
    request, network = prepared.request, prepared.network
    return Started(
        prepared.solver.name,
        name_of(prepared.averaging),
        names,
        tuple((names[i], names[j]) for i, j in network.links),
        prepared.facts.n_features,
        prepared.n_components,
        request.tol,
        request.max_rounds,
    )


def _emit_end(events: EventLog, network: Network, names: tuple[str, ...], words: CertificateInWords) -> None:
    """Emit the traffic of each link, and the certificate in words."""
    for (sender, receiver), sent in network.link_traffic().items():
        events.emit(LinkTraffic(names[sender], names[receiver], *sent))
    events.emit(words)


def _averaged(prepared: Prepared, own: np.ndarray | None, k: int) -> np.ndarray:
    """One orthonormal basis (d, K) for all nodes: the average of their estimates, random at a node without one."""
    shape = (prepared.facts.length, k)
    if own is None or own.shape != shape:
        own = random_basis(*shape, prepared.seed)
    everywhere = common_basis(prepared.network, prepared.covariance.place(own[np.newaxis]))
    return np.asarray(ea.to_numpy(everywhere)[0])


def _noise_variance(moments: Moments, result: Result) -> float:
    """Mean of the eigenvalues beyond K, as scikit-learn counts them: min(N, d) - K of them."""
    beyond = min(int(moments.n_samples), moments.n_features) - len(result.explained_variance)
    return result.variance_left / beyond if beyond > 0 else 0.0


def fit_at_every_node(
    run_nodes: Callable[..., list[Fit]],
    request: Request,
    data: NodeData | StreamData,
    events: EventLog | None = None,
    **settings: Any,
) -> Fit:
    """Fit with all nodes in this process, each at its own end of a transport: real messages, nothing to launch.

    ``run_nodes``, from the registry of transports, starts the nodes; only node 0 reports to ``events``. ``settings``
    are those of ``fit``.
    """

    def node(transport: Transport) -> Fit:
        own = data.at_node(transport)
        return fit(prepare(request, own), events=events if transport.rank == 0 else None, **settings)

    fits = run_nodes(data.facts.n_nodes, node)
    everyone = np.concatenate([each.result.node_components for each in fits])
    first = replace(fits[0], result=replace(fits[0].result, node_components=everyone))
    shards = getattr(data, "shards", None)
    if not isinstance(shards, FeatureShards) or not isinstance(first.moments, ColumnMoments):
        return first
    order = shards.order
    moments = ColumnMoments.together([each.moments for each in fits], order, first.moments)
    components = np.concatenate([each.components for each in fits], axis=1)[:, order]
    return replace(first, facts=data.facts, moments=moments, components=components)
