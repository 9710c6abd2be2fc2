"""Run a prepared fit, and collect everything that is saved or shown with the components."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.averaging import name_of
from eigenmesh.certificate import GivenComponents
from eigenmesh.data import Choice, Covariance, Gram, Moments, NamedComponents, lifted
from eigenmesh.errors import InputError, TransportError
from eigenmesh.events import EventLog, LinkTraffic, Started
from eigenmesh.fitting.node_data import BatchSums, ColumnData, Data, DataFacts, NodeData
from eigenmesh.fitting.prepare import Prepared, prepare
from eigenmesh.fitting.stream import StreamData
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.iteration import Result, run, run_to_fraction
from eigenmesh.model import Model
from eigenmesh.networks import Network
from eigenmesh.settings import Request
from eigenmesh.solvers import common_basis, random_basis
from eigenmesh.transports import Transport

# One result for all nodes, whose own results may differ in the last bits because their processors do.


# Components of two nodes may differ by rounding, even if the certificate's bound is smaller.
SHARED_ROUNDING = 1e-7
# Rows that are sent with each component: its variance, its bound and the variance that is left.
SHARED_ROWS = 3


def of_one_node(network: Network, result: Result, events: EventLog) -> Result:
    """The result with components, variances and bounds replaced by those of one node, at all nodes."""
    before, certificate, k = network.traffic.copy(), result.certificate, len(result.components)
    left = np.full(k, result.variance_left)
    own = np.vstack([result.components.T, result.explained_variance, certificate.error_bounds, left])
    common = network.broadcast(np.broadcast_to(own, (len(network.ids), *own.shape)))[0]
    components = np.ascontiguousarray(common[:-SHARED_ROWS].T)
    variances, bounds, left = common[-SHARED_ROWS:]
    # Both are within the bound of the true components, up to rounding.
    shift = np.abs(variances - result.explained_variance).max() / result.explained_variance.max()
    distance = max(np.abs(components - result.components).max(), shift)
    limit = 4 * certificate.error_bound + SHARED_ROUNDING
    if not distance <= limit:
        differs = f"the common result differs by {distance:.1e} from this node's, more than {limit:.1e}"
        raise TransportError(f"{differs}: one of the nodes has computed a wrong result.")
    spent = network.traffic - before
    total = result.traffic + spent
    record = result.history[-1]._replace(**vars(total))
    events.emit(record)
    return replace(
        result,
        components=components,
        node_components=np.broadcast_to(components, result.node_components.shape),
        explained_variance=variances,
        variance_left=float(left[0]),
        certificate=replace(certificate, error_bounds=bounds),
        traffic=total,
        traffic_by_phase={**result.traffic_by_phase, "result": spent},
        history=(*result.history[:-1], record),
    )


# From directions of scores, which all nodes share, to loadings of each node's own columns.


# The first entry of at least this share of the largest one determines the sign, so that rounding does not.
AS_LARGE = 0.999


def in_columns(
    covariance: Covariance, result: Result, n_samples: float
) -> tuple[Result, np.ndarray, np.ndarray | None]:
    """The result, components (K, d) of the columns in this process and, if columns are split, all scores (N, K).

    With split columns the result contains ``u``, (K, N), with its largest entry positive; loadings are
    ``v_j = A_j^T u / sqrt(theta)`` of each node in this process, and scores ``u sqrt(theta (N - 1))``.
    """
    if not isinstance(covariance, Gram):
        return result, result.components, None
    # A component without variance has no loadings; its bound in the certificate says so.
    deviations = np.sqrt(np.maximum(result.explained_variance, np.finfo(float).tiny))[:, np.newaxis]
    directions = lifted(result.components.T).T
    signs = _signs(directions)
    placed = covariance.place(np.ascontiguousarray(result.components.T)[np.newaxis])
    # The operators have a factor of M, so that their average is the sum.
    products = np.concatenate([ea.to_numpy(part).T for part in covariance.across(placed)], axis=1)
    loadings = signs * products[:, covariance.order] / (covariance.n_nodes**0.5 * deviations)
    # Components are rows, and `lifted` takes columns.
    local = signs * lifted(ea.held(result.node_components).mT).mT
    everyone = np.broadcast_to(local, (len(result.node_components), *local.shape[1:]))
    scores = (signs * directions * deviations).T * (n_samples - 1) ** 0.5
    disclosure = replace(result.certificate.disclosure, by_columns=True)
    certificate = replace(result.certificate, disclosure=disclosure)
    shared = replace(result, components=signs * directions, node_components=everyone, certificate=certificate)
    return shared, loadings, scores


def _signs(directions: np.ndarray) -> np.ndarray:
    """Signs that make the largest entry of each row positive: (K, N) -> (K, 1)."""
    sizes = np.abs(directions)
    first = np.argmax(sizes >= AS_LARGE * sizes.max(axis=1, keepdims=True), axis=1)
    return np.where(np.take_along_axis(directions, first[:, np.newaxis], axis=1) < 0, -1.0, 1.0)


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
    share: bool = False,
    **settings: Any,
) -> Fit:
    """Find the components.

    Parameters
    ----------
    start : array of shape (d, K) or None
        Start with orthonormal columns, the same at every node; None for a random one.
    average_start : bool
        True if ``start`` is this node's own estimate, or None if it has none: all nodes then start from the average of
        these. It must be the same at all nodes.
    events : EventLog or None
        Receives the events of the fit.
    share : bool
        True for components, variances and bounds with the same bits at all nodes, whatever their processors: those of
        one node are sent to all, which compare them with their own. Integer averages imply it if the bits of the nodes
        differ.
    **settings
        on_estimate, reference, check_every, max_iterations and keep, as for ``run``.
    """
    request, network = prepared.request, prepared.network
    events = EventLog() if events is None else events
    names = prepared.facts.node_names or tuple(str(node) for node in range(prepared.facts.n_nodes))
    events.emit(_started(prepared, names))
    wanted, before, set_up_exchanges = prepared.n_components, network.traffic.copy(), network.meter.exchanges.copy()
    if average_start and isinstance(wanted, int):
        start = _averaged(prepared, start, wanted)
    spent = {"set-up": prepared.set_up + (network.traffic - before)}
    result = _run(prepared, start, events=events, spent=spent, **settings)
    # Everything computed below from shared components and agreed numbers is the same at all nodes.
    if (share or network.integers) and not result.alike:
        result = of_one_node(network, result, events)
    result, components, scores = in_columns(prepared.covariance, result, prepared.moments.n_samples)
    if events.listeners:
        for (sender, receiver), sent in network.link_traffic().items():
            events.emit(LinkTraffic(names[sender], names[receiver], *sent))
        events.emit(result.certificate_words(request.tol))
    # The next fit with the same preparation counts the set-up and its own rounds, not those of this fit.
    network.meter.exchanges = set_up_exchanges
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
        prepared.checked,
    )


def _run(prepared: Prepared, start: np.ndarray | None, **settings: Any) -> Result:
    """Run with the requested number of components, or with as many as the requested share of the variance needs."""
    request, wanted, total = prepared.request, prepared.n_components, prepared.moments.total_variance
    settings |= {"tol": request.tol, "max_rounds": request.max_rounds}
    settings |= {"seed": prepared.seed, "drawn": request.seed is None}
    problem = prepared.solver, prepared.covariance, prepared.alone or prepared.network
    if isinstance(wanted, int):
        result = run(*problem, wanted, basis=start, total_variance=total, **settings)
    else:
        result = run_to_fraction(*problem, wanted, total, prepared.largest_k, **settings)
    return result if prepared.alone is None else _at_every_node(prepared.network, result)


def _at_every_node(network: Network, result: Result) -> Result:
    """The result of one node that knows the pooled covariance, as all nodes have it."""
    disclosure = network.disclosure(result.components.shape[1], whole=True)
    return replace(
        result,
        n_nodes=network.n_nodes,
        node_components=np.broadcast_to(result.components, (len(network.ids), *result.components.shape)),
        certificate=replace(result.certificate, disclosure=disclosure),
    )


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
    run_nodes: Callable[..., list[Fit]] | None,
    request: Request,
    data: Data,
    events: EventLog | None = None,
    **settings: Any,
) -> Fit:
    """Prepare and fit; with ``run_nodes`` each node of this process at its own end of a transport, by real messages.

    ``run_nodes``, from the registry of transports, starts the nodes. Only node 0 reports to ``events``. ``settings``
    are those of ``fit``. Data that have their own engine take no part in that.
    """
    if run_nodes is None or not isinstance(data, NodeData | StreamData):
        return fit(prepare(request, data), events=events, **settings)

    def node(transport: Transport) -> Fit:
        own = data.at_node(transport)
        return fit(prepare(request, own), events=events if transport.rank == 0 else None, **settings)

    fits = run_nodes(data.facts.n_nodes, node)
    everyone = np.concatenate([each.result.node_components for each in fits])
    first = replace(fits[0], result=replace(fits[0].result, node_components=everyone))
    if not isinstance(data, ColumnData) or first.moments.agreed is None:
        return first
    order, own = data.columns.order, [each.moments for each in fits]
    moments = Moments.of_columns(own, order, data.columns.n_samples, first.moments.agreed)
    components = np.concatenate([each.components for each in fits], axis=1)[:, order]
    return replace(first, facts=data.facts, moments=moments, components=components)


# Components of other tools, compared with those of a fit.


# So many components more than were given are found, so that one which was left out is seen.
MORE = 2
# The components that they are compared with are this much closer to the truth than what is asked.
FINER, FINEST = 0.01, 1e-12


def to_certify(request: Request, given: NamedComponents) -> Request:
    """The request for the components that given ones are compared with: a few more, and closer to the truth."""
    if given.values.ndim != 2 or not given.values.size or not np.isfinite(given.values).all():
        raise InputError(f"components have shape {given.values.shape}; give finite numbers, one component in each row.")
    finer = max(FINER * request.tol, FINEST)
    return replace(request, n_components=given.count + MORE, at_most=True, tol=finer)


def certified(fit: Fit, given: NamedComponents, where: str) -> GivenComponents:
    """Bounds on the angles of given components to the true ones; errors name their file as ``where``."""
    if fit.scores is not None:
        raise InputError("components of columns that are split over nodes are not certified; give samples instead.")
    moments, found = fit.moments, fit.components
    values, mean = given.of(fit.facts.feature_names, moments.n_features, where)
    if len(values) > len(found):
        most = f"{moments.n_samples:g} samples of {moments.n_features:,} features have {len(found):,} components"
        raise InputError(f"{where} has {len(values):,} components, but {most}; leave the last ones out.")
    if not np.linalg.norm(values, axis=1).all():
        zero = int(np.argmin(np.linalg.norm(values, axis=1))) + 1
        raise InputError(f"component {zero} of {where} is zero, which is no direction; leave it out.")
    away = None
    if mean is not None:
        apart = (mean - moments.mean) / (1.0 if moments.scale is None else moments.scale)
        away = float(np.linalg.norm(apart) / math.sqrt(moments.total_variance))
    return GivenComponents.compare(values, found, fit.result.certificate, away)


# Outputs of a fit: a model to use, and numbers to read.


# Features to list per component.
MOST_FEATURES = 20


def model_of(fit: Fit, *, run_id: str | None = None, whole: bool = True) -> Model:
    """The model of a fit. A run of peers adds its id, and whole=False if sites were lost."""
    result, moments = fit.result, fit.moments
    return Model(
        components=fit.components,
        explained_variance=result.explained_variance,
        explained_variance_ratio=fit.explained_variance_ratio,
        singular_values=fit.singular_values,
        mean=moments.mean,
        scale=moments.scale,
        noise_variance=fit.noise_variance,
        n_samples=moments.n_samples,
        node_components=fit.node_components,
        scores=fit.scores,
        all_features=None if fit.scores is None else moments.n_features,
        feature_names=fit.facts.feature_names,
        node_names=fit.facts.node_names,
        run_id=run_id,
        whole=whole,
        converged=result.converged,
        tol=fit.request.tol,
        error_bound=result.certificate.error_bound,
        missing=fit.request.missing,
    )


def largest_loadings(fit: Fit, most: int = MOST_FEATURES) -> list[dict[str, float]]:
    """For each component the features with the largest loadings, by name, largest first; empty without feature names.

    A component is a unit vector. The loading of a feature is its entry.
    """
    names = fit.facts.feature_names
    if names is None:
        return []
    orders = np.argsort(-np.abs(fit.components), axis=1, kind="stable")[:, :most]
    pairs = zip(fit.components, orders, strict=True)
    return [{names[feature]: float(component[feature]) for feature in order} for component, order in pairs]


def fit_numbers(fit: Fit, about: dict[str, Any]) -> dict[str, Any]:
    """Numbers of a fit for JSON: settings, results and costs."""
    shares = fit.explained_variance_ratio.tolist()
    plain: dict[str, Any] = _without_nan(
        {
            **about,
            **fit.result.summary(),
            "n_missing": fit.moments.n_missing,
            "explained_variance_ratio": shares,
            "loadings": largest_loadings(fit),
        }
    )
    return plain


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
