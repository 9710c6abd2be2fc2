"""An automatic step never ends in NaN; a fixed one that is too long ends as diverged."""

import numpy as np
import pytest

from eigenmesh import graphs, run
from eigenmesh.data import Formed
from eigenmesh.iteration.stopping import StopReason
from eigenmesh.networks import Stacked
from eigenmesh.solvers import DSA, Krasulina, Sanger
from eigenmesh.solvers.base import random_basis
from problems import angles, make_problem, one_large_node

SPECTRUM = np.array([5.0, 3.0, 1.8, 1.0, 0.5, 0.25, 0.2, 0.1])
STEPPED = [(DSA, 3), (Sanger, 3), (Krasulina, 1)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("kind", "k"), STEPPED)
def test_a_blow_up_halves_the_step_until_it_holds(kind, k):
    problem = make_problem(SPECTRUM, n_nodes=6, topology="complete", samples=1000)
    covariance, network, solver = problem.covariance(), problem.network, kind()
    basis = np.repeat(random_basis(8, k, seed=0)[np.newaxis], 6, axis=0)
    state = solver.init(covariance, network, basis)
    sound = state.step_size
    state = state._replace(step_size=100 * sound)
    restarts = 0
    for _ in range(40):
        for _ in range(100):
            state = solver.step(covariance, network, state)
        check = solver.check(covariance, network, state)
        assert check.healthy
        assert np.isfinite(solver.readout(check.state)).all()
        restarts += check.state.step_size < state.step_size
        state = check.state
    assert restarts > 0
    assert state.step_size == 100 * sound / 2**restarts
    assert angles(np.swapaxes(solver.readout(state), -1, -2), problem.vectors).max() < 0.1


@pytest.mark.parametrize(("kind", "k"), STEPPED)
@pytest.mark.parametrize("step", [50.0, 1e6])
def test_a_fixed_step_that_is_too_long_ends_as_diverged_and_without_nan(kind, k, step):
    problem = make_problem(SPECTRUM, n_nodes=6, unlike=True)
    result = run(kind(step_size=step), problem.covariance(), problem.network, k)
    assert result.stop_reason is StopReason.DIVERGED
    assert 'step_size="auto"' in result.stop_reason.advice
    for array in (result.components, result.node_components, result.explained_variance):
        assert np.isfinite(array).all()


@pytest.mark.parametrize("topology", ["cycle", "erdos_renyi", "star"])
@pytest.mark.parametrize(("kind", "k"), STEPPED)
def test_an_automatic_step_is_safe_where_one_node_holds_nearly_all_the_variance(kind, k, topology):
    network = Stacked(graphs.metropolis(graphs.topology(topology, 10, seed=0)))
    result = run(kind(), one_large_node(), network, k, max_rounds=3000)
    assert result.stop_reason is not StopReason.DIVERGED
    assert np.isfinite(result.node_components).all()
    assert np.isfinite([record.residual for record in result.history]).all()


@pytest.mark.parametrize(("kind", "k"), STEPPED)
def test_units_do_not_matter(kind, k):
    problem = make_problem(SPECTRUM, n_nodes=6, topology="complete", samples=500)
    matrices = problem.covariance().matrices
    small, large = (
        run(kind(), Formed(unit * matrices), problem.network, k, max_rounds=300) for unit in (2.0**-40, 2.0**40)
    )
    assert np.allclose(small.node_components, large.node_components, rtol=0, atol=1e-9)


def test_the_suggested_step_of_dsa_follows_the_graph():
    dense = graphs.metropolis(graphs.topologies.complete(20)).spectrum.second
    ring = graphs.metropolis(graphs.topologies.cycle(20)).spectrum.second
    assert DSA.suggested_step(2.0, dense) == pytest.approx(0.25)
    assert DSA.suggested_step(1.0, ring) == pytest.approx(1 - ring)
