"""One method on one problem, through the one loop, with the truth looking on."""

from __future__ import annotations

from dataclasses import replace

from eigenmesh.arrays import Array
from eigenmesh.events import EventLog
from eigenmesh.experiments._curves import Curve, curve_of, thinned
from eigenmesh.experiments._problems import Comparison
from eigenmesh.experiments._settings import Method
from eigenmesh.fitting import fit
from eigenmesh.networks import Stacked, Traffic

# Sine at which a run may end: far below the square root of the smallest error that is asked for.
TOL = 1e-8
# So few looks at the iterates that none of them is taken for a stall, and that a lost run does not go on for long.
CHECKS = 40


class UncountedChecks(Stacked):
    """A network on which mixing is counted, and maxima and exact averages are not.

    The published methods run without being looked at. Here they are, to end runs that are done or lost, and neither
    the looks nor the certificates, which are all that these methods' runs make maxima and averages for, must be
    charged to them.
    """

    def worst(self, values: Array) -> Array:
        """Elementwise maximum over all nodes, uncounted."""
        return self._maximum(values)

    def mean(self, array: Array) -> Array:
        """Average over all nodes, uncounted."""
        before, exchanges = self.traffic.copy(), self.exchanges.copy()
        averaged = super().mean(array)
        self.traffic, self.exchanges = before, exchanges
        return averaged


def needs_no_checks(method: Method) -> bool:
    """Whether the method has nothing to set by looking at its iterates."""
    return method.solver.traits.fixed_schedule and "auto" not in method.settings.values()


def follow(method: Method, comparison: Comparison, rounds: int, events: EventLog | None = None) -> Curve:
    """Run a method until it is done, lost or out of rounds, and keep its error after every iteration.

    A centralised method runs on one node that has the pooled covariance. Methods with a setting "auto", and those
    whose checks are free, are checked as in any run, and their checks are counted.
    """
    alone = method.centralised
    prepared = comparison.centralised if alone else comparison.prepared
    unwatched = needs_no_checks(method)
    network = (UncountedChecks if unwatched else Stacked)(prepared.network.weights, prepared.averaging)
    request = replace(prepared.request, tol=TOL, max_rounds=rounds)
    fitted = fit(
        replace(prepared, request=request, solver=method.solver, network=network, set_up=Traffic()),
        comparison.start,
        events=events,
        reference=comparison.truth,
        check_every=max(1, rounds // CHECKS) if unwatched else None,
    )
    return thinned(curve_of(fitted.result.history, alone))
