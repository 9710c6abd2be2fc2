"""Where the methods of the literature stop: wandering, floors and neighbourhoods. The pages of the docs cite these."""

import functools

import numpy as np
import pytest

from eigenmesh import run
from eigenmesh.data.datasets import geometric_spectrum
from eigenmesh.iteration.stopping import StopReason
from eigenmesh.metrics import mean_error
from eigenmesh.solvers import DSA, SADOT, SDOT, DeEPCA, OrthogonalIteration, SequentialDistributedPower, SequentialPower
from eigenmesh.solvers.base import random_basis
from problems import angles, make_problem

M, D, K = 20, 20, 5


@functools.cache
def problem(topology, unlike=False):
    """About 1200 samples a node; on the cycle beta = 0.967, on the random graph 0.567."""
    return make_problem(geometric_spectrum(D, K, 0.8), M, topology, unlike=unlike, samples=1000)


def errors(solver, topology, iterations, unlike=False):
    """The error E of section 1 after each iteration."""
    given = problem(topology, unlike)
    covariance = given.covariance()
    basis = np.repeat(random_basis(D, K, seed=0)[np.newaxis], M, axis=0)
    state = solver.init(covariance, given.network, basis)
    seen = []
    for _ in range(iterations):
        state = solver.step(covariance, given.network, state)
        seen.append(mean_error(solver.readout(state), given.vectors[:, :K]))
    return np.array(seen)


@pytest.mark.parametrize("mixes", [1, 2, 3, 5])
@pytest.mark.parametrize("unlike", [False, True], ids=["like", "unlike"])
def test_deepca_wanders_when_it_mixes_too_little(mixes, unlike):
    late = errors(DeEPCA(mixes), "cycle", 600, unlike)[300:]
    assert late.min() > 0.3


@pytest.mark.parametrize(("topology", "mixes"), [("cycle", 6), ("cycle", 10), ("erdos_renyi", 2)])
@pytest.mark.parametrize("unlike", [False, True], ids=["like", "unlike"])
def test_deepca_is_exact_when_it_mixes_enough(topology, mixes, unlike):
    assert errors(DeEPCA(mixes), topology, 600, unlike)[-1] < 1e-9


def test_a_run_that_wanders_says_so_and_keeps_its_bounds_true():
    given = problem("cycle")
    result = run(DeEPCA(mixes=3), given.covariance(), given.network, K, max_rounds=4000)
    assert result.stop_reason in (StopReason.STALLED, StopReason.MAX_ROUNDS)
    assert np.isfinite(result.node_components).all()
    assert (result.certificate.error_bounds >= angles(result.node_components, given.vectors).max(axis=0)).all()


def test_the_floor_of_s_dot_falls_with_the_mixes():
    floors = []
    for mixes in (2, 10, 50):
        late = errors(SDOT(mixes), "cycle", 300)[-50:]
        assert late.max() < 1.01 * late.min()
        floors.append(late[-1])
    assert floors[0] > 5 * floors[1] > 25 * floors[2] > 25 * 1e-5


def test_few_mixes_are_enough_on_a_well_connected_graph():
    assert errors(SDOT(50), "erdos_renyi", 300)[-1] < 1e-25
    assert 1e-7 < errors(SDOT(5), "erdos_renyi", 300)[-1] < 1e-5


def test_the_floor_of_s_dot_is_not_taken_for_the_answer():
    given = problem("cycle")
    result = run(SDOT(mixes=10), given.covariance(), given.network, K, max_rounds=100_000)
    assert result.stop_reason is StopReason.STALLED
    # The residual it reports stays up with the floor; so no certificate is asked for before the end.
    assert result.history[-2].residual > result.certificate.residuals.max()
    assert result.traffic_by_phase["certificate"].rounds < 500


def test_sa_dot_has_the_floor_of_its_cap_and_comes_there_with_fewer_rounds():
    growing, constant = errors(SADOT(cap=10), "cycle", 300), errors(SDOT(mixes=10), "cycle", 300)
    assert growing[-1] == pytest.approx(constant[-1], rel=1e-6)
    goal = 0.1
    rounds = np.cumsum([SADOT(cap=10).mixes(t) for t in range(300)])
    assert rounds[np.argmax(growing < goal)] < 10 * (1 + np.argmax(constant < goal))


def test_a_distributed_power_method_has_the_floor_of_s_dot():
    late = errors(SequentialDistributedPower(iterations=50, mixes=50), "cycle", 600)[-1]
    assert 0.2 < late / errors(SDOT(50), "cycle", 300)[-1] < 5


def test_one_after_the_other_is_slower_than_all_at_once():
    together, in_turn = errors(OrthogonalIteration(), "cycle", 400), errors(SequentialPower(50), "cycle", 800)
    assert np.argmax(in_turn < 1e-10) > 3 * np.argmax(together < 1e-10) > 0


@pytest.mark.parametrize("iterations", [1, 7, 60])
def test_every_budget_of_a_sequential_method_ends_at_the_components(iterations):
    # What one pass leaves undone the next one mends.
    assert errors(SequentialPower(iterations), "cycle", 1500)[-1] < 1e-20


@pytest.mark.slow
def test_the_neighbourhood_of_dsa_shrinks_with_its_step():
    steps = (0.2, 0.1, 0.05)
    floors = []
    for step in steps:
        seen = errors(DSA(step), "erdos_renyi", 6000)
        # It has come to rest, and not at the answer.
        assert seen[-1] == pytest.approx(seen[-1000], rel=1e-3)
        floors.append(seen[-1])
    # E is a squared sine, and the sine goes with the step.
    orders = np.log2(np.array(floors[:-1]) / floors[1:])
    assert (orders > 1.6).all()
    assert (orders < 2.2).all()


def test_the_neighbourhood_of_dsa_is_wide_where_nodes_are_unlike():
    assert errors(DSA(), "erdos_renyi", 3000)[-1] < 1e-3
    assert errors(DSA(), "erdos_renyi", 3000, unlike=True)[-1] > 0.1
