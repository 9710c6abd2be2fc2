"""One method on one problem, through the one loop, with the truth looking on."""

from __future__ import annotations

from eigenmesh import graphs
from eigenmesh.arrays import Array
from eigenmesh.experiments._curves import Curve, curve_of, thinned
from eigenmesh.experiments._problems import Problem
from eigenmesh.experiments._settings import Method
from eigenmesh.iteration._run import Callback, run
from eigenmesh.networks import Stacked

# Sine at which a run may end: far below the square root of the smallest error that is asked for.
TOL = 1e-8
# So few looks at the iterates that none of them is taken for a stall, and that a lost run does not go on for long.
LOOKS = 40


class Unwatched(Stacked):
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
        before = self.traffic.copy()
        averaged = super().mean(array)
        self.traffic = before
        return averaged


def runs_unwatched(method: Method) -> bool:
    """Whether the method has nothing to set by looking at its iterates."""
    return method.solver.traits.fixed_schedule and "auto" not in method.settings.values()


def follow(method: Method, problem: Problem, rounds: int, callback: Callback | None = None) -> Curve:
    """Run a method until it is done, lost or out of rounds, and keep its error after every iteration.

    A centralised method runs on one node that has the pooled covariance. Methods with a setting "auto", and those
    whose looks are free, are looked at as in any run, and their looks are counted.
    """
    alone = method.centralised
    weights = graphs.metropolis(graphs.complete(1)) if alone else problem.weights
    unwatched = runs_unwatched(method)
    result = run(
        method.solver,
        problem.pooled if alone else problem.covariance,
        (Unwatched if unwatched else Stacked)(weights, problem.averaging),
        problem.n_components,
        tol=TOL,
        max_rounds=rounds,
        check_every=max(1, rounds // LOOKS) if unwatched else None,
        basis=problem.basis,
        callback=callback,
        reference=problem.truth,
    )
    return thinned(curve_of(result.history, alone))
