"""As many components as a share of the variance needs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from eigenmesh.certificate._certify import Certificate
from eigenmesh.data import Covariance
from eigenmesh.iteration._result import Result
from eigenmesh.iteration._run import DEFAULT_TOL, run
from eigenmesh.iteration._stopping import StopReason
from eigenmesh.networks import Network, Traffic
from eigenmesh.solvers._base import Solver
from eigenmesh.solvers._bases import widened

FIRST_BLOCK = 4


def run_to_fraction(
    solver: Solver,
    covariance: Covariance,
    network: Network,
    fraction: float,
    total_variance: float,
    *,
    limit: int,
    max_rounds: int,
    seed: int = 0,
    spent: Mapping[str, Traffic] | None = None,
    **settings: Any,
) -> Result:
    """Double the block, keeping what is found, until it explains more than ``fraction`` of the variance.

    Parameters
    ----------
    total_variance : trace of C.
    limit : largest K there can be, min(N - 1, d).
    max_rounds : budget of neighbour exchanges for all blocks together.
    settings : for ``run``.
    """
    # Averages may differ in their last bits from node to node; what decides must not.
    before = network.traffic.copy()
    here = covariance.place(np.full((len(network.ids), 1), total_variance))
    total_variance = float(network.worst(here)[0, 0])
    phases = {**(spent or {}), "checks": network.traffic - before}
    k, basis, runs = min(FIRST_BLOCK, limit), None, []
    began = network.traffic.rounds
    while True:
        left = max(1, max_rounds - (network.traffic.rounds - began))
        settings.update(max_rounds=left, seed=seed, basis=basis, spent=phases)
        runs.append(run(solver, covariance, network, k, **settings))
        phases = runs[-1].traffic_by_phase
        explained = np.cumsum(runs[-1].explained_variance) / total_variance
        # Eigenvalues and total are the same bits at every node, so all of them grow or stop together.
        enough = int(np.searchsorted(explained, fraction, side="right")) + 1
        if enough <= k or k == limit or not runs[-1].converged:
            result = truncated(joined(runs), min(enough, k))
            # The components that are kept may be certain where one of those beyond is not.
            certain = enough <= k and result.certificate.error_bound <= settings.get("tol", DEFAULT_TOL)
            return replace(result, stop_reason=StopReason.CONVERGED) if certain else result
        k = min(2 * k, limit)
        basis = widened(runs[-1].components.T, k, seed)


def joined(runs: list[Result]) -> Result:
    """The last of several runs, whose traffic and history include those of the others."""
    iterations = sum(result.iterations for result in runs)
    return replace(runs[-1], iterations=iterations, wall_s=sum(result.wall_s for result in runs))


def truncated(result: Result, k: int) -> Result:
    """Only the first k components, with what the certificate says of them."""
    whole = result.certificate
    if k == len(whole.values):
        return result
    # A cluster that the cut goes through is open: it goes on beyond component k.
    clusters = [tuple(j for j in cluster if j < k) for cluster in whole.clusters]
    certificate = Certificate(
        values=whole.values[:k],
        residuals=whole.residuals[:k],
        gaps=whole.gaps[:k],
        error_bounds=whole.error_bounds[:k],
        clusters=tuple(cluster for cluster in clusters if cluster),
        open_cluster=any(cluster[0] < k <= cluster[-1] for cluster in whole.clusters),
        next_value=float(whole.values[k]),
        orthonormality=whole.orthonormality,
        disagreement=whole.disagreement[:k],
    )
    return replace(
        result,
        components=result.components[:k],
        node_components=result.node_components[:, :k],
        explained_variance=result.explained_variance[:k],
        certificate=certificate,
    )
