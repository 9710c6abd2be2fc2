"""Every method against a plain reading of its equations: node by node, column by column, in NumPy."""

import numpy as np
import pytest

from eigenmesh import graphs
from eigenmesh.networks import Stacked
from eigenmesh.solvers import (
    DSA,
    SADOT,
    SDOT,
    DeEPCA,
    Krasulina,
    OrthogonalIteration,
    Sanger,
    SequentialDistributedPower,
    SequentialPower,
)
from eigenmesh.solvers.base import random_basis
from eigenmesh.solvers.literature.deepca import fast_mix
from eigenmesh.solvers.literature.dot import plain_mix
from problems import random_covariances

M, D, ITERATIONS = 9, 12, 50
STEP = 0.02


def gram_schmidt(Z):
    """Column by column; the diagonal of R is positive."""
    Q = np.zeros_like(Z)
    for k in range(Z.shape[1]):
        y = Z[:, k].copy()
        # Twice is enough for any basis that is not singular to working precision.
        for _ in range(2):
            for p in range(k):
                y -= (Q[:, p] @ y) * Q[:, p]
        Q[:, k] = y / np.linalg.norm(y)
    return Q


def mixed(W, Z, rounds=1):
    for _ in range(rounds):
        Z = [sum(W[i, j] * Z[j] for j in range(len(Z))) for i in range(len(Z))]
    return Z


def mean(Z):
    return [sum(Z) / len(Z)] * len(Z)


def hebbian(C, X):
    H = C @ X
    for k in range(X.shape[1]):
        for p in range(k + 1):
            H[:, k] -= (X[:, p] @ C @ X[:, k]) * X[:, p]
    return H


def orthogonal_iteration(C, W, X):
    while True:
        X = [gram_schmidt(z) for z in mean([c @ x for c, x in zip(C, X, strict=True)])]
        yield X


def s_dot(C, W, X):
    while True:
        X = [gram_schmidt(z) for z in mixed(W, [c @ x for c, x in zip(C, X, strict=True)], rounds=7)]
        yield X


def sa_dot(C, W, X):
    for t in range(ITERATIONS):
        rounds = min(2 + t // 2, 20)
        X = [gram_schmidt(z) for z in mixed(W, [c @ x for c, x in zip(C, X, strict=True)], rounds)]
        yield X


def sequential(average):
    def iterates(C, W, X):
        X = [x.copy() for x in X]
        while True:
            for k in range(X[0].shape[1]):
                for _ in range(6):
                    Z = average(W, [c @ x[:, k] for c, x in zip(C, X, strict=True)])
                    for x, z in zip(X, Z, strict=True):
                        y = z - sum((x[:, p] @ z) * x[:, p] for p in range(k))
                        x[:, k] = y / np.linalg.norm(y)
                    yield X

    return iterates


def deepca(C, W, X):
    beta = np.sort(np.abs(np.linalg.eigvalsh(W)))[-2]
    root = np.sqrt(1 - beta**2)
    eta = (1 - root) / (1 + root)
    start, S, before = X, X, X
    while True:
        product = [c @ x for c, x in zip(C, X, strict=True)]
        Z = [s + new - old for s, new, old in zip(S, product, before, strict=True)]
        Z_before = Z
        for _ in range(8):
            Z_before, Z = Z, [(1 + eta) * a - eta * b for a, b in zip(mixed(W, Z), Z_before, strict=True)]
        S, before = Z, product
        X = [np.linalg.qr(s)[0] for s in S]
        X = [x * np.where(np.sum(x * x0, axis=0) < 0, -1, 1) for x, x0 in zip(X, start, strict=True)]
        yield X


def dsa(C, W, X):
    while True:
        X = [a + STEP * hebbian(c, x) for a, c, x in zip(mixed(W, X), C, X, strict=True)]
        yield X


def sanger(C, W, X):
    pooled = sum(C) / len(C)
    while True:
        X = [x + STEP * hebbian(pooled, x) for x in X]
        yield X


def krasulina(C, W, X):
    pooled = sum(C) / len(C)
    while True:
        X = [x + STEP * (pooled @ x - (x.T @ pooled @ x).item() / (x.T @ x).item() * x) for x in X]
        yield X


METHODS = [
    (OrthogonalIteration(), orthogonal_iteration),
    (SequentialPower(iterations=6), sequential(lambda W, Z: mean(Z))),
    (SequentialDistributedPower(iterations=6, mixes=7), sequential(lambda W, Z: mixed(W, Z, 7))),
    (SDOT(mixes=7), s_dot),
    (SADOT(start=2, growth=0.5, cap=20), sa_dot),
    (DeEPCA(mixes=8), deepca),
    (DSA(step_size=STEP), dsa),
    (Sanger(step_size=STEP), sanger),
    (Krasulina(step_size=STEP), krasulina),
]


CASES = [
    pytest.param(solver, plain, k, id=f"{solver.name}-{k}")
    for solver, plain in METHODS
    for k in ((1,) if solver.name == "krasulina" else (1, 3, D))
]


@pytest.mark.parametrize(("solver", "plain", "k"), CASES)
def test_iterates_equal_a_plain_reading_of_the_equations(solver, plain, k):
    covariance = random_covariances(M, D, seed=k)
    network = Stacked(graphs.metropolis(graphs.topologies.erdos_renyi(M, seed=4)))
    basis = np.repeat(random_basis(D, k, seed=3)[np.newaxis], M, axis=0)
    state = solver.init(covariance, network, basis)
    by_hand = plain(list(covariance.matrices), network.weights.matrix, list(basis))
    for _ in range(ITERATIONS):
        state = solver.step(covariance, network, state)
        X = np.array(next(by_hand))
        assert np.linalg.norm(state.X - X) <= 1e-10 * np.linalg.norm(X)


def test_the_tracker_of_deepca_keeps_the_mean():
    covariance = random_covariances(M, D, seed=0)
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(M)))
    solver = DeEPCA(mixes=3)
    state = solver.init(covariance, network, np.repeat(random_basis(D, 3, seed=3)[np.newaxis], M, axis=0))
    for _ in range(20):
        state = solver.step(covariance, network, state)
        assert np.allclose(state.S.mean(axis=0), state.product.mean(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("topology", ["cycle", "star", "complete", "erdos_renyi"])
def test_mixing_keeps_the_mean_and_fast_mix_is_faster(topology):
    network = Stacked(graphs.metropolis(graphs.topology(topology, 16, seed=1)))
    Z = np.random.default_rng(0).standard_normal((16, 5, 2))
    pooled = Z.mean(axis=0)
    plain, fast = plain_mix(network, Z, 30)[0], fast_mix(network, Z, 30)
    assert np.allclose(plain.mean(axis=0), pooled, rtol=0, atol=1e-13)
    assert np.allclose(fast.mean(axis=0), pooled, rtol=0, atol=1e-13)
    assert np.linalg.norm(fast - pooled) <= 1e-12 + np.linalg.norm(plain - pooled)
    assert network.traffic.rounds == 60


@pytest.mark.parametrize("rounds", [1, 5, 40])
@pytest.mark.parametrize("topology", ["cycle", "star", "erdos_renyi"])
def test_the_last_mix_tells_how_far_the_nodes_are_apart(topology, rounds):
    network = Stacked(graphs.metropolis(graphs.topology(topology, 16, seed=1)))
    Z = np.random.default_rng(0).standard_normal((16, 5, 2))
    values, disagreement = plain_mix(network, Z, rounds)
    true = np.linalg.norm(values - Z.mean(axis=0), axis=(0, 1))
    told = np.linalg.norm(disagreement, axis=0)
    assert (true <= told + 1e-15).all()
    # It is a bound, and close once the slowest mode is left.
    assert rounds < 40 or (told <= 1.5 * true + 1e-13).all()
