"""Everything that is decided before a run, each thing once: samples, K, method, covariance."""

import sys
from dataclasses import dataclass
from typing import NamedTuple

from eigenmesh.averaging import Averaging
from eigenmesh.data import Choice, Covariance, Moments
from eigenmesh.fitting._data import Data, DataFacts
from eigenmesh.fitting._method import Workload, choose_method
from eigenmesh.fitting._request import Request, expected_components
from eigenmesh.networks import Network, Traffic
from eigenmesh.solvers import Solver


@dataclass(frozen=True, eq=False)
class Prepared:
    """A fit that is ready to run.

    Attributes
    ----------
    n_components : int or float
        K, or the share of the variance to explain.
    averaging : Averaging
        How exact averages are made.
    choice : Choice
        How the covariances are held, and why.
    set_up : Traffic
        What was sent so far.
    """

    request: Request
    facts: DataFacts
    n_components: int | float
    solver: Solver
    averaging: Averaging
    network: Network
    moments: Moments
    covariance: Covariance
    choice: Choice
    set_up: Traffic

    @property
    def largest_k(self) -> int:
        """Most components that there can be: min(N - 1, d)."""
        return min(self.moments.n_samples - 1, self.facts.n_features)


class Decision(NamedTuple):
    """How a fit will be done, by numbers that all nodes know.

    Attributes
    ----------
    n_samples : int or None
        N over all nodes; None where only a pass over the data can tell.
    n_components : int or float
        K, or the share of the variance to explain.
    workload : Workload
        What the method was chosen by.
    counting : Network or None
        The network that counted the samples, with what it sent.
    """

    n_samples: int | None
    n_components: int | float
    workload: Workload
    solver: Solver
    averaging: Averaging
    counting: Network | None


def decide(request: Request, data: Data) -> Decision:
    """Count the samples, settle K, choose solver and averaging; a fit and a plan both ask here.

    With a transport all nodes call it together; nothing in it depends on what only one node knows.
    """
    facts = data.facts
    # What can be wrong without a message or a pass over the data is found first.
    request.components(sys.maxsize, facts.n_features)
    data.check(request)
    n_samples, counting = data.count_samples()
    wanted = request.components(n_samples or sys.maxsize, facts.n_features)
    k = expected_components(wanted, facts.n_features)
    workload = Workload(data.weights, facts.n_features, k, facts.item_bytes, facts.has_all_reduce)
    solver, averaging = choose_method(workload, request.costs, request.solver, request.averaging)
    return Decision(n_samples, wanted, workload, solver, averaging, counting)


def prepare(request: Request, data: Data) -> Prepared:
    """Decide how to fit, choose how to hold the covariance, and take the pooled moments.

    With a transport all nodes call it together; nothing that is sent depends on what only one node knows.
    """
    decision = decide(request, data)
    solver, averaging = decision.solver, decision.averaging
    choice = data.choose_covariance(request.covariance, solver, decision.workload.n_components)
    network = data.network(averaging)
    if decision.counting is not None:
        network.traffic += decision.counting.traffic
        network.exchanges += decision.counting.exchanges
    moments, covariance = data.measure(
        network, choice, scale=request.scale, missing=request.missing, device=request.device
    )
    wanted = request.components(moments.n_samples, data.facts.n_features)
    return Prepared(
        request, data.facts, wanted, solver, averaging, network, moments, covariance, choice, network.traffic.copy()
    )
