"""The pooled components on networks that go one way, change and lose messages, and certificates that hold there."""

import numpy as np
import pytest

from eigenmesh import graphs, run
from eigenmesh.data.datasets import gaussian, paper_spectrum, unlike_nodes
from eigenmesh.errors import GraphError
from eigenmesh.networks import Changing, Stacked
from eigenmesh.solvers import SADOT, SDOT, BlockKrylov, DeEPCA, FastPCA, SequentialDistributedPower, TrackedSubspace
from eigenmesh.solvers.fast_pca import pseudo_gradient
from problems import angles, from_parts, make_problem

M, K = 20, 5
NETWORKS = {
    "out-degree 3": lambda seed: Stacked(graphs.push(graphs.topologies.random_out(M, seed=seed))),
    "out-degree 3, balanced": lambda seed: Stacked(graphs.balanced(graphs.topologies.random_out(M, seed=seed))),
    "one-way chords": lambda seed: Stacked(graphs.balanced(graphs.topologies.directed_chords(M, seed=seed))),
    "fresh graph each round": lambda seed: Changing(graphs.changing.fresh_graphs(M, seed=seed)),
    "fresh one-way graph": lambda seed: Changing(graphs.changing.fresh_graphs(M, seed=seed, one_way=True)),
    "links up 70 %": lambda seed: Changing(
        graphs.changing.links_up(graphs.topologies.erdos_renyi(M, seed=seed), 0.7, seed)
    ),
    "links up 30 %": lambda seed: Changing(
        graphs.changing.links_up(graphs.topologies.erdos_renyi(M, seed=seed), 0.3, seed)
    ),
    "connected over 5 rounds": lambda seed: Changing(
        graphs.changing.dealt_out(graphs.topologies.erdos_renyi(M, seed=seed), 5, seed)
    ),
    "matchings": lambda seed: Changing(graphs.changing.matchings(graphs.topologies.erdos_renyi(M, seed=seed), seed)),
    "loss 0.1": lambda seed: Changing(
        graphs.changing.lossy(graphs.topologies.erdos_renyi(M, seed=seed), 0.1, seed=seed)
    ),
    "loss 0.3, late, twice": lambda seed: Changing(
        graphs.changing.lossy(graphs.topologies.erdos_renyi(M, seed=seed), 0.3, delay=2, duplicates=0.2, seed=seed)
    ),
}
ROWS = [(name, seed, seed % 2 == place % 2) for place, name in enumerate(NETWORKS) for seed in range(3)]


@pytest.mark.parametrize(
    ("name", "seed", "unlike"), [pytest.param(*row, marks=[pytest.mark.slow] if row[1] else []) for row in ROWS]
)
def test_every_node_ends_with_the_pooled_components(name, seed, unlike):
    problem = make_problem(paper_spectrum(20, K, 0.8), M, seed=seed, unlike=unlike)
    result = run(TrackedSubspace(), problem.covariance(), NETWORKS[name](seed), K, seed=seed)
    true = angles(result.node_components, problem.vectors).max(axis=0)
    assert result.converged
    assert np.mean(true**2) < 1e-10
    assert (result.certificate.error_bounds >= true).all()


@pytest.mark.parametrize(
    ("name", "seed", "unlike", "known"),
    [
        ("out-degree 3", 0, False, 96),
        ("fresh graph each round", 0, False, 78),
        ("links up 70 %", 2, True, 120),
        ("matchings", 0, False, 130),
    ],
)
def test_rounds_are_within_twice_those_of_a_prototype_that_knew_how_unlike_its_nodes_are(name, seed, unlike, known):
    # What the last columns lack of a settled block does not keep a node from reading off the first ones.
    spectrum, network = paper_spectrum(20, K, 0.8), NETWORKS[name](seed)
    rows = unlike_nodes(spectrum, [1000] * M, seed) if unlike else np.split(gaussian(spectrum, 1000 * M, seed), M)
    problem = from_parts(rows)
    network.mean(np.zeros((M, 1)))
    settings = {"seed": seed, "reference": problem.vectors[:, :K]}
    result = run(TrackedSubspace(), problem.covariance(), network, K, **settings)
    assert next(record.rounds for record in result.history if record.error <= 1e-10) <= 2 * known


@pytest.mark.parametrize("name", ["links up 30 %", "loss 0.3, late, twice"])
def test_block_krylov_takes_push_sums_for_averages(name):
    problem = make_problem(paper_spectrum(40, K, 0.8), M, unlike=True)
    result = run(BlockKrylov(), problem.covariance(), NETWORKS[name](0), K)
    true = angles(result.node_components, problem.vectors).max(axis=0)
    assert result.converged
    assert (result.certificate.error_bounds >= true).all()


@pytest.mark.parametrize("name", ["fresh graph each round", "out-degree 3, balanced", "fresh one-way graph"])
def test_fast_pca_on_weights_of_the_moment(name):
    problem = make_problem(paper_spectrum(20, K, 0.8), M)
    result = run(FastPCA(), problem.covariance(), NETWORKS[name](0), K, tol=1e-4)
    assert result.converged
    assert angles(result.node_components, problem.vectors).max() < 1e-4


@pytest.mark.parametrize("rule", ["push", "pull"])
def test_fast_pca_pushes_and_pulls_where_weights_do_one_alone(rule):
    problem, graph = make_problem(paper_spectrum(20, K, 0.8), M), graphs.topologies.random_out(M, seed=1)
    network = Stacked(graphs.weighting(rule, graph))
    result = run(FastPCA(), problem.covariance(), network, K, tol=1e-4)
    assert result.converged
    assert angles(result.node_components, problem.vectors).max() < 1e-4
    # A plain reading of the equations.
    R, A = graphs.pull(graph).matrix, graphs.push(graph).matrix
    covariance, solver = problem.covariance(), FastPCA(step_size=0.1)
    basis = np.repeat(np.linalg.qr(np.random.default_rng(0).standard_normal((20, K)))[0][np.newaxis], M, axis=0)
    state = solver.init(covariance, network, basis)
    X, S, upper = state.X, state.S, np.triu(np.ones((K, K)))
    H = pseudo_gradient(covariance, X, upper)
    for _ in range(5):
        state = solver.step(covariance, network, state)
        X, S = (X + np.einsum("ij,jdk->idk", R, X)) / 2 + 0.1 * S, (S + np.einsum("ij,jdk->idk", A, S)) / 2
        H, before = pseudo_gradient(covariance, X, upper), H
        S = S + H - before
        np.testing.assert_allclose(state.X, X, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.S, S, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "solver", [TrackedSubspace(), TrackedSubspace(mixes=3), DeEPCA(), SDOT(), SADOT(), SequentialDistributedPower()]
)
def test_mixing_that_would_change_the_sum_is_refused(solver):
    problem, graph = make_problem(paper_spectrum(20, K, 0.8), M), graphs.topologies.random_out(M, seed=1)
    with pytest.raises(GraphError, match=r"columns of these weights do not sum to 1.*use push or balanced weights"):
        run(solver, problem.covariance(), Stacked(graphs.pull(graph)), K, max_rounds=100)


def test_a_look_that_begins_from_the_spare_columns_is_shorter(monkeypatch):
    problem, rounds = make_problem(paper_spectrum(60, K, 0.9), M), []
    for without in (False, True):
        if without:
            monkeypatch.setattr(TrackedSubspace, "beyond", lambda self, state: None)
        result = run(TrackedSubspace(), problem.covariance(), NETWORKS["links up 70 %"](0), K)
        assert result.converged
        rounds.append(result.traffic_by_phase["certificate"].rounds)
    assert rounds[0] < 0.8 * rounds[1]


def test_the_sums_of_the_tracker_are_kept_over_one_way_links():
    problem = make_problem(paper_spectrum(20, K, 0.8), M, unlike=True)
    covariance, network = problem.covariance(), NETWORKS["out-degree 3"](0)
    solver = TrackedSubspace(mixes=2)
    basis = np.repeat(np.linalg.qr(np.random.default_rng(0).standard_normal((20, K)))[0][np.newaxis], M, axis=0)
    state = solver.init(covariance, network, basis)
    for _ in range(10):
        state = solver.step(covariance, network, state)
        assert np.allclose(state.S.sum(axis=0), state.added.sum(axis=0), rtol=0, atol=1e-10)
        assert state.y.sum() == pytest.approx(M, abs=1e-12)
    assert np.ptp(state.y) > 0.1


def test_unlike_nodes_get_more_mixes():
    rounds = []
    for unlike in (False, True):
        problem = make_problem(paper_spectrum(20, K, 0.8), M, unlike=unlike)
        covariance, network = problem.covariance(), NETWORKS["links up 70 %"](0)
        solver, basis = TrackedSubspace(), np.broadcast_to(np.eye(20)[:, :K], (M, 20, K))
        state = solver.init(covariance, network, basis)
        for _ in range(12):
            state = solver.check(covariance, network, solver.step(covariance, network, state)).state
        rounds.append(state.mixing.rounds)
    assert rounds[0] < rounds[1]
