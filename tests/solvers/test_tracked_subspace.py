"""Tracked subspace iteration, and the solver that shows covariances."""

from dataclasses import replace

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs, run
from eigenmesh.averaging import Tree
from eigenmesh.data.datasets import gaussian, geometric_spectrum, nearly_equal, paper_spectrum
from eigenmesh.errors import InputError
from eigenmesh.networks import Stacked
from eigenmesh.solvers import OneSum, TrackedSubspace
from eigenmesh.solvers.tracked_subspace import polar
from problems import angles, from_parts, make_problem, random_covariances


@pytest.mark.parametrize("topology", ["erdos_renyi", "cycle", "path", "star"])
@pytest.mark.parametrize("unlike", [False, True], ids=["like", "unlike"])
def test_every_node_ends_with_the_pooled_components(topology, unlike):
    problem = make_problem(geometric_spectrum(30, 4, 0.8), 8, topology, seed=1, unlike=unlike)
    result = run(TrackedSubspace(), problem.covariance(), problem.network, 4)
    true = angles(result.node_components, problem.vectors).max(axis=0)
    assert result.converged
    assert true.max() < 1e-6
    assert (result.certificate.error_bounds >= true).all()


def test_the_mean_of_the_tracker_is_the_mean_product_after_every_step():
    problem = make_problem(geometric_spectrum(12, 3, 0.8), 6, "cycle", unlike=True)
    covariance, solver = problem.covariance(), TrackedSubspace(mixes=1)
    basis = np.repeat(np.linalg.qr(np.random.default_rng(0).standard_normal((12, 3)))[0][np.newaxis], 6, axis=0)
    state = solver.init(covariance, problem.network, basis)
    for _ in range(20):
        state = solver.step(covariance, problem.network, state)
        assert np.allclose(state.S.mean(axis=0), state.added.mean(axis=0), rtol=0, atol=1e-11)
        assert np.allclose(state.X.mT @ state.X, np.eye(8), atol=1e-12)


def test_a_residual_that_has_stalled_for_thousands_of_checks_asks_for_no_more_than_rounding_allows():
    problem = make_problem(geometric_spectrum(12, 3, 0.8), 6, "cycle", unlike=True)
    basis = np.repeat(np.linalg.qr(np.random.default_rng(0).standard_normal((12, 3)))[0][np.newaxis], 6, axis=0)
    solver = TrackedSubspace()
    state = solver.init(problem.covariance(), problem.network, basis)
    # Residuals and Ritz values of 8 columns, minus the smallest Ritz value, and how different the nodes are.
    numbers = np.array([*[1e-9] * 8, *[1.0] * 8, -1.0, 0.5])
    for _ in range(7000):
        state = solver.adjusted(problem.network, state, numbers)
    assert state.mixing.accuracy <= 1e-12


def test_iterates_equal_a_plain_reading_of_the_equations():
    covariance = random_covariances(5, 10, seed=3, spread=0.3)
    network = Stacked(graphs.metropolis(graphs.topologies.complete(5)))
    W = network.weights.matrix
    solver = TrackedSubspace(oversample=1, mixes=1, momentum=0.05)
    basis = np.repeat(np.linalg.qr(np.random.default_rng(1).standard_normal((10, 3)))[0][np.newaxis], 5, axis=0)
    state = solver.init(covariance, network, basis)
    C = covariance.matrices
    X, S, T = list(state.X), list(state.S[:, :10]), list(state.S[:, 10:])
    before, R, inside = [np.zeros((10, 4))] * 5, [np.eye(4)] * 5, [x.T @ c @ x for x, c in zip(X, C, strict=True)]

    def mixed(arrays):
        return [sum(W[i, j] * arrays[j] for j in range(5)) for i in range(5)]

    for _ in range(30):
        Y = [S[i] - 0.05 * before[i] @ np.linalg.inv(R[i]) for i in range(5)]
        R = []
        for y in Y:
            w, v = np.linalg.eigh(y.T @ y)
            R.append((v * np.sqrt(w)) @ v.T)
        following = [y @ np.linalg.inv(r) for y, r in zip(Y, R, strict=True)]
        T = mixed([T[i] + X[i].T @ S[i] - inside[i] for i in range(5)])
        inside = [X[i].T @ S[i] for i in range(5)]
        S = mixed([S[i] + C[i] @ following[i] - C[i] @ X[i] for i in range(5)])
        before, X = X, following
        state = solver.step(covariance, network, state)
        assert np.allclose(state.X, X, rtol=0, atol=1e-10)
        assert np.allclose(state.S, np.concatenate([S, T], axis=1), rtol=0, atol=1e-9)


@pytest.mark.parametrize("topology", ["erdos_renyi", "cycle"])
def test_nearly_equal_eigenvalues_do_not_slow_it(topology):
    rounds = []
    for spectrum in (paper_spectrum(20, 5, 0.8), nearly_equal(paper_spectrum(20, 5, 0.8), 5)):
        problem = from_parts(np.split(gaussian(spectrum, 40_000, 0), 20), topology)
        result = run(
            TrackedSubspace(), problem.covariance(), problem.network, 5, reference=problem.vectors[:, :5], tol=1e-7
        )
        rounds.append(next(record.rounds for record in result.history if record.error <= 1e-10))
    # The blocks are as near to the truth as soon; where in them the components are is seen a little later.
    assert rounds[1] < 2 * rounds[0]


def test_too_few_mixes_on_unlike_nodes_are_raised():
    # Without more mixes than the start gives, the nodes would wander.
    problem = make_problem(geometric_spectrum(20, 3, 0.7), 12, "cycle", seed=4, unlike=True)
    result = run(TrackedSubspace(), problem.covariance(), problem.network, 3, max_rounds=4000)
    assert result.converged
    fixed = run(TrackedSubspace(mixes=1), problem.covariance(), problem.network, 3, max_rounds=4000)
    assert np.isfinite(fixed.node_components).all()


@pytest.mark.parametrize("mixes", [1, 4, 9])
def test_mixes_given_as_a_number_are_rounds(mixes):
    problem = make_problem(geometric_spectrum(12, 3, 0.8), 6, "cycle")
    result = run(TrackedSubspace(mixes=mixes), problem.covariance(), problem.network, 3)
    assert result.traffic_by_phase["iterations"].rounds == (1 + result.iterations) * mixes


def test_it_ends_with_one_answer_in_the_average_of_all_blocks(monkeypatch):
    problem, iterations = make_problem(paper_spectrum(30, 4, 0.8), 8, "erdos_renyi", unlike=True), []
    for own in (False, True):
        if own:
            monkeypatch.setattr(TrackedSubspace, "finish", lambda self, covariance, network, check: check)
            monkeypatch.setattr(TrackedSubspace, "traits", replace(TrackedSubspace.traits, early=1.0))
        result = run(TrackedSubspace(), problem.covariance(), problem.network, 4)
        assert result.converged
        assert (result.certificate.error_bounds >= angles(result.node_components, problem.vectors).max(axis=0)).all()
        alike = np.abs(result.node_components - result.node_components[0]).max() == 0
        assert alike != own
        iterations.append(result.iterations)
    assert iterations[0] < iterations[1]


def test_polar_factor():
    Y = np.random.default_rng(0).standard_normal((3, 9, 4))
    X, R = polar(Y)
    assert np.allclose(X @ R, Y)
    assert np.allclose(X.mT @ X, np.eye(4))
    assert np.allclose(R, R.mT)


SETTINGS_THAT_ARE_WRONG = [
    {"oversample": -1},
    {"oversample": 2.5},
    {"oversample": "a"},
    {"mixes": 0},
    {"mixes": "many"},
    {"mixes": True},
    {"momentum": -1},
    {"momentum": "fast"},
    {"momentum": float("nan")},
]


@pytest.mark.parametrize("settings", SETTINGS_THAT_ARE_WRONG, ids=str)
def test_bad_settings(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        TrackedSubspace(**settings)


@pytest.mark.parametrize("k", [1, 4, 12])
def test_one_sum_takes_one_average(k):
    problem = make_problem(np.geomspace(4, 0.1, 12), 7, "path", unlike=True, averaging=Tree())
    result = run(OneSum(), problem.covariance(), problem.network, k)
    assert result.converged
    assert angles(result.node_components, problem.vectors).max() < 1e-10
    sent = result.traffic_by_phase["iterations"]
    assert sent.rounds == 2 * problem.network.average.rounds
    packed = 12 * 13 // 2
    assert sent.bytes >= 2 * 6 * packed * 8


def test_one_sum_of_low_rank():
    rng = np.random.default_rng(1)
    factor = rng.standard_normal((2, 8))
    problem = from_parts([rng.standard_normal((30, 2)) @ factor for _ in range(4)], "path")
    result = run(OneSum(), problem.covariance(), problem.network, 3)
    assert result.converged
    assert angles(result.node_components[:, :2], problem.vectors).max() < 1e-7


def test_a_block_that_fills_the_space_stops_in_time():
    problem = make_problem(np.linspace(9, 1, 8), 4, "cycle")
    result = run(TrackedSubspace(), problem.covariance(), problem.network, 3)
    assert result.converged
    assert result.traffic.rounds < 400


def test_close_eigenvalues_of_float32_samples_over_links_that_lose_messages():
    rng = np.random.default_rng(0)
    rows = np.linalg.qr(rng.standard_normal((40, 5)))[0] * np.sqrt([1, 1, 1, 1, 0.3])
    parts = np.array_split(rows.astype(np.float32), 5)
    network = graphs.changing.lossy(graphs.topologies.cycle(5), 0.2, seed=0)
    pca = DecentralizedPCA(1, solver="tracked-subspace", topology=network, tol=1e-2).fit(parts)
    assert pca.node_components_.dtype == np.float64
    space = np.linalg.eigh(np.cov(rows.astype(np.float32).T, dtype=np.float64))[1][:, 1:]
    outside = pca.node_components_[:, 0] - pca.node_components_[:, 0] @ space @ space.T
    assert np.linalg.norm(outside, axis=1).max() <= pca.certificate_.error_bounds[0] <= 1e-2
