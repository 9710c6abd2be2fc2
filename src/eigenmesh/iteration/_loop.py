"""The one loop that runs every solver on every network: iterations, checks, certificates, and the result."""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.certificate import Certified, certify
from eigenmesh.certificate._look import LARGEST_CHANCE, Complement
from eigenmesh.data import Covariance
from eigenmesh.events import BoundCertified, EventLog, Record
from eigenmesh.iteration._account import Account
from eigenmesh.iteration._cuda_graphs import steps_of
from eigenmesh.iteration._result import Result, by_rows
from eigenmesh.iteration._settings import Settings
from eigenmesh.iteration._stopping import PATIENCE, PATIENCE_OF_EXACT, CertificateGate, StallDetector, StopReason
from eigenmesh.iteration._variance_left import variance_left
from eigenmesh.metrics import mean_error
from eigenmesh.networks import Network
from eigenmesh.solvers._base import Solver, Watch, largest_norm
from eigenmesh.solvers._bases import random_basis

# If a certificate takes far more rounds than an iteration, ask for it only at this share of tol: the residual that a
# solver estimates may be half of what the certificate measures.
CAUTION = 0.25


@dataclass
class Loop:
    """One run: its inputs, and its progress apart from the state of the solver."""

    solver: Solver
    covariance: Covariance
    network: Network
    account: Account
    events: EventLog
    settings: Settings
    iteration: int = 0
    complement: Complement | None = None
    space: Array | None = None

    def __post_init__(self) -> None:
        settings, network = self.settings, self.network
        self.began = time.perf_counter()
        self.iterations_before = max((record.iteration for record in self.events.history), default=0)
        self.like = self._at_nodes(np.zeros((self.covariance.n_features, 1)))
        self.steps = steps_of(self.solver, self.covariance, network, self.like)
        self.next_check = settings.check_every or 1
        # Rounds of one iteration. Unknown before the first one; this value makes the loop take that one alone.
        self.rounds_per_iteration = settings.max_rounds
        self.stall = StallDetector()
        self.gate = CertificateGate(settings.tol, CAUTION if network.flood_ends_average else self.solver.traits.early)

    def run(self, n_components: int, basis: np.ndarray | None) -> Result:
        """Iterate from a basis (d, K), or from a random one, until the run ends."""
        # Not assigned to a local variable, which would hold the memory of the first state until the end.
        reason, certified = self._iterate(self._first_state(n_components, basis))
        if certified.certificate.error_bound <= self.settings.tol:
            reason = StopReason.CONVERGED
        return self._result(reason, certified)

    def _first_state(self, n_components: int, basis: np.ndarray | None) -> Any:
        seed = self.settings.seed
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
                if self.settings.reference is not None:
                    self._record(state, None)
                continue
            watch = self._check(state)
            state = watch.state
            if not watch.healthy:
                return StopReason.DIVERGED, self._certify(self.solver.readout(last_healthy))
            last_healthy = state
            ended = self._ended(watch, out_of_budget)
            if ended is not None:
                return ended
            if self.complement is not None:
                state = last_healthy = self.solver.narrowed(state)

    def _advance(self, state: Any) -> Any:
        """One iteration; or all iterations up to the next check, if they take equally many rounds."""
        rounds_before = self.account.rounds
        n = self._iterations_ahead if self.steps.alike and self.settings.reference is None else 1
        state = self.steps(state, n)
        self.iteration += n
        self.rounds_per_iteration = (self.account.rounds - rounds_before) // n
        return state

    @property
    def _iterations_ahead(self) -> int:
        """Iterations until the next check or the end of the budget, whichever comes first."""
        max_rounds = self.settings.max_rounds
        left = min(self.next_check, max_rounds) - self.iteration
        if self.rounds_per_iteration:
            left = min(left, -((self.account.rounds - max_rounds) // self.rounds_per_iteration))
        # The last check may have used up the budget.
        return max(1, left)

    @property
    def _out_of_iterations(self) -> bool:
        return self.settings.max_iterations is not None and self.iteration >= self.settings.max_iterations

    @property
    def _out_of_budget(self) -> bool:
        """Whether the budget of rounds or of iterations is used up."""
        # A solver on a single node may send nothing at all; then its iterations count as rounds.
        return self._out_of_iterations or max(self.account.rounds, self.iteration) >= self.settings.max_rounds

    def _check(self, state: Any) -> Watch:
        """Check the residual, record it, and schedule the next check."""
        with self.account.phase("checks"):
            watch = self.solver.watch(self.covariance, self.network, self.steps.kept(state))
        # Recomputed each time, because the rounds per iteration may grow.
        self.next_check = self.iteration + (self.settings.check_every or (1 if watch.free else self._interval))
        self._record(watch.state, watch.residual)
        return watch

    @property
    def _interval(self) -> int:
        """Iterations between checks, such that the `worst` of a check costs at most about a tenth of the rounds."""
        return max(1, -(-10 * max(1, self.network.flood_rounds) // max(1, self.rounds_per_iteration)))

    def _ended(self, watch: Watch, out_of_budget: bool) -> tuple[StopReason, Certified] | None:
        """The reason to stop after a check, and the certificate; None if the run continues."""
        settings = self.settings
        if settings.on_estimate is not None:
            settings.on_estimate(ea.to_numpy(self.solver.readout(watch.state))[0])
        stalled = self.stall.stalled(watch.residual, patience=PATIENCE_OF_EXACT if watch.free else PATIENCE)
        must_end, promising = out_of_budget or stalled, self._gate_opens(watch)
        if not (promising or must_end or (watch.last_look and self.complement is None)):
            return None
        finished = self._finish(watch)
        if promising and not must_end and not self.gate.passes(finished.residual, finished.gaps):
            self.gate.learn(watch.residual, finished.gaps)
            return None
        state = finished.state
        certified = self._certify(self.solver.readout(state), state, last=must_end and not self._out_of_iterations)
        if certified.certificate.error_bound <= settings.tol or must_end:
            self.space = self.solver.space(state, settings.keep) if settings.keep else None
            return StopReason.STALLED if stalled else StopReason.MAX_ROUNDS, certified
        if promising:
            self.gate.learn(watch.residual, certified.certificate.gaps)
        return None

    def _gate_opens(self, watch: Watch) -> bool:
        """Whether the residual of a check is small enough to be worth a certificate, which costs averages."""
        residual, gate = watch.residual, self.gate
        if residual is not None and np.isfinite(residual).all() and watch.gaps is None and gate.scale is None:
            with self.account.phase("checks"):
                gate.scale = largest_norm(self.covariance, self.network, self.like)
        return gate.opens(residual, watch.gaps)

    def _finish(self, watch: Watch) -> Watch:
        """The solver's final answer from its state; recorded if it differs from the state itself."""
        with self.account.phase("certificate"):
            finished = self.solver.finish(self.covariance, self.network, watch)
        if finished is not watch:
            self._record(finished.state, finished.residual)
        return finished

    def _certify(self, X: Array, state: Any = None, last: bool = True) -> Certified:
        """Certify X, the readout of the state if one is given; ``last``: the run ends with this certificate."""
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
                seed=self.settings.seed,
                drawn=self.settings.drawn,
                total_variance=self.settings.total_variance,
            )
        certificate, complement = certified.certificate, certified.complement
        # The bound on l_{K+1} holds for later certificates too, unless X has missed a leading direction.
        is_certain = complement.chance <= LARGEST_CHANCE and not complement.shared
        self.complement = complement if is_certain and complement.upper < certificate.values[-1] else None
        bound, residual = certificate.error_bound, float(certificate.residuals.max())
        self.events.emit(BoundCertified(self.account.total.rounds, bound, residual, certificate.warnings))
        return certified

    def _record(self, state: Any, residual: np.ndarray | None) -> None:
        X = None if self.settings.reference is None else self.solver.readout(state)
        largest = np.nan if residual is None else float(residual.max())
        self._note(X, largest, self.solver.current_step(state))

    def _note(self, X: Array | None, residual: float, step_size: float, bound: float = np.nan) -> None:
        iteration, sent = self.iterations_before + self.iteration, vars(self.account.total)
        reference = self.settings.reference
        error = np.nan if reference is None else mean_error(X, reference)
        self.events.emit(Record(iteration, **sent, residual=residual, bound=bound, error=error, step_size=step_size))

    def _result(self, reason: StopReason, certified: Certified) -> Result:
        total = self.settings.total_variance
        with self.account.phase("certificate"):
            left = variance_left(self.covariance, self.network, certified, total)
        disclosure = self.network.disclosure(self.covariance.n_features, whole=self.solver.traits.sends_covariances)
        certificate = replace(certified.certificate, disclosure=disclosure)
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
            seed=self.settings.seed,
            total_variance=total,
            variance_left=left,
            space=None if self.space is None else ea.to_numpy(self.space)[0],
            alike=certified.alike,
        )
