"""Run one method on one problem, and record its true error after every iteration."""

from dataclasses import replace

from eigenmesh.arrays import Array
from eigenmesh.events import EventLog
from eigenmesh.experiments._curves import Curve, curve_of, thinned
from eigenmesh.experiments._problems import Comparison
from eigenmesh.experiments._settings import Method
from eigenmesh.fitting import fit
from eigenmesh.networks import Stacked, Traffic

# Sine at which a run ends: far below the square root of the smallest target.
TOL = 1e-8
# Checks per run: too few to take slow progress for a stall, enough to end a diverged run early.
CHECKS = 40


class UncountedChecks(Stacked):
    """A network that counts mixing, but not maxima and exact averages.

    The published methods run without checks. Here they are checked, to end runs that have converged or diverged.
    Only the checks and the certificate use maxima and averages, and they must not count as the method's cost.
    """

    def worst(self, values: Array) -> Array:
        return self._maximum(values)

    def mean(self, array: Array) -> Array:
        before, exchanges = self.traffic.copy(), self.exchanges.copy()
        averaged = super().mean(array)
        self.traffic, self.exchanges = before, exchanges
        return averaged


def needs_no_checks(method: Method) -> bool:
    """Whether no setting of the method is chosen from its iterates."""
    return method.solver.traits.fixed_schedule and "auto" not in method.settings.values()


def follow(method: Method, comparison: Comparison, rounds: int, events: EventLog | None = None) -> Curve:
    """Run a method until it converges, diverges or is out of rounds, and record its error after every iteration.

    A centralised method runs on one node that has the pooled covariance. Methods that need checks, for a setting
    "auto" or for their schedule, are checked as in any run, and their checks are counted.
    """
    alone = method.centralised
    prepared = comparison.centralised if alone else comparison.prepared
    uncounted = needs_no_checks(method)
    network = (UncountedChecks if uncounted else Stacked)(prepared.network.weights, prepared.averaging)
    request = replace(prepared.request, tol=TOL, max_rounds=rounds)
    fitted = fit(
        replace(prepared, request=request, solver=method.solver, network=network, set_up=Traffic()),
        comparison.start,
        events=events,
        reference=comparison.truth,
        check_every=max(1, rounds // CHECKS) if uncounted else None,
    )
    return thinned(curve_of(fitted.result.history, alone))
