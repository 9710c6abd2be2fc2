"""FAST-PCA against a plain reading of its equations, in every array library, and safe on unlike nodes."""

import array_api_strict
import numpy as np
import pytest
import torch

from eigenmesh import arrays as ea
from eigenmesh import graphs, run
from eigenmesh.data import Formed
from eigenmesh.data.datasets import geometric_spectrum
from eigenmesh.errors import InputError
from eigenmesh.iteration.stopping import StopReason
from eigenmesh.networks import Stacked
from eigenmesh.solvers import FastPCA
from eigenmesh.solvers.base import random_basis
from problems import make_problem, one_large_node, random_covariances

M, D = 9, 12


def plain_gradient(C, X):
    """Equation (2), column by column."""
    H = np.zeros_like(X)
    for k in range(X.shape[1]):
        x = X[:, k]
        H[:, k] = C @ x - (x @ C @ x) / (x @ x) * x
        for p in range(k):
            y = X[:, p]
            H[:, k] -= (y @ C @ x) / (y @ y) * y
    return H


def plain_step(C, W, X, S, a):
    """Equations (3) and (4), node by node."""
    n = len(C)
    X_next = [X[i] / 2 + sum(W[i, j] * X[j] for j in range(n)) / 2 + a * S[i] for i in range(n)]
    S_next = [
        S[i] / 2
        + sum(W[i, j] * S[j] for j in range(n)) / 2
        + plain_gradient(C[i], X_next[i])
        - plain_gradient(C[i], X[i])
        for i in range(n)
    ]
    return X_next, S_next


def place(covariance, k):
    basis = np.repeat(random_basis(D, k, seed=3)[np.newaxis], M, axis=0)
    return covariance.place(basis)


@pytest.mark.parametrize("k", [1, 3, D])
def test_iterates_equal_a_plain_reading_of_the_equations(k):
    covariance = random_covariances(M, D, seed=k)
    network = Stacked(graphs.metropolis(graphs.topologies.erdos_renyi(M, seed=4)))
    W = network.weights.matrix
    solver = FastPCA(step_size=0.02)
    state = solver.init(covariance, network, place(covariance, k))
    C = covariance.matrices
    X = [np.array(x) for x in state.X]
    S = [plain_gradient(c, x) for c, x in zip(C, X, strict=True)]
    for _ in range(200):
        state = solver.step(covariance, network, state)
        X, S = plain_step(C, W, X, S, 0.02)
        scale = np.linalg.norm(X)
        assert np.linalg.norm(state.X - X) <= 1e-12 * scale
        assert np.linalg.norm(state.S - S) <= 1e-12 * max(np.linalg.norm(S), scale)
        # The invariant of gradient tracking: the mean of S is the mean of h(X).
        assert np.allclose(state.S.mean(axis=0), state.H.mean(axis=0), rtol=0, atol=1e-12)
    assert network.traffic.rounds - network.maximum_rounds == 200
    assert network.traffic.matrices == 400


@pytest.mark.parametrize("library", ["torch", "strict"])
def test_every_library_runs_the_same_lines(library):
    xp = {"torch": torch, "strict": array_api_strict}[library]
    reference = random_covariances(M, D, seed=1).matrices
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(M)))
    solver = FastPCA()
    states = []
    for covariance in (Formed(reference), Formed(xp.asarray(reference))):
        state = solver.init(covariance, network, place(covariance, 3))
        for _ in range(50):
            state = solver.step(covariance, network, state)
        state = solver.check(covariance, network, state).state
        states.append(state)
    assert type(states[1].X) is type(xp.asarray(reference))
    assert np.allclose(ea.to_numpy(states[1].X), states[0].X, rtol=0, atol=1e-12)
    assert np.allclose(ea.to_numpy(solver.readout(states[1])), solver.readout(states[0]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("library", ["torch", "strict"])
def test_a_whole_run_in_every_library(library):
    xp = {"torch": torch, "strict": array_api_strict}[library]
    problem = make_problem(geometric_spectrum(10, 3, 0.6))
    formed = problem.covariance()
    ours = run(FastPCA(), formed, problem.network, 3)
    theirs = run(FastPCA(), Formed(xp.asarray(formed.matrices)), problem.network, 3)
    assert ours.converged
    assert theirs.converged
    assert np.allclose(ours.components, theirs.components, rtol=0, atol=1e-9)
    assert theirs.traffic == ours.traffic


def test_a_fixed_step_that_is_too_long_ends_as_diverged_and_without_nan():
    problem = make_problem(geometric_spectrum(10, 3, 0.6), unlike=True)
    result = run(FastPCA(step_size=50.0), problem.covariance(), problem.network, 3)
    assert result.stop_reason is StopReason.DIVERGED
    assert 'step_size="auto"' in result.stop_reason.advice
    for array in (result.components, result.node_components, result.explained_variance):
        assert np.isfinite(array).all()


@pytest.mark.parametrize("topology", ["cycle", "erdos_renyi"])
def test_an_automatic_step_is_shortened_until_it_works(topology):
    # The first step is far too long.
    network = Stacked(graphs.metropolis(graphs.topology(topology, 10, seed=0)))
    result = run(FastPCA(), one_large_node(), network, 2, max_rounds=20000)
    steps = [record.step_size for record in result.history]
    assert np.isfinite(result.node_components).all()
    assert steps[-1] <= steps[0]
    assert result.certificate.error_bound < 1e-3


def test_the_suggested_step_follows_the_graph():
    dense = graphs.metropolis(graphs.topologies.complete(20)).spectrum.second
    ring = graphs.metropolis(graphs.topologies.cycle(20)).spectrum.second
    assert FastPCA.suggested_step(2.0, dense) == pytest.approx(0.35)
    assert FastPCA.suggested_step(1.0, ring) == pytest.approx(5 * (1 - ring) / 2)
    assert FastPCA.suggested_step(1.0, ring) < 0.1


@pytest.mark.parametrize("step", [0, -0.1, float("nan"), float("inf"), "fast", True])
def test_a_bad_step_is_refused(step):
    with pytest.raises(InputError, match="step_size = "):
        FastPCA(step_size=step)
