"""The one loop that runs every solver on every network: iterations, checks, certificates, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import fsum
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.certificate import LARGEST_CHANCE, Certified, Complement, certify
from eigenmesh.data import Covariance
from eigenmesh.errors import InputError, TooFewSamplesError
from eigenmesh.events import BoundCertified, EventLog, Record
from eigenmesh.iteration import stopping
from eigenmesh.iteration.result import Result, by_rows
from eigenmesh.iteration.stopping import StopReason
from eigenmesh.metrics import mean_error
from eigenmesh.networks import Network, Traffic
from eigenmesh.solvers import Check, Solver, largest_norm, random_basis, widened

# The traffic of a run, by phase.


# The phase of all traffic that belongs to no other phase.
ITERATIONS = "iterations"
PHASES = (ITERATIONS, "checks", "certificate")


class Account:
    """The traffic of a run, including what was sent for it before it began.

    Parameters
    ----------
    spent : mapping of str to Traffic
        Traffic before the run began, by phase.
    """

    def __init__(self, network: Network, spent: Mapping[str, Traffic]) -> None:
        self._network, self._at_start, self._spent = network, network.traffic.copy(), sum(spent.values(), Traffic())
        self._booked = {**spent, **{phase: spent.get(phase, Traffic()) for phase in PHASES}}

    @property
    def rounds(self) -> int:
        """Rounds since the run began."""
        return self._network.traffic.rounds - self._at_start.rounds

    @property
    def total(self) -> Traffic:
        return self._spent + (self._network.traffic - self._at_start)

    @property
    def by_phase(self) -> dict[str, Traffic]:
        others = sum((sent for phase, sent in self._booked.items() if phase != ITERATIONS), Traffic())
        return {**self._booked, ITERATIONS: self.total - others}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what is sent inside the ``with`` block under this name."""
        before = self._network.traffic.copy()
        yield
        self._booked[name] = self._booked[name] + (self._network.traffic - before)


# The settings of a run: defaults and checks.


DEFAULT_TOL = 1e-6
DEFAULT_MAX_ROUNDS = 5000


def require_settings(tol: float, max_rounds: int) -> None:
    """Raise unless 0 < tol < 1 and max_rounds >= 1."""
    if not 0 < tol < 1:
        raise InputError(f"tol = {tol!r} must be strictly between 0 and 1: it is the sine of an angle.")
    if max_rounds < 1:
        raise InputError(f"max_rounds = {max_rounds!r} must be at least 1.")


def require_components(n_components: int, n_features: int, n_samples: int | None = None) -> None:
    """Raise unless 1 <= K <= min(d, N - 1)."""
    asked = f"n_components = {n_components}"
    if isinstance(n_components, bool) or not isinstance(n_components, int | np.integer):
        raise InputError(f"n_components = {n_components!r} must be a whole number.")
    if n_components < 1:
        raise InputError(f"{asked} must be at least 1.")
    if n_components > n_features:
        raise InputError(f"{asked} must be at most {n_features}, the number of features; ask for fewer.")
    if n_samples is not None and n_components >= n_samples:
        most = f"at most {n_samples - 1:g}, the number of samples less one"
        raise TooFewSamplesError(f"{asked} must be {most}; ask for fewer.")


def require_basis(basis: np.ndarray, shape: tuple[int, int]) -> None:
    """Raise unless the start has the right shape and orthonormal columns."""
    if basis.shape != shape:
        raise InputError(f"basis has shape {basis.shape}; it must be (d, K) = {shape}.")
    skewness = np.abs(basis.T @ basis - np.eye(shape[1])).max()
    if not skewness < 1e-3:
        raise InputError(f"columns of basis must be orthonormal; |B^T B - I| is {skewness:.2g}. Use numpy.linalg.qr.")


# If a certificate takes far more rounds than an iteration, ask for it only at this share of tol: the residual that a
# solver estimates may be half of what the certificate measures.
CAUTION = 0.25


@dataclass
class Loop:
    """One run: its inputs, documented at ``run``, and its progress apart from the state of the solver."""

    solver: Solver
    covariance: Covariance
    network: Network
    account: Account
    events: EventLog
    tol: float
    max_rounds: int
    check_every: int | None
    seed: int
    drawn: bool
    on_estimate: Callable[[np.ndarray], Any] | None
    reference: np.ndarray | None
    total_variance: float
    max_iterations: int | None
    keep: int
    iteration: int = 0
    complement: Complement | None = None
    space: Array | None = None

    def __post_init__(self) -> None:
        require_settings(self.tol, self.max_rounds)
        self.solver = self.solver.towards(self.tol)
        self.began = time.perf_counter()
        self.iterations_before = max((record.iteration for record in self.events.history), default=0)
        self.like = self._at_nodes(np.zeros((self.covariance.n_features, 1)))
        self.next_check = self.check_every or 1
        # Rounds of the last iteration.
        self.rounds_per_iteration = 0
        self.stall = stopping.StallDetector()
        self.gate = stopping.CertificateGate(
            self.tol, CAUTION if self.network.flood_ends_average else self.solver.traits.early
        )

    def run(self, n_components: int, basis: np.ndarray | None) -> Result:
        """Iterate from a basis (d, K), or from a random one, until the run ends."""
        # Not assigned to a local variable, which would hold the memory of the first state until the end.
        reason, certified = self._iterate(self._first_state(n_components, basis))
        if certified.certificate.error_bound <= self.tol:
            reason = StopReason.CONVERGED
        return self._result(reason, certified)

    def _first_state(self, n_components: int, basis: np.ndarray | None) -> Any:
        seed = self.seed
        start = random_basis(self.covariance.n_features, n_components, seed) if basis is None else basis
        return self.solver.init(self.covariance, self.network, self._at_nodes(np.asarray(start)), seed)

    def _at_nodes(self, values: np.ndarray) -> Array:
        """The same values at all nodes in this process, on the device of the covariance: (d, k) -> (nodes, d, k)."""
        return ea.everywhere(self.covariance.place(values[np.newaxis]), len(self.network.ids))

    def _iterate(self, state: Any) -> tuple[StopReason, Certified]:
        """Iterate and check until there is a reason to stop; returns that reason and the last certificate."""
        last_healthy = state
        while True:
            state = self._advance(state)
            # Read before the check, whose own rounds must not end the run.
            out_of_budget = self._out_of_budget
            if self.iteration < self.next_check and not out_of_budget:
                if self.reference is not None:
                    self._record(state, None)
                continue
            check = self._check(state)
            state = check.state
            if not check.healthy:
                return StopReason.DIVERGED, self._certify(last_healthy, trusted=False)
            last_healthy = state
            ended = self._ended(check, out_of_budget)
            if ended is not None:
                return ended
            if self.complement is not None:
                state = last_healthy = self.solver.narrowed(state)

    def _advance(self, state: Any) -> Any:
        """One iteration."""
        rounds_before = self.account.rounds
        state = self.solver.step(self.covariance, self.network, state)
        self.iteration += 1
        self.rounds_per_iteration = self.account.rounds - rounds_before
        return state

    @property
    def _out_of_iterations(self) -> bool:
        return self.max_iterations is not None and self.iteration >= self.max_iterations

    @property
    def _out_of_budget(self) -> bool:
        """Whether the budget of rounds or of iterations is used up."""
        # A solver on a single node may send nothing at all; then its iterations count as rounds.
        return self._out_of_iterations or max(self.account.rounds, self.iteration) >= self.max_rounds

    def _check(self, state: Any) -> Check:
        """Check the residual, record it, and schedule the next check."""
        with self.account.phase("checks"):
            check = self.solver.check(self.covariance, self.network, state)
        # Recomputed each time, because the rounds per iteration may grow.
        self.next_check = self.iteration + (self.check_every or (1 if check.free else self._interval))
        self._record(check.state, check.residual)
        return check

    @property
    def _interval(self) -> int:
        """Iterations between checks, such that the `maximum` of a check costs at most about a tenth of the rounds."""
        return max(1, -(-10 * max(1, self.network.maximum_rounds) // max(1, self.rounds_per_iteration)))

    def _ended(self, check: Check, out_of_budget: bool) -> tuple[StopReason, Certified] | None:
        """The reason to stop after a check, and the certificate, or None if the run continues."""
        if self.on_estimate is not None:
            self.on_estimate(ea.to_numpy(self.solver.readout(check.state))[0])
        stalled = self.stall.stalled(
            check.residual, patience=stopping.PATIENCE_OF_EXACT if check.free else stopping.PATIENCE
        )
        must_end, promising = out_of_budget or stalled, self._gate_opens(check)
        if not (promising or must_end or (check.complement_now and self.complement is None)):
            return None
        finished = self._finish(check)
        if promising and not must_end and not self.gate.passes(finished.residual, finished.gaps):
            self.gate.learn(finished.gaps)
            return None
        state = finished.state
        certified = self._certify(state, last=must_end and not self._out_of_iterations)
        if certified.certificate.error_bound <= self.tol or must_end:
            self.space = self.solver.space(state, self.keep) if self.keep else None
            return StopReason.STALLED if stalled else StopReason.MAX_ROUNDS, certified
        if promising:
            self.gate.learn(certified.certificate.gaps)
        return None

    def _gate_opens(self, check: Check) -> bool:
        """Whether the residual of a check is small enough to be worth a certificate, which costs averages."""
        residual, gate = check.residual, self.gate
        if residual is not None and np.isfinite(residual).all() and check.gaps is None and gate.scale is None:
            with self.account.phase("checks"):
                gate.scale = largest_norm(self.covariance, self.network, self.like)
        return gate.opens(residual, check.gaps)

    def _finish(self, check: Check) -> Check:
        """The solver's final answer from its state; recorded if it differs from the state itself."""
        with self.account.phase("certificate"):
            finished = self.solver.finish(self.covariance, self.network, check)
        if finished is not check:
            self._record(finished.state, finished.residual)
        return finished

    def _certify(self, state: Any, trusted: bool = True, last: bool = True) -> Certified:
        """Certify the readout of a state; ``last``: the run ends with this certificate.

        Unless the state is ``trusted``, what the solver knows about its readout is not used.
        """
        # Before the readout, which then takes its Ritz vectors from all that are computed here.
        common = self.solver.common(state) if trusted else None
        beyond = self.solver.beyond(state) if trusted and self.complement is None else None
        with self.account.phase("certificate"):
            certified = certify(
                self.covariance,
                self.network,
                self.solver.readout(state),
                common=common,
                complement=self.complement,
                beyond=beyond,
                patient=not last,
                seed=self.seed,
                total_variance=self.total_variance,
            )
        certificate, complement = certified.certificate, certified.complement
        # The bound on l_{K+1} holds for later certificates too, unless X has missed a leading direction.
        is_certain = complement.chance <= LARGEST_CHANCE and not complement.shared
        self.complement = complement if is_certain and complement.upper < certificate.values[-1] else None
        bound, residual = certificate.error_bound, float(certificate.residuals.max())
        self.events.emit(BoundCertified(self.account.total.rounds, bound, residual, certificate.warnings))
        return certified

    def _record(self, state: Any, residual: np.ndarray | None) -> None:
        """Record the residual of a state, and its error if the true eigenvectors are known."""
        X = None if self.reference is None else self.solver.readout(state)
        largest = np.nan if residual is None else float(residual.max())
        self._note(X, largest, self.solver.current_step(state))

    def _note(self, X: Array | None, residual: float, step_size: float, bound: float = np.nan) -> None:
        iteration, sent = self.iterations_before + self.iteration, vars(self.account.total)
        error = np.nan if self.reference is None else mean_error(X, self.reference)
        self.events.emit(Record(iteration, **sent, residual=residual, bound=bound, error=error, step_size=step_size))

    def _result(self, reason: StopReason, certified: Certified) -> Result:
        total = self.total_variance
        with self.account.phase("certificate"):
            left = stopping.variance_left(self.covariance, self.network, certified, total)
        disclosure = self.network.disclosure(self.covariance.n_features, whole=self.solver.traits.sums_covariances)
        certificate = replace(certified.certificate, disclosure=disclosure, seed_drawn=self.drawn)
        # The last record is that of the certificate, so that the history ends with the total traffic.
        step_size = self.events.history[-1].step_size
        self._note(certified.local, float(certificate.residuals.max()), step_size, certificate.error_bound)
        return Result(
            solver=self.solver.name,
            components=np.ascontiguousarray(ea.to_numpy(certified.common)[0].T),
            node_components=by_rows(certified.local),
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
            total_variance=total,
            variance_left=left,
            space=None if self.space is None else ea.to_numpy(self.space)[0],
            alike=certified.alike,
        )


# ``run``: from a solver, a covariance and a network to components with their certificate.


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
        Iterations between two checks of the residual. By default checks take at most about a tenth of the rounds.
    basis : array of shape (d, K) or None
        Start with orthonormal columns. By default it is a random one.
    on_estimate : callable or None
        Called with the (d, K) estimate of the first node in this process after each check without divergence.
    reference : array of shape (d, K) or None
        True eigenvectors, only used to record the error after every iteration.
    spent : mapping of str to Traffic, or None
        Traffic before the run began, by phase. The result and its history include it.
    events : EventLog or None
        Receives the events of the run. The run continues the history of this log.
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
    if basis is not None:
        require_basis(np.asarray(basis), (covariance.n_features, n_components))
    loop = Loop(
        solver,
        covariance,
        network,
        Account(network, spent or {}),
        EventLog() if events is None else events,
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
    # Checks detect overflow, where all nodes can agree on it; NumPy warnings would only be noise.
    with np.errstate(all="ignore"), ea.small_work_on_host(loop.like):
        return loop.run(n_components, basis)


# Run with as many components as a given share of the variance needs.


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
    total = float(network.maximum(covariance.place(np.full((len(network.ids), 1), total)))[0, 0])
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
