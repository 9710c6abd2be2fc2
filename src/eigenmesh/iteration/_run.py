"""``run``: from a solver, a covariance and a network to components with their certificate."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.data import Covariance
from eigenmesh.events import EventLog
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
    on_estimate: Callable[[np.ndarray], Any] | None = None,
    reference: np.ndarray | None = None,
    spent: Mapping[str, Traffic] | None = None,
    events: EventLog | None = None,
    total_variance: float = np.nan,
    max_iterations: int | None = None,
    keep: int = 0,
) -> Result:
    """Iterate a solver until its certificate reaches ``tol``, or return the reason why it did not.

    Parameters
    ----------
    n_components, seed : int
        K, the number of components; and the seed of the start, the same at every node.
    tol : float
        Bound on sin(angle) between every component at every node and the true eigenvector.
    max_rounds : int
        Budget of neighbour exchanges, not counting the last certificate.
    check_every : int or None
        Iterations between two checks of the residual; by default checks take at most about a tenth of the rounds.
    basis : array of shape (d, K) or None
        Start with orthonormal columns; by default a random one.
    on_estimate : callable or None
        Called with the (d, K) estimate of the first node in this process after each check without divergence.
    reference : array of shape (d, K) or None
        True eigenvectors, only used to record the error after every iteration.
    spent : mapping of str to Traffic, or None
        Traffic before the run began, by phase; the result and its history include it.
    events : EventLog or None
        Receives the events of the run; the run continues the history of this log.
    drawn : bool
        True if the seed was drawn at run time, so that the data cannot depend on it.
    total_variance : float
        Trace of C, needed for the variance that the components leave out.
    max_iterations : int or None
        Budget of iterations; after these the certificate uses only what the solver knows, and averages no product.
    keep : int
        Largest number of columns in ``Result.space``, to start a later fit from; 0 for none.
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
    account, events = Account(network, spent or {}), EventLog() if events is None else events
    loop = Loop(solver, covariance, network, account, events, settings)
    # Checks detect overflow, where all nodes can agree on it; NumPy warnings would only be noise.
    with np.errstate(all="ignore"), ea.small_work_on_host(loop.like):
        return loop.run(n_components, basis)
