"""The one loop that runs every solver on every network."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.certificate import Certified, certify
from eigenmesh.certificate._look import LARGEST_CHANCE, Complement
from eigenmesh.data import Covariance
from eigenmesh.events import BoundCertified, EventLog, Record, on_record
from eigenmesh.iteration._account import Account
from eigenmesh.iteration._cuda_graphs import steps_of
from eigenmesh.iteration._result import Result
from eigenmesh.iteration._settings import (
    DEFAULT_MAX_ROUNDS,
    DEFAULT_TOL,
    require_basis,
    require_components,
    require_settings,
)
from eigenmesh.iteration._stopping import PATIENCE, PATIENCE_OF_EXACT, CertificateGate, StallDetector, StopReason
from eigenmesh.iteration._variance_left import variance_left
from eigenmesh.metrics import mean_error
from eigenmesh.networks import Network, Traffic
from eigenmesh.solvers._base import Solver, Watch, largest_norm
from eigenmesh.solvers._bases import random_basis

# Where a certificate takes far more rounds than an iteration, it is asked for once this share of tol is reached: the
# residual that a solver sees may be half of what the certificate finds.
CAUTION = 0.25


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
    require_settings(tol, max_rounds)
    if basis is not None:
        require_basis(np.asarray(basis), (covariance.n_features, n_components))
    events = EventLog() if events is None else events
    if callback is not None:
        events.listeners.append(on_record(callback))
    settings = (tol, max_rounds, seed, drawn, events, on_estimate, reference, total_variance, max_iterations, keep)
    loop = _Loop(solver, covariance, network, Account(network, spent or {}), *settings)
    # Overflow is looked for at every check, where all nodes can agree on it; a warning would only be noise.
    with np.errstate(all="ignore"), ea.small_work_on_host(loop.like):
        return loop.run(n_components, basis, check_every)


@dataclass
class _Loop:
    """What one run keeps beside the solver's own state."""

    solver: Solver
    covariance: Covariance
    network: Network
    account: Account
    tol: float
    max_rounds: int
    seed: int
    drawn: bool
    events: EventLog
    on_estimate: Callable[[np.ndarray], Any] | None
    reference: np.ndarray | None
    total_variance: float
    max_iterations: int | None
    keep: int
    complement: Complement | None = None
    iteration: int = 0
    space: Array | None = None

    def __post_init__(self) -> None:
        self.iterations_before = max((record.iteration for record in self.events.history), default=0)
        self.began = time.perf_counter()
        self.like = self._at_nodes(np.zeros((self.covariance.n_features, 1)))

    def run(self, n_components: int, basis: np.ndarray | None, check_every: int | None) -> Result:
        """Iterate from a basis (d, K), or from a random one, to the end."""
        # A start or a first state with a name here would keep memory to the end.
        reason, certified = self._iterate(self._first_state(n_components, basis), check_every)
        if certified.certificate.error_bound <= self.tol:
            reason = StopReason.CONVERGED
        return self._result(reason, certified)

    def _first_state(self, n_components: int, basis: np.ndarray | None) -> Any:
        start = random_basis(self.covariance.n_features, n_components, self.seed) if basis is None else basis
        return self.solver.init(self.covariance, self.network, self._at_nodes(np.asarray(start)), self.seed)

    def _at_nodes(self, values: np.ndarray) -> Array:
        """The same at all nodes held here, as products take it: (d, k) -> (nodes, d, k)."""
        return ea.everywhere(self.covariance.place(values[np.newaxis]), len(self.network.ids))

    def _iterate(self, state: Any, check_every: int | None) -> tuple[StopReason, Certified]:
        sound, stall = state, StallDetector()
        gate = CertificateGate(self.tol, CAUTION if self.network.flood_ends_average else self.solver.traits.early)
        step, next_check = steps_of(self.solver, self.covariance, self.network, self.like), check_every or 1
        # Not known before the first iteration, which is made alone then.
        rounds_taken = self.max_rounds
        while True:
            rounds_before = self.account.rounds
            n = self._ahead(next_check, rounds_taken) if step.alike and self.reference is None else 1
            state = step(state, n)
            self.iteration += n
            rounds_taken = (self.account.rounds - rounds_before) // n
            # A solver on one node may exchange nothing at all; its iterations count as rounds then.
            spent = self.max_iterations is not None and self.iteration >= self.max_iterations
            over = spent or max(self.account.rounds, self.iteration) >= self.max_rounds
            if self.iteration < next_check and not over:
                if self.reference is not None:
                    self._record(state, np.nan)
                continue
            with self.account.phase("checks"):
                watch = self.solver.watch(self.covariance, self.network, step.kept(state))
            # Asked anew each time: the rounds of an iteration may grow.
            next_check = self.iteration + (check_every or (1 if watch.free else self._interval(rounds_taken)))
            state, residual = watch.state, watch.residual
            self._record(state, _largest(residual))
            if not watch.healthy:
                return StopReason.DIVERGED, self._certify(self.solver.readout(sound))
            sound = state
            if self.on_estimate is not None:
                self.on_estimate(ea.to_numpy(self.solver.readout(state))[0])
            stalled = stall.stalled(residual, patience=PATIENCE_OF_EXACT if watch.free else PATIENCE)
            if residual is not None and np.isfinite(residual).all() and watch.gaps is None and gate.scale is None:
                with self.account.phase("checks"):
                    gate.scale = largest_norm(self.covariance, self.network, self.like)
            good = gate.opens(residual, watch.gaps)
            if good or over or stalled or (watch.last_look and self.complement is None):
                watch = self._finish(watch)
                if good and not over and not stalled and not gate.passes(watch.residual, watch.gaps):
                    gate.learn(residual, watch.gaps)
                    continue
                final = watch.state
                certified = self._certify(self.solver.readout(final), final, last=(over or stalled) and not spent)
                if certified.certificate.error_bound <= self.tol or over or stalled:
                    self.space = self.solver.space(final, self.keep) if self.keep else None
                    return StopReason.STALLED if stalled else StopReason.MAX_ROUNDS, certified
                if good:
                    gate.learn(residual, certified.certificate.gaps)

    def _finish(self, watch: Watch) -> Watch:
        """What the solver makes of its state in the end, noted if it is anything new."""
        with self.account.phase("certificate"):
            finished = self.solver.finish(self.covariance, self.network, watch)
        if finished is not watch:
            self._record(finished.state, _largest(finished.residual))
        return finished

    def _ahead(self, next_check: int, rounds_an_iteration: int) -> int:
        """Iterations until the next check or until the budget is spent, whichever is first."""
        left = min(next_check, self.max_rounds) - self.iteration
        if rounds_an_iteration:
            left = min(left, -((self.account.rounds - self.max_rounds) // rounds_an_iteration))
        # The rounds of the last check may have been the last of the budget.
        return max(1, left)

    def _interval(self, rounds_an_iteration: int) -> int:
        """Iterations between checks so that the `worst` of a check costs about a tenth of the rounds at most."""
        return max(1, -(-10 * max(1, self.network.flood_rounds) // max(1, rounds_an_iteration)))

    def _certify(self, X: Array, state: Any = None, last: bool = True) -> Certified:
        """Certify X, the readout of the state where there is one; for the last time, or to know whether to go on."""
        common = None if state is None else self.solver.common(state)
        beyond = None if state is None or self.complement is not None else self.solver.beyond(state)
        with self.account.phase("certificate"):
            certified = certify(
                self.covariance,
                self.network,
                X,
                common=common,
                complement=self.complement,
                beyond=beyond,
                patient=not last,
                seed=self.seed,
                drawn=self.drawn,
                total_variance=self.total_variance,
            )
        certificate, beyond = certified.certificate, certified.complement
        # What was learnt of l_{K+1} holds for later certificates too, unless X had missed a leading direction.
        sure = beyond.chance <= LARGEST_CHANCE and not beyond.shared and beyond.upper < certificate.values[-1]
        self.complement = beyond if sure else None
        bound, residual = certificate.error_bound, float(certificate.residuals.max())
        self.events.emit(BoundCertified(self.account.total.rounds, bound, residual, certificate.warnings))
        return certified

    def _record(self, state: Any, residual: float) -> None:
        X = None if self.reference is None else self.solver.readout(state)
        self._note(X, residual, self.solver.current_step(state))

    def _note(self, X: Array | None, residual: float, step_size: float, bound: float = np.nan) -> None:
        iteration, sent = self.iterations_before + self.iteration, vars(self.account.total)
        error = np.nan if self.reference is None else mean_error(X, self.reference)
        self.events.emit(Record(iteration, **sent, residual=residual, bound=bound, error=error, step_size=step_size))

    def _result(self, reason: StopReason, certified: Certified) -> Result:
        with self.account.phase("certificate"):
            left = variance_left(self.covariance, self.network, certified, self.total_variance)
        shown = self.network.disclosure(self.covariance.n_features, whole=self.solver.traits.sends_covariances)
        certificate = replace(certified.certificate, disclosure=shown)
        # The certificate has the last word, so that the history ends where the traffic does.
        step_size = self.events.history[-1].step_size
        self._note(certified.local, float(certificate.residuals.max()), step_size, certificate.error_bound)
        return Result(
            solver=self.solver.name,
            components=np.ascontiguousarray(ea.to_numpy(certified.common)[0].T),
            node_components=_by_rows(certified.local),
            explained_variance=certificate.values,
            certificate=certificate,
            stop_reason=reason,
            iterations=self.iteration,
            traffic=self.account.total,
            traffic_by_phase=self.account.by_phase,
            history=self.events.history,
            n_nodes=self.network.n_nodes,
            wall_s=time.perf_counter() - self.began,
            seed=self.seed,
            total_variance=self.total_variance,
            variance_left=left,
            space=None if self.space is None else ea.to_numpy(self.space)[0],
            alike=certified.alike,
        )


def _largest(residual: np.ndarray | None) -> float:
    return np.nan if residual is None else float(residual.max())


def _by_rows(local: Array) -> np.ndarray:
    """Components as rows: (nodes, d, K) -> (nodes, K, d); one copy if the nodes share one."""
    rows = np.ascontiguousarray(np.swapaxes(ea.to_numpy(ea.held(local)), -1, -2))
    return np.broadcast_to(rows, (local.shape[0], *rows.shape[1:]))
