"""Problems and runs of experiments, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from small import METHODS, small_panel

from eigenmesh import graphs
from eigenmesh.data import CovarianceKind, LabelSplit, Shards, build_covariance, load, pooled_moments
from eigenmesh.experiments import problems
from eigenmesh.experiments.experiment import DataSet, Method
from eigenmesh.experiments.problems import PooledParts, leading_eigenvectors, make_comparison, pooled_covariance
from eigenmesh.experiments.runs import follow
from eigenmesh.metrics import mean_error
from eigenmesh.networks import Stacked
from eigenmesh.solvers import DSA, SDOT, BlockKrylov, DeEPCA, FastPCA, OrthogonalIteration


def test_truth_is_that_of_the_pooled_covariance():
    comparison = make_comparison(small_panel(), seed=1, trial=0)
    pooled = comparison.prepared.covariance.matrices.mean(axis=0)
    vectors = np.linalg.eigh(pooled)[1]
    assert mean_error(vectors[:, ::-1][:, :2], comparison.truth) < 1e-24
    np.testing.assert_allclose(comparison.centralised.covariance.matrices[0], pooled, atol=1e-15)
    np.testing.assert_allclose(comparison.start.T @ comparison.start, np.eye(2), atol=1e-14)


def test_trials_differ_in_data_graph_and_start_and_come_out_the_same_again():
    panel = small_panel(topology="erdos_renyi", n_nodes=8)
    first, again, other = (make_comparison(panel, 0, trial) for trial in (0, 0, 1))
    np.testing.assert_array_equal(first.prepared.covariance.matrices, again.prepared.covariance.matrices)
    np.testing.assert_array_equal(first.start, again.start)
    assert not np.allclose(first.prepared.covariance.matrices, other.prepared.covariance.matrices)
    assert not np.allclose(first.start, other.start)
    assert set(first.prepared.network.weights.graph.edges) != set(other.prepared.network.weights.graph.edges)


@pytest.mark.parametrize(("kind", "leading"), [("paper", [1.0, 0.8]), ("equal", [1.0, 1.0])])
def test_spectrum_has_the_gap_that_was_asked_for(kind, leading):
    data = DataSet(f"synthetic:kind={kind},d=6,k=2,gap=0.5,n=80000", "contiguous")
    comparison = make_comparison(small_panel(data=data), seed=0, trial=0)
    values = np.linalg.eigvalsh(comparison.prepared.covariance.matrices.mean(axis=0))[::-1]
    np.testing.assert_allclose(values[:2], leading, rtol=0.02)
    assert values[2] / values[1] == pytest.approx(0.5, rel=0.02)


def test_unit_scale_makes_the_largest_eigenvalue_one_and_labels_stay_together():
    panel = small_panel(data=DataSet("digits", "label", unit=True), n_nodes=10)
    comparison = make_comparison(panel, seed=0, trial=0)
    assert np.linalg.eigvalsh(comparison.prepared.covariance.matrices.mean(axis=0))[-1] == pytest.approx(1.0)
    digits = load("digits")
    shards = Shards.from_array(digits.X, 10, LabelSplit(), digits.labels)
    moments = pooled_moments(shards, Stacked(graphs.metropolis(graphs.topologies.complete(10))))
    expected = build_covariance(shards, moments, kind=CovarianceKind.FORMED).matrices
    ratio = expected / np.where(
        comparison.prepared.covariance.matrices == 0, 1, comparison.prepared.covariance.matrices
    )
    values = ratio[comparison.prepared.covariance.matrices != 0]
    np.testing.assert_allclose(values, values[0], rtol=1e-9)


def test_pooled_operator_and_lanczos_give_the_same_truth(monkeypatch):
    rng = np.random.default_rng(0)
    shards = Shards.from_array(rng.standard_normal((200, 30)) * np.geomspace(3, 0.1, 30), 4)
    moments = pooled_moments(shards, Stacked(graphs.metropolis(graphs.topologies.cycle(4))))
    formed, free = (
        build_covariance(shards, moments, kind=kind) for kind in (CovarianceKind.FORMED, CovarianceKind.MATRIX_FREE)
    )
    pooled = pooled_covariance(free, 4)
    assert isinstance(pooled, PooledParts)
    X = rng.standard_normal((1, 30, 3))
    np.testing.assert_allclose(pooled.apply(X), pooled_covariance(formed, 4).apply(X), atol=1e-12)
    values, vectors = leading_eigenvectors(pooled_covariance(formed, 4), 3)
    monkeypatch.setattr(problems, "DENSE_FEATURES", 0)
    lanczos_values, lanczos_vectors = leading_eigenvectors(pooled, 3)
    np.testing.assert_allclose(lanczos_values, values, rtol=1e-12)
    assert mean_error(lanczos_vectors, vectors) < 1e-20


def test_orthogonal_iteration_is_followed_as_numpy_does_it():
    comparison = make_comparison(small_panel(), seed=3, trial=0)
    curve = follow(METHODS[0], comparison, rounds=25)
    C, X = comparison.prepared.covariance.matrices.mean(axis=0), comparison.start
    for count, error in zip(curve.iterations, curve.error, strict=True):
        X = np.linalg.qr(C @ X)[0]
        assert error == pytest.approx(mean_error(X, comparison.truth), rel=1e-6, abs=1e-28), count
    np.testing.assert_array_equal(curve.rounds, curve.iterations)
    assert not curve.bytes.any()


@pytest.mark.parametrize(
    ("solver", "rounds", "matrices"),
    [(FastPCA(step_size=0.3), 1, 2), (DSA(step_size=0.3), 1, 1), (DeEPCA(mixes=4), 4, 4), (SDOT(mixes=7), 7, 7)],
)
def test_published_methods_pay_for_their_iterations_alone(solver, rounds, matrices):
    comparison = make_comparison(small_panel(), seed=0, trial=0)
    curve = follow(Method("x", solver), comparison, rounds=140)
    np.testing.assert_array_equal(curve.rounds, rounds * curve.iterations)
    np.testing.assert_array_equal(curve.matrices, matrices * curve.iterations)
    # 4 nodes on a cycle send 8 messages a round, of 6 x 2 numbers.
    np.testing.assert_array_equal(curve.bytes, curve.matrices * 8 * 6 * 2 * 8)


def test_automatic_methods_pay_for_their_looks():
    comparison = make_comparison(small_panel(), seed=0, trial=0)
    automatic = follow(Method("x", FastPCA()), comparison, rounds=200)
    assert automatic.rounds[-1] > automatic.iterations[-1]
    krylov = follow(Method("x", BlockKrylov(oversample=2)), comparison, rounds=200)
    assert krylov.error[-1] < 1e-14
    assert krylov.rounds[-1] < 60


def test_runs_end_when_they_are_done_or_lost():
    comparison = make_comparison(small_panel(), seed=0, trial=0)
    done = follow(Method("x", OrthogonalIteration()), comparison, rounds=4000)
    assert done.iterations[-1] < 1000
    assert done.error[-1] < 1e-16
    lost = follow(Method("x", DSA(step_size=50.0)), comparison, rounds=4000)
    assert lost.iterations[-1] < 1000
    assert lost.cost_to_reach(1e-2, "rounds") == np.inf
