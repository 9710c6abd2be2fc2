"""What every solver says about itself, checked against what it does."""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
from sklearn.datasets import load_digits

from eigenmesh import DecentralizedPCA, graphs, run
from eigenmesh.arrays import Array, orthonormal
from eigenmesh.coordinators.asked import MANY_PRODUCTS
from eigenmesh.data import Formed, Shards, build_covariance, pooled_moments
from eigenmesh.experiments.experiment import Method
from eigenmesh.experiments.runs import needs_no_checks
from eigenmesh.networks import Peers, Stacked
from eigenmesh.solvers import (
    DSA,
    SOLVERS,
    FastPCA,
    Krasulina,
    Sanger,
    SequentialDistributedPower,
    SequentialPower,
    Solver,
    TrackedSubspace,
    Traits,
)
from eigenmesh.solvers.base import check_residual, product_residuals, random_basis, unmeasured
from eigenmesh.transports import run_threads
from eigenmesh.transports.threads import ThreadTransport
from problems import angles, make_problem, random_covariances

M, D, STEPS = 5, 13, 12
# Every registered solver with its defaults, and some with other settings.
AUTOMATIC = [kind() for kind in SOLVERS.values()]
GIVEN = [
    *(kind(step_size=0.05) for kind in (FastPCA, DSA, Krasulina, Sanger)),
    *(kind(iterations=4) for kind in (SequentialPower, SequentialDistributedPower)),
    TrackedSubspace(oversample=2, mixes=3, momentum=0.0),
]
each_solver = pytest.mark.parametrize("solver", AUTOMATIC + GIVEN, ids=str)
each_registered = pytest.mark.parametrize("solver", AUTOMATIC, ids=lambda solver: solver.name)


@dataclass
class Seen:
    """What a solver did: columns of its products and numbers in its messages."""

    columns: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    checks: list[int] = field(default_factory=list)


class RecordingTransport(ThreadTransport):
    """Notes the size of every message."""

    def __init__(self, link, sizes):
        super().__init__(link._hub, link.rank)
        self.sizes = sizes

    def exchange(self, arrays, links):
        if links.send_to:
            self.sizes.append(sum(array.size for array in arrays))
        return super().exchange(arrays, links)


class RecordingCovariance(Formed):
    """Notes how wide products are."""

    def apply(self, X):
        self.columns.append(int(X.shape[-1]))
        return super().apply(X)


def observed(solver, k, seed=3) -> Seen:
    """Twelve iterations of the solver with five nodes that send real messages; what node 0 did."""
    weights = graphs.metropolis(graphs.topologies.cycle(M))
    matrices = random_covariances(M, D, seed=0).matrices
    basis = random_basis(D, k, seed=3)[np.newaxis]

    def node(link):
        seen = Seen()
        transport = RecordingTransport(link, seen.messages)
        network = Peers(weights, transport)
        covariance = RecordingCovariance(matrices[link.rank : link.rank + 1])
        object.__setattr__(covariance, "columns", seen.columns)
        state = solver.init(covariance, network, basis, seed)
        for _ in range(STEPS):
            transport.sizes = seen.messages
            state = solver.step(covariance, network, state)
            transport.sizes = seen.checks
            state = solver.check(covariance, network, state).state
        return seen

    return run_threads(M, node)[0]


def components(solver) -> int:
    return 1 if solver.name == "krasulina" else 3


@each_solver
def test_sizes_are_those_that_are_sent(solver):
    k = components(solver)
    seen = observed(solver, k)
    assert solver.columns(k, D) == max(seen.columns)
    # Beside a start that was given a block may be wider.
    given = observed(solver, k, seed=7)
    assert solver.largest_message(k, D) == max(given.messages) >= max(seen.messages)
    # Checks go along in smaller messages.
    assert max(seen.checks, default=0) <= solver.largest_message(k, D)
    assert solver.traits.sums_covariances == (D * (D + 1) // 2 in seen.messages)


@each_solver
def test_no_product_is_wider_than_the_data(solver):
    assert 1 <= solver.columns(D, D) <= D
    assert solver.columns(1, 1) == 1


@each_solver
def test_a_fixed_schedule_is_not_changed_by_a_check(solver):
    covariance = random_covariances(M, D, seed=0)
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(M)))
    state = solver.init(covariance, network, covariance.place(np.stack([random_basis(D, components(solver), 3)] * M)))
    fixed = needs_no_checks(Method("", solver))
    assert fixed == (solver.traits.fixed_schedule and "auto" not in vars(solver).values())
    for _ in range(STEPS if fixed else 0):
        state = solver.step(covariance, network, state)
        check = solver.check(covariance, network, state)
        assert check.state is state
        assert not check.free


def test_methods_of_one_place_walk_the_same_path_on_any_split():
    problem = make_problem(np.array([5.0, 3.0, 1.8, 1.0, 0.5, 0.25]), n_nodes=6, unlike=True, samples=500)
    spread = problem.covariance()
    pooled = Formed(spread.matrices.mean(axis=0, keepdims=True))
    alone = Stacked(graphs.metropolis(graphs.topologies.complete(1)))
    centralised = [solver for solver in AUTOMATIC if solver.traits.centralised]
    assert {solver.name for solver in centralised} == {"oi", "seq-pm", "krasulina", "sanger"}
    for solver in centralised:
        # A step that both can take: the automatic one depends on the nodes.
        solver = type(solver)(step_size=0.1) if hasattr(solver, "step_size") else solver
        basis = random_basis(len(problem.values), components(solver), seed=3)
        many = solver.init(spread, problem.network, spread.place(np.stack([basis] * 6)))
        one = solver.init(pooled, alone, pooled.place(basis[np.newaxis]))
        for _ in range(STEPS):
            many, one = solver.step(spread, problem.network, many), solver.step(pooled, alone, one)
            assert np.allclose(solver.readout(many), solver.readout(one), rtol=0, atol=1e-9), solver.name


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    shards = Shards.from_labels(X, y)
    network = Stacked(graphs.metropolis(graphs.topologies.erdos_renyi(10, seed=0)))
    return build_covariance(shards, pooled_moments(shards, network)), network.weights


@each_registered
def test_solvers_with_few_exchanges_are_done_when_the_others_have_hardly_begun(solver, digits):
    covariance, weights = digits
    result = run(solver, covariance, Stacked(weights), components(solver), max_rounds=300)
    assert result.converged == (solver.traits.expected_products < MANY_PRODUCTS)


@each_registered
def test_expected_products_are_of_the_order_of_a_run(solver, digits):
    covariance, weights = digits
    # Iterations are products, up to the dozen of the certificate.
    result = run(solver, covariance, Stacked(weights), components(solver))
    assert result.iterations / 5 <= solver.traits.expected_products <= 5 * result.iterations


class PowerState(NamedTuple):
    X: Array
    residual: Array


@dataclass(frozen=True)
class FourFunctions(Solver):
    """The least that a solver must write."""

    name: ClassVar[str] = "four-functions"

    def init(self, covariance, network, basis, seed=0):
        return PowerState(basis, unmeasured(basis))

    def step(self, covariance, network, state):
        Z = network.mix(covariance.apply(state.X))
        return PowerState(orthonormal(Z), product_residuals(state.X, Z))

    def readout(self, state):
        return state.X

    def check(self, covariance, network, state):
        return check_residual(network, state)


def test_a_solver_that_writes_four_functions_has_the_rest():
    solver = FourFunctions()
    assert solver.traits == Traits()
    assert (solver.columns(3, D), solver.columns(D + 1, D)) == (3, D)
    assert solver.largest_message(3, D) == 3 * D
    problem = make_problem(np.array([5.0, 3.0, 1.8, 1.0, 0.5, 0.25]), n_nodes=4)
    # Where everybody is linked to everybody one mix is an average.
    pca = DecentralizedPCA(2, solver=solver, topology="complete").fit(problem.parts)
    assert angles(pca.components_, problem.vectors).max() < 1e-6
    assert all(np.isnan(record.step_size) for record in pca.history_)
    assert not Method("mine", solver).centralised


def test_a_solver_with_a_function_missing_is_refused_when_it_is_made():
    class Incomplete(FourFunctions):
        step = Solver.step

    with pytest.raises(TypeError, match=r"abstract method '?step"):
        Incomplete()


def test_the_step_of_a_record_is_the_one_in_use():
    problem = make_problem(np.array([5.0, 3.0, 1.8, 1.0, 0.5, 0.25]), n_nodes=4)
    for solver in (FastPCA(step_size=0.05), DSA(step_size=0.05), Sanger(step_size=0.05)):
        result = run(solver, problem.covariance(), problem.network, 2, max_rounds=50)
        assert {record.step_size for record in result.history} == {0.05}
