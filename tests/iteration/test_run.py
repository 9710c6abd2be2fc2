"""The loop: right answers on every graph, stop reasons, history, determinism."""

import numpy as np
import pytest

from eigenmesh import graphs, run
from eigenmesh.averaging import Chebyshev
from eigenmesh.data import Shards, build_covariance, pooled_moments
from eigenmesh.data.datasets import gaussian, geometric_spectrum, paper_spectrum
from eigenmesh.errors import InputError
from eigenmesh.events import EventLog, on_record
from eigenmesh.iteration.stopping import CertificateGate, StallDetector, StopReason
from eigenmesh.networks import Stacked, Traffic
from eigenmesh.solvers import FastPCA
from eigenmesh.solvers.base import random_basis
from problems import GRAPHS, angles, from_parts, make_problem


@pytest.mark.parametrize("topology", GRAPHS)
@pytest.mark.parametrize("unlike", [False, True], ids=["like", "unlike"])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_every_node_ends_with_the_pooled_components(topology, unlike, k):
    spectrum = np.array([5.0, 3.0, 2.0, 1.0, 0.5, 0.25])
    problem = make_problem(spectrum, n_nodes=6, topology=topology, unlike=unlike, seed=k)
    result = run(FastPCA(), problem.covariance(), problem.network, k, max_rounds=40_000)
    assert result.converged
    assert angles(result.node_components, problem.vectors).max() < 1e-6
    assert angles(result.components, problem.vectors).max() < 1e-6
    assert np.allclose(result.explained_variance, problem.values[:k], rtol=1e-8)
    # One order and one sign everywhere.
    assert (np.einsum("ikd,kd->ik", result.node_components, result.components) > 0.999).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_synthetic_setting_of_the_paper(seed):
    # Erdos-Renyi p = 0.5, M = 20, d = 20, K = 5, N_i = 5000, gap 0.8, step 0.7; axes of geometric variance.
    problem = from_parts(np.split(gaussian(geometric_spectrum(20, 5, 0.8), 100_000, seed), 20), seed=seed)
    result = run(
        FastPCA(step_size=0.7), problem.covariance(), problem.network, 5, reference=problem.vectors[:, :5], tol=1e-7
    )
    taken = next(record for record in result.history if record.error <= 1e-10)
    # One round an iteration; what looking at the residual costs comes on top.
    assert taken.iteration <= 260
    assert taken.rounds <= 300
    assert result.converged


def test_one_node_is_ordinary_pca():
    X = gaussian(paper_spectrum(8, 2, 0.5), 500, seed=0) + 4
    problem = from_parts([X], "complete")
    result = run(FastPCA(), problem.covariance(), problem.network, 2)
    assert result.converged
    assert angles(result.components, problem.vectors).max() < 1e-6
    assert result.traffic.bytes == 0


def test_thousands_of_nodes_on_a_sparse_graph():
    n_nodes = 2000
    rows = gaussian(np.array([4.0, 2.0, 0.5, 0.4, 0.3]), 3 * n_nodes, seed=1)
    shards = Shards.from_array(rows, n_nodes)
    network = Stacked(graphs.metropolis(graphs.topologies.regular(n_nodes, degree=8, seed=0)))
    result = run(FastPCA(), build_covariance(shards, pooled_moments(shards, network)), network, 2, max_rounds=3000)
    _, vectors = np.linalg.eigh(np.cov(rows, rowvar=False))
    assert np.isfinite(result.node_components).all()
    assert (result.certificate.error_bounds >= angles(result.node_components, vectors[:, ::-1]).max(axis=0)).all()


def test_the_same_seed_gives_the_same_bits_and_another_seed_another_path():
    problem = make_problem(geometric_spectrum(8, 2, 0.5))
    covariance = problem.covariance()
    first, again, other = (run(FastPCA(), covariance, problem.network, 2, seed=seed) for seed in (1, 1, 2))
    assert (first.node_components == again.node_components).all()
    assert first.history == again.history
    assert (first.node_components != other.node_components).any()
    assert np.allclose(first.components, other.components, rtol=0, atol=1e-5)


def test_an_interrupted_budget_says_so_and_keeps_what_there_is():
    problem = make_problem(geometric_spectrum(8, 2, 0.5), topology="cycle")
    result = run(FastPCA(), problem.covariance(), problem.network, 2, max_rounds=7)
    assert result.stop_reason is StopReason.MAX_ROUNDS
    assert not result.converged
    assert "max_rounds" in result.stop_reason.advice
    assert np.isfinite(result.components).all()
    true = angles(result.node_components, problem.vectors).max(axis=0)
    assert (result.certificate.error_bounds >= true).all()


def test_a_tolerance_beyond_the_precision_stalls():
    problem = make_problem(geometric_spectrum(8, 2, 0.5))
    result = run(FastPCA(), problem.covariance(), problem.network, 2, tol=1e-16, max_rounds=20_000)
    assert result.stop_reason is StopReason.STALLED
    assert angles(result.node_components, problem.vectors).max() < 1e-10


def test_looking_costs_little():
    problem = make_problem(paper_spectrum(12, 3, 0.9), n_nodes=12, topology="cycle")
    result = run(FastPCA(), problem.covariance(), problem.network, 3, tol=1e-8, max_rounds=30_000)
    phases = result.traffic_by_phase
    assert result.converged
    assert phases["checks"].rounds <= 0.15 * phases["iterations"].rounds
    total = Traffic()
    for spent in phases.values():
        total = total + spent
    assert total == result.traffic


def test_history_and_listener():
    problem = make_problem(geometric_spectrum(8, 2, 0.5))
    seen = []
    result = run(
        FastPCA(),
        problem.covariance(),
        problem.network,
        2,
        events=EventLog(on_record(seen.append)),
        reference=problem.vectors[:, :2],
    )
    # One record per iteration, and one for the certificate, which is where the traffic ends.
    assert len(result.history) == result.iterations + 1
    assert tuple(seen) == result.history
    assert result.history[-1].bound == result.certificate.error_bound
    assert result.history[-1][1:5] == tuple(vars(result.traffic).values())
    errors = np.array([record.error for record in result.history])
    assert errors[-1] < 1e-12 < errors[0]
    rounds = np.array([record.rounds for record in result.history])
    assert (np.diff(rounds) > 0).all()
    last = seen[-1]
    assert last.residual == min(record.residual for record in seen)


def test_a_warm_start_is_quicker():
    problem = make_problem(geometric_spectrum(8, 2, 0.7))
    covariance = problem.covariance()
    cold = run(FastPCA(), covariance, problem.network, 2)
    warm = run(FastPCA(), covariance, problem.network, 2, basis=cold.components.T)
    assert warm.converged
    assert warm.iterations < 0.75 * cold.iterations


def test_averages_that_differ_in_the_last_bits_do_not_split_the_nodes():
    problem = make_problem(geometric_spectrum(8, 3, 0.5), topology="path", averaging=Chebyshev(1e-10))
    result = run(FastPCA(), problem.covariance(), problem.network, 3, max_rounds=20_000)
    assert result.converged
    assert angles(result.node_components, problem.vectors).max() < 1e-6


def test_the_start_is_orthonormal_and_seeded():
    Q = random_basis(30, 4, seed=7)
    assert np.allclose(Q.T @ Q, np.eye(4), atol=1e-14)
    assert (random_basis(30, 4, seed=7) == Q).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components = 0 must be at least 1"),
        ({"n_components": 9}, "n_components = 9 must be at most 8, the number of features"),
        ({"n_components": 2.5}, "whole number"),
        ({"tol": 0}, "tol = 0 must be strictly between 0 and 1"),
        ({"tol": 1.5}, "tol = 1.5"),
        ({"max_rounds": 0}, "max_rounds = 0 must be at least 1"),
        ({"basis": np.eye(8)[:, :3]}, r"basis has shape \(8, 3\); it must be \(d, K\) = \(8, 2\)"),
        ({"basis": np.ones((8, 2))}, "must be orthonormal"),
    ],
)
def test_bad_settings_are_refused_before_any_work(arguments, message):
    problem = make_problem(geometric_spectrum(8, 2, 0.5))
    covariance, before = problem.covariance(), problem.network.traffic.copy()
    with pytest.raises(InputError, match=message):
        run(FastPCA(), covariance, problem.network, **{"n_components": 2, **arguments})
    assert problem.network.traffic == before


def test_a_plateau_is_not_a_stall_but_no_progress_is():
    detector = StallDetector()

    def stalled(*residual):
        return detector.stalled(np.array(residual), patience=5)

    assert not any(stalled(1.0, value) for value in [1.0, 0.5, 0.4])
    # The first component rests while the second goes on.
    assert not any(stalled(1.0, 0.1 / t) for t in range(1, 9))
    # Eleven checks of progress: it takes as many without before a stall is called.
    assert not any(stalled(1.0, 0.1) for _ in range(11))
    assert stalled(1.0, 0.1)
    assert not stalled(np.inf, 0.1)


def test_the_gate_asks_for_a_certificate_only_when_it_may_pass():
    gate = CertificateGate(tol=1e-3, scale=1.0)
    assert gate.opens(None)
    assert not gate.opens(np.array([1e-2, 1e-4]))
    assert gate.opens(np.array([1e-3, 1e-4]))
    early = CertificateGate(tol=1e-4, early=10.0, scale=1.0)
    assert early.opens(np.array([1e-3, 1e-4]))
    assert not early.passes(np.array([1e-3, 1e-4]))
    assert early.passes(np.array([1e-4, 1e-5]))
    gate.learn(gaps=np.array([0.5, 0.1]))
    assert not gate.opens(np.array([4e-4, 2e-4]))
    assert gate.opens(np.array([4e-4, 1e-4]))
