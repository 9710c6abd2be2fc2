"""Run with as many components as a given share of the variance needs."""

from dataclasses import replace
from math import fsum
from typing import Any

import numpy as np

from eigenmesh.data import Covariance
from eigenmesh.iteration._result import Result
from eigenmesh.iteration._run import run
from eigenmesh.iteration._stopping import StopReason
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver
from eigenmesh.solvers._bases import widened

FIRST_BLOCK = 4


def run_to_fraction(
    solver: Solver, covariance: Covariance, network: Network, fraction: float, total: float, limit: int, **settings: Any
) -> Result:
    """Double K, starting from the components so far, until they explain more than ``fraction`` of the variance.

    ``total`` is the trace of C, ``limit`` the largest possible K, min(N - 1, d). The other settings are those of
    ``run``; max_rounds is the budget for all blocks together.
    """
    # The last bits of averages may differ between nodes; a number that decides must not.
    before = network.traffic.copy()
    total = float(network.worst(covariance.place(np.full((len(network.ids), 1), total)))[0, 0])
    settings["spent"] = {**settings["spent"], "checks": network.traffic - before}
    k, basis, runs = min(FIRST_BLOCK, limit), None, []
    last_round = network.traffic.rounds + settings["max_rounds"]
    while True:
        settings["max_rounds"] = max(1, last_round - network.traffic.rounds)
        runs.append(run(solver, covariance, network, k, basis=basis, total_variance=total, **settings))
        settings["spent"] = runs[-1].traffic_by_phase
        explained = np.cumsum(runs[-1].explained_variance) / total
        # Eigenvalues and total have the same bits at every node, so all nodes take the same decision.
        enough = int(np.searchsorted(explained, fraction, side="right")) + 1
        if enough <= k or k == limit or not runs[-1].converged:
            # Traffic and history of the last run include those of the others.
            iterations, wall_s = sum(one.iterations for one in runs), sum(one.wall_s for one in runs)
            result = truncated(replace(runs[-1], iterations=iterations, wall_s=wall_s), min(enough, k))
            # The first components may be within tol even if one of the later ones is not.
            converged = enough <= k and result.certificate.error_bound <= settings["tol"]
            return replace(result, stop_reason=StopReason.CONVERGED) if converged else result
        k = min(2 * k, limit)
        basis = widened(runs[-1].components.T, k, settings["seed"])


def truncated(result: Result, k: int) -> Result:
    """Only the first k components, with their part of the certificate."""
    whole = result.certificate
    if k == len(whole.values):
        return result
    # A cluster that is cut in two is open: it continues beyond component k.
    clusters = [tuple(j for j in cluster if j < k) for cluster in whole.clusters]
    per_component = ("values", "residuals", "gaps", "error_bounds", "disagreement")
    certificate = replace(
        whole,
        **{name: getattr(whole, name)[:k] for name in per_component},
        clusters=tuple(cluster for cluster in clusters if cluster),
        open_cluster=any(cluster[0] < k <= cluster[-1] for cluster in whole.clusters),
        next_value=float(whole.values[k]),
    )
    return replace(
        result,
        components=result.components[:k],
        node_components=result.node_components[:, :k],
        explained_variance=result.explained_variance[:k],
        certificate=certificate,
        variance_left=result.variance_left + fsum(result.explained_variance[k:]),
    )
