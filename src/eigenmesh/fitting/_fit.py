"""Run what was prepared, and gather what came of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.averaging import name_of
from eigenmesh.data import Choice, Moments
from eigenmesh.events import EventLog, LinkTraffic, Started
from eigenmesh.fitting._data import DataFacts
from eigenmesh.fitting._prepare import Prepared
from eigenmesh.fitting._request import Request
from eigenmesh.graphs import Weights
from eigenmesh.iteration import Result, run
from eigenmesh.iteration._variance import run_to_fraction
from eigenmesh.solvers._bases import random_basis
from eigenmesh.solvers._step_size import common_basis


@dataclass(frozen=True, eq=False)
class Fit:
    """Components with everything that belongs to them.

    Attributes
    ----------
    result : Result
        Components, certificate, history and the traffic of the whole fit.
    moments : Moments
        Pooled size, mean, variance and scale.
    noise_variance : float
        Mean variance of the directions beyond component K.
    weights : Weights
        The network.
    averaging : str
        Name of the averaging.
    choice : Choice
        How the covariances were held.
    """

    request: Request
    facts: DataFacts
    result: Result
    moments: Moments
    noise_variance: float
    weights: Weights
    averaging: str
    choice: Choice

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
) -> Fit:
    """Find the components.

    Parameters
    ----------
    start : array of shape (d, K) or None
        With orthonormal columns, the same at every node; None for a random one.
    average_start : bool
        True if ``start`` is this node's own estimate, or None where it has none: all nodes then begin from the average
        of theirs. All nodes must say the same.
    events, on_estimate, reference, check_every
        As for ``run``.
    """
    request, network, covariance = prepared.request, prepared.network, prepared.covariance
    events = EventLog() if events is None else events
    names = prepared.facts.node_names or tuple(str(node) for node in range(prepared.facts.n_nodes))
    events.emit(_started(prepared, names))
    settings: dict[str, Any] = {
        "tol": request.tol,
        "max_rounds": request.max_rounds,
        "check_every": check_every,
        "seed": request.seed,
        "events": events,
        "on_estimate": on_estimate,
        "reference": reference,
    }
    wanted, before = prepared.n_components, network.traffic.copy()
    if average_start and isinstance(wanted, int):
        start = _averaged(prepared, start, wanted)
    spent = {"set-up": prepared.set_up + (network.traffic - before)}
    if isinstance(wanted, int):
        result = run(prepared.solver, covariance, network, wanted, basis=start, spent=spent, **settings)
    else:
        total, limit = prepared.moments.total_variance, prepared.largest_k
        result = run_to_fraction(
            prepared.solver, covariance, network, wanted, total, limit=limit, spent=spent, **settings
        )
    if events.listeners:
        for (sender, receiver), sent in network.link_traffic().items():
            events.emit(LinkTraffic(names[sender], names[receiver], *sent))
    return Fit(
        request,
        prepared.facts,
        replace(result, total_variance=prepared.moments.total_variance),
        prepared.moments,
        _noise_variance(prepared.moments, result.explained_variance),
        network.weights,
        name_of(prepared.averaging),
        prepared.choice,
    )


def _started(prepared: Prepared, names: tuple[str, ...]) -> Started:
    request, network = prepared.request, prepared.network
    return Started(
        prepared.solver.name,
        name_of(prepared.averaging),
        names,
        tuple((names[i], names[j]) for i, j in network.weights.graph.edges),
        prepared.facts.n_features,
        prepared.n_components,
        request.tol,
        request.max_rounds,
    )


def _averaged(prepared: Prepared, own: np.ndarray | None, k: int) -> np.ndarray:
    """One orthonormal basis for all nodes: the average of their estimates, a random basis where one has none."""
    shape = (prepared.facts.n_features, k)
    if own is None or own.shape != shape:
        own = random_basis(*shape, prepared.request.seed)
    everywhere = common_basis(prepared.network, prepared.covariance.place(own[np.newaxis]))
    return np.asarray(ea.to_numpy(everywhere)[0])


def _noise_variance(moments: Moments, values: np.ndarray) -> float:
    """Mean of the eigenvalues beyond K, as scikit-learn counts them: min(N, d) - K of them."""
    beyond = min(moments.n_samples, len(moments.mean)) - len(values)
    return max(moments.total_variance - float(np.sum(values)), 0.0) / beyond if beyond > 0 else 0.0
