"""``run``: a solver, the covariances and a network give components with their certificate."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.data import Covariance
from eigenmesh.events import EventLog, Record, on_record
from eigenmesh.iteration._account import Account
from eigenmesh.iteration._loop import Loop
from eigenmesh.iteration._result import Result
from eigenmesh.iteration._settings import DEFAULT_MAX_ROUNDS, DEFAULT_TOL, Settings, require_basis, require_components
from eigenmesh.networks import Network, Traffic
from eigenmesh.solvers._base import Solver


def run(
    solver: Solver,
    covariance: Covariance,
    network: Network,
    n_components: int,
    *,
    tol: float = DEFAULT_TOL,
    max_rounds: int = DEFAULT_MAX_ROUNDS,
    check_every: int | None = None,
    seed: int = 0,
    drawn: bool = False,
    basis: np.ndarray | None = None,
    callback: Callable[[Record], Any] | None = None,
    on_estimate: Callable[[np.ndarray], Any] | None = None,
    reference: np.ndarray | None = None,
    spent: Mapping[str, Traffic] | None = None,
    events: EventLog | None = None,
    total_variance: float = np.nan,
    max_iterations: int | None = None,
    keep: int = 0,
) -> Result:
    """Iterate a solver until its certificate is good enough, or say why it is not.

    Parameters
    ----------
    n_components, seed : int
        K, how many to find; and what fixes the start, the same at every node.
    tol : float
        Bound on sin(angle) between every component at every node and the true eigenvector.
    max_rounds : int
        Budget of neighbour exchanges; the closing certificate comes on top.
    check_every : int or None
        Iterations between two looks at the residual; by default looking costs at most about a tenth of the rounds.
    basis : array of shape (d, K) or None
        Start with orthonormal columns, instead of a random one.
    callback : callable or None
        Called with each Record of the history: one per check, and the last with the certificate.
    on_estimate : callable or None
        Called with the (d, K) estimate of the first node held here after each check that found it sound.
    reference : array of shape (d, K) or None
        True eigenvectors, to record the error after every iteration; never used otherwise.
    spent : mapping of str to Traffic, or None
        What was sent for this run before it began, by phase; the result and its history include it.
    events : EventLog or None
        Told what happens; the run goes on with the history that the log has.
    drawn : bool
        True if the seed was drawn at run time, so that no data could know it.
    total_variance : float
        Trace of C, from which the result gets the variance that the components leave out.
    max_iterations : int or None
        Budget of iterations, after which the certificate makes do with what the solver knows and sends no product.
    keep : int
        So many directions at most that the solver has found are kept in ``Result.space``, for a next start.
    """
    require_components(n_components, covariance.n_features)
    settings = Settings(
        tol=tol,
        max_rounds=max_rounds,
        check_every=check_every,
        seed=seed,
        drawn=drawn,
        on_estimate=on_estimate,
        reference=reference,
        total_variance=total_variance,
        max_iterations=max_iterations,
        keep=keep,
    )
    if basis is not None:
        require_basis(np.asarray(basis), (covariance.n_features, n_components))
    events = EventLog() if events is None else events
    if callback is not None:
        events.listeners.append(on_record(callback))
    loop = Loop(solver, covariance, network, Account(network, spent or {}), events, settings)
    # Overflow is looked for at every check, where all nodes can agree on it; a warning would only be noise.
    with np.errstate(all="ignore"), ea.small_work_on_host(loop.like):
        return loop.run(n_components, basis)
