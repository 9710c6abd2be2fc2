"""The certificate tells the truth without knowing it."""

import numpy as np
import pytest

from eigenmesh import graphs, run
from eigenmesh.averaging import Chebyshev, Gossip, Tree
from eigenmesh.certificate.bounds import find_clusters
from eigenmesh.certificate.complement import probe_complement
from eigenmesh.certificate.krylov import LARGEST_CHANCE, KnownComponents
from eigenmesh.certificate.measured import certify
from eigenmesh.data import Formed
from eigenmesh.data.datasets import geometric_spectrum, paper_spectrum
from eigenmesh.metrics import subspace_angle
from eigenmesh.networks import Stacked
from eigenmesh.solvers import BlockKrylov, FastPCA
from problems import angles, from_parts, make_problem, random_covariances, with_spectrum


def exact(covariance):
    values, vectors = np.linalg.eigh(covariance.matrices.mean(axis=0))
    return values[::-1], vectors[:, ::-1]


def disturbed(vectors, size, n_nodes, rng, apart=0.1):
    """Columns turned by about ``size``, and a little differently at each node."""
    common = vectors + size * rng.standard_normal(vectors.shape) / np.sqrt(len(vectors))
    return common + apart * size * rng.standard_normal((n_nodes, *vectors.shape)) / np.sqrt(len(vectors))


@pytest.mark.slow
def test_the_bound_holds_and_is_tight_on_200_random_problems():
    rng = np.random.default_rng(0)
    ratios = []
    for trial in range(200):
        n_nodes, d = int(rng.integers(2, 9)), int(rng.integers(2, 30))
        k = int(rng.integers(1, d + 1))
        covariance = random_covariances(n_nodes, d, seed=trial)
        averaging = [Tree(), Chebyshev(), Gossip()][trial % 3]
        network = Stacked(graphs.metropolis(graphs.topologies.erdos_renyi(n_nodes, p=0.6, seed=trial)), averaging)
        values, vectors = exact(covariance)
        # An error that the gaps allow to be told from another eigenvector.
        gap = np.min(values[:k] - np.append(values, -np.inf)[1 : k + 1]) / values[0]
        size = 10 ** rng.uniform(-9, -1) * min(gap, 0.1)
        X = disturbed(vectors[:, :k], size, n_nodes, rng)
        certified = certify(covariance, network, X, seed=trial)
        true = angles(np.swapaxes(certified.local, -1, -2), vectors).max(axis=0)
        assert (certified.certificate.error_bounds >= true).all(), trial
        ratios.append(certified.certificate.error_bound / true.max())
    assert np.mean(np.array(ratios) < 10) > 0.8


def test_the_bound_holds_for_what_runs_give_back():
    for seed in range(20):
        topology = ("erdos_renyi", "cycle", "path", "star")[seed % 4]
        spectrum = paper_spectrum(12, 3, 0.7) if seed % 2 else geometric_spectrum(12, 3, 0.7, ratio=0.6)
        problem = make_problem(spectrum, n_nodes=6, topology=topology, seed=seed, unlike=seed % 3 == 0)
        result = run(FastPCA(), problem.covariance(), problem.network, 3, tol=1e-5, max_rounds=3000)
        true = angles(result.node_components, problem.vectors).max(axis=0)
        assert (result.certificate.error_bounds >= true).all()
        if result.converged:
            assert true.max() < 1e-5


def test_a_missed_direction_is_noticed():
    covariance = random_covariances(6, 20, seed=5)
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(6)))
    _, vectors = exact(covariance)
    # Exact eigenvectors, residual zero, but not the leading ones.
    X = np.repeat(vectors[np.newaxis, :, [0, 2, 3]], 6, axis=0)
    certificate = certify(covariance, network, X).certificate
    assert certificate.residuals.max() < 1e-12
    assert certificate.error_bound == 1.0
    assert any("not the leading ones" in note for note in certificate.warnings)


@pytest.mark.parametrize("averaging", [Tree(), Chebyshev(), Gossip()], ids=repr)
def test_the_complement_is_the_next_eigenvalue(averaging):
    covariance = random_covariances(6, 40, seed=8)
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(6)), averaging)
    values, vectors = exact(covariance)
    found = KnownComponents(4, values[3], 0.0, 1, 1e-13, 1e-12)
    beyond = probe_complement(covariance, network, vectors[np.newaxis, :, :4], 6, found)
    assert beyond.lower <= values[4] * (1 + 1e-12)
    assert values[4] <= beyond.upper < values[3]
    assert beyond.chance <= LARGEST_CHANCE
    assert beyond.shared == 0


def test_nothing_lies_beyond_all_components():
    covariance = random_covariances(4, 5, seed=1)
    network = Stacked(graphs.metropolis(graphs.topologies.complete(4)))
    _, vectors = exact(covariance)
    certificate = certify(covariance, network, np.repeat(vectors[np.newaxis], 4, axis=0)).certificate
    assert certificate.next_value == -np.inf
    assert certificate.error_bound < 1e-12


def ring():
    return Stacked(graphs.metropolis(graphs.topologies.cycle(5)))


def test_equal_eigenvalues_form_a_cluster_whose_span_is_certain():
    (covariance, Q), network = with_spectrum([5, 3, 3, 1, 0.5, 0.2]), ring()
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((2, 2)))[0]
    X = Q[:, :4].copy()
    X[:, 1:3] = X[:, 1:3] @ turn
    certified = certify(covariance, network, np.repeat(X[np.newaxis], 5, axis=0))
    certificate = certified.certificate
    assert certificate.clusters == ((1, 2),)
    assert not certificate.open_cluster
    assert certificate.error_bound < 1e-10
    assert "components 2, 3 have eigenvalues too close" in certificate.warnings[0]
    assert subspace_angle(certified.common[0][:, 1:3], Q[:, 1:3]) <= certificate.error_bounds[1]


def test_an_eigenvalue_that_goes_on_beyond_k_is_said_to_be_a_choice():
    (covariance, Q), network = with_spectrum([5, 3, 3, 3, 0.5, 0.2]), ring()
    certificate = certify(covariance, network, np.repeat(Q[np.newaxis, :, :2], 5, axis=0)).certificate
    assert certificate.open_cluster
    assert certificate.clusters == ((1,),)
    assert certificate.error_bound < 1e-10
    assert "one choice out of many" in certificate.warnings[0]


def test_components_beyond_the_rank_are_a_choice_too():
    rng = np.random.default_rng(3)
    factor = rng.standard_normal((3, 10)) * np.array([[3], [2], [1]])
    problem = from_parts([rng.standard_normal((40, 3)) @ factor for _ in range(4)], "cycle")
    result = run(FastPCA(), problem.covariance(), problem.network, 5)
    assert result.converged
    assert result.certificate.open_cluster
    assert result.certificate.clusters == ((3, 4),)
    assert angles(result.node_components[:, :3], problem.vectors).max() < 1e-6


def test_clusters_split_where_the_resolution_allows():
    values = np.array([4.0, 3.0, 3.0 - 1e-9, 1.0])
    assert find_clusters(values, 0, 1e-8) == ((1, 2),)
    assert find_clusters(values, 0, 1e-10) == ()
    assert find_clusters(values, 1, 1e-8) == ((1, 2), (3,))


def test_signs_and_order_are_the_same_at_every_node():
    covariance = random_covariances(7, 9, seed=4)
    network = Stacked(graphs.metropolis(graphs.topologies.path(7)), Gossip(1e-6))
    _, vectors = exact(covariance)
    rng = np.random.default_rng(0)
    X = disturbed(vectors[:, [2, 0, 1]], 1e-7, 7, rng)
    X[3, :, 1] *= -1
    X[5] *= -1
    certified = certify(covariance, network, X)
    agreement = np.einsum("idk,dk->ik", certified.local, certified.local[0])
    assert (agreement > 0.999).all()
    assert angles(np.swapaxes(certified.local, -1, -2), vectors).max() < 1e-6
    largest = np.take_along_axis(certified.common, np.abs(certified.common).argmax(axis=1)[:, np.newaxis], axis=1)
    assert (largest > 0).all()


def test_every_number_is_the_same_at_all_nodes_whatever_the_averaging():
    problem = make_problem(geometric_spectrum(10, 3, 0.5), averaging=Gossip(1e-9))
    result = run(FastPCA(), problem.covariance(), problem.network, 3)
    certificate = result.certificate
    assert certificate.disagreement.max() > 0
    assert certificate.error_bounds.shape == (3,)
    assert np.isfinite(certificate.gaps).all()


def test_small_eigenvalues_of_float32_samples_are_not_taken_for_one():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    spread = np.concatenate([[1, 0.03, 0.02, 0.01], np.full(26, 1e-3)])
    parts = [((rng.standard_normal((500, 30)) * spread) @ Q.T).astype(np.float32) for _ in range(4)]
    problem = from_parts(parts, "complete")
    for solver in (BlockKrylov(), FastPCA()):
        result = run(solver, problem.covariance(), problem.network, 3, tol=1e-2, max_rounds=3000)
        true = angles(result.node_components, problem.vectors).max(axis=0)
        assert result.certificate.clusters == ()
        assert not result.converged or true.max() < 1e-2
        assert (result.certificate.error_bounds >= true).all()


def test_a_loose_average_certifies_nothing():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((360, 10)) * np.linspace(2, 1, 10) + 1000 * rng.standard_normal(10)
    problem = from_parts([rows[:300], *np.split(rows[300:], 5)], "cycle", averaging=Gossip(1e-2))
    result = run(BlockKrylov(), problem.covariance(), problem.network, 2, tol=0.01, max_rounds=5000)
    true = angles(result.node_components, problem.vectors).max()
    assert not result.converged or true < 0.01


@pytest.mark.slow
def test_the_look_beyond_finds_one_direction_among_many():
    values = np.concatenate([[1, 0.9975], np.full(500, 0.9727), np.linspace(0.6, 0, 498)])
    covariance = Formed(np.diag(values)[np.newaxis])
    network = Stacked(graphs.metropolis(graphs.topologies.complete(1)))
    for seed in range(12):
        # The second direction in the place of the first: the first must be found to be missing.
        for column in (0, 1):
            basis = np.eye(1000)[np.newaxis, :, [column]]
            found = KnownComponents(1, values[column], 0.0, 1, 1e-13, 1e-12)
            beyond = probe_complement(covariance, network, basis, 1, found, seed=seed)
            assert beyond.upper >= values[1 - column] - 1e-12 or beyond.chance > LARGEST_CHANCE


def test_the_same_direction_twice_is_not_certified():
    covariance = Formed(np.broadcast_to(np.diag([3.0, 2, 1, 0.5]), (3, 4, 4)).copy())
    X = np.zeros((3, 4, 2))
    X[:, 0, :] = 1
    certificate = certify(covariance, Stacked(graphs.metropolis(graphs.topologies.complete(3))), X).certificate
    assert certificate.error_bound == 1.0
