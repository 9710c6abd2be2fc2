"""The theory's functions against its own claims and against runs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenmesh import graphs, run, theory
from eigenmesh.data import Formed
from eigenmesh.errors import InputError
from eigenmesh.networks import Stacked
from eigenmesh.solvers import FastPCA

VALUES = np.array([1.0, 0.95, 0.9, 0.85, 0.8, 0.64, 0.5, 0.1])


def test_the_step_bound_by_hand():
    # min gap 0.05, K = 5: 0.05 / (10 * 11) * ((1 - 0.5) / 9)^2
    assert theory.step_bound(VALUES, 5, 0.5, 1.0) == pytest.approx(0.05 / 110 * (0.5 / 9) ** 2, rel=1e-12)
    assert theory.step_bound(VALUES, 5, 0.5, 1.0) == pytest.approx(1.4e-6, rel=0.01)


@given(
    gaps=st.lists(st.floats(0.01, 1), min_size=3, max_size=8),
    beta=st.floats(0, 0.99),
    k=st.integers(1, 2),
    unlike=st.floats(1, 100),
)
def test_within_the_bound_the_coupled_decay_is_proved(gaps, beta, k, unlike):
    values = np.cumsum(gaps)[::-1]
    largest = unlike * values[0]
    a = 0.999 * theory.step_bound(values, k, beta, largest)
    for j in range(1, k + 1):
        assert theory.spectral_radius(values, j, a, beta, largest) < 1


def test_without_a_step_nothing_contracts_and_too_long_a_step_is_not_covered():
    assert theory.spectral_radius(VALUES, 1, 1e-12, 0.5, 1.0) == pytest.approx(1, abs=1e-9)
    assert theory.spectral_radius(VALUES, 1, 0.7, 0.5, 1.0) > 1


def test_the_coupling_matrix_by_hand():
    P = theory.coupling_matrix([2.0, 1.0, 0.5], 2, 0.1, 0.6, 2.0)
    L, delta = 14.0, (1 + 0.1 * 0.5) / (1 + 0.1 * 1.0)
    assert np.allclose(P, [[0.8 + 1.4, L * 3.4, 19.6], [0.1, 0.8, 0], [0, 1.4, delta]])


@pytest.mark.parametrize("by_pooled_eigenvalues", [False, True])
def test_the_proved_step_keeps_close_what_is_close_if_all_variance_is_at_one_of_10000_nodes(by_pooled_eigenvalues):
    """FAST-PCA on a complete graph, where W is the mean: the 9,999 nodes without variance are one and the same."""
    n_nodes, values = 10_000, np.array([1.0, 0.5, 0.1])
    C = n_nodes * np.diag(values)
    a = 0.999 * theory.step_bound(values, 1, 0.0, 1.0 if by_pooled_eigenvalues else n_nodes)

    def direction(x):
        return C @ x - x * (x @ C @ x) / (x @ x)

    start = np.array([1.0, 1e-3, 1e-3])
    X, S = np.stack([start, start]), np.stack([direction(start), np.zeros(3)])
    share = np.array([1, n_nodes - 1]) / n_nodes
    for _ in range(200):
        after = X / 2 + share @ X / 2 + a * S
        S = S / 2 + share @ S / 2
        S[0] += direction(after[0]) - direction(X[0])
        X = after
    sine = np.linalg.norm(X[0, 1:]) / np.linalg.norm(X[0])
    # A step from l_1 of the mean, which is 10,000 times smaller than |C_1|, drives the node away from the answer.
    assert (sine > 0.1) if by_pooled_eigenvalues else (sine < 1.5e-3)
    assert (theory.spectral_radius(values, 1, a, 0.0, n_nodes) < 1) is not by_pooled_eigenvalues


def test_the_norm_of_a_node_is_no_smaller_than_that_of_the_mean():
    with pytest.raises(InputError, match=r"largest_norm = 0.5 must be at least the largest eigenvalue 1; give"):
        theory.step_bound(VALUES, 5, 0.5, 0.5)


def test_contraction_is_below_one_and_falls_with_the_step():
    slow, fast = (theory.contraction(VALUES, 5, a) for a in (0.1, 0.9))
    assert (fast < slow).all()
    assert (slow < 1).all()


def test_for_all_components_the_missing_eigenvalue_is_zero():
    assert theory.contraction([1.0, 0.5], 2, 1.0)[-1] == pytest.approx(1 / 1.5)


def test_predicted_rounds_agree_with_a_run_on_like_nodes():
    values = np.array([1.0, 0.8, 0.6, 0.3, 0.2, 0.1])
    network = Stacked(graphs.metropolis(graphs.topologies.complete(10)))
    covariance = Formed(np.repeat(np.diag(values)[np.newaxis], 10, axis=0))
    result = run(FastPCA(0.5), covariance, network, 3, tol=1e-9, reference=np.eye(6)[:, :3])
    taken = next(record.iteration for record in result.history if record.error < 1e-10)
    predicted = theory.predicted_rounds(values, 3, 0.5, network.weights.spectrum.beta, 1e-10)
    assert predicted / 2 < taken < predicted * 2


def test_bad_input():
    with pytest.raises(InputError, match="n_components = 4 must be between 1 and the 3"):
        theory.step_bound([3, 2, 1], 4, 0.5, 3)
    with pytest.raises(InputError, match="above 0"):
        theory.contraction([0.0, 0.0], 1, 0.5)
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        theory.predicted_rounds([2, 1], 1, 0.5, 0.5, 2.0)
    assert theory.predicted_rounds([1.0, 1.0], 1, 0.5, 0.5, 1e-3) == np.inf
