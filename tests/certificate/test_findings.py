"""What once broke the certificate: each of these was certified, and wrong."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from eigenmesh import DecentralizedPCA, StreamingPCA, graphs, run
from eigenmesh.arrays import eigenpairs
from eigenmesh.averaging import Chebyshev, Gossip
from eigenmesh.certificate import certify
from eigenmesh.certificate.bounds import eigenvalue_radii
from eigenmesh.certificate.krylov import LARGEST_CHANCE, chance_missed
from eigenmesh.data import Formed
from eigenmesh.errors import DataError
from eigenmesh.networks import Stacked
from eigenmesh.solvers import BlockKrylov, FastPCA, OrthogonalIteration
from problems import with_spectrum

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def sine_to(space, x):
    """Of the angle between a unit vector and a space with orthonormal columns."""
    return np.linalg.norm(x - space @ (space.T @ x))


@pytest.mark.parametrize("solver", [OrthogonalIteration(), BlockKrylov(), FastPCA()], ids=lambda solver: solver.name)
def test_an_eigenvalue_that_goes_on_beyond_k_is_certified_by_the_gap_after_it(solver):
    covariance, Q = with_spectrum([1, 1, 0.99, 0.5, 0.3, 0.2, 0.1, 0.05])
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(5)))
    result = run(solver, covariance, network, 1, tol=1e-4, max_rounds=2000)
    true = max(sine_to(Q[:, :2], x[0] / np.linalg.norm(x[0])) for x in result.node_components)
    assert true <= result.certificate.error_bound
    assert not result.converged or true <= 1e-4
    if solver.name == "block-krylov":
        assert result.converged
        assert result.certificate.open_cluster


def test_a_diverged_run_is_not_certified():
    rows = [np.array([[2.0, 0], [-2, 0]]), np.array([[0.0, 1], [0, -1]])]
    pca = DecentralizedPCA(1, solver=FastPCA(step_size=1e9), max_rounds=200, random_state=0).fit(rows)
    true = np.abs(pca.components_[0, 1])
    assert true <= pca.certificate_.error_bound
    assert not pca.result_.converged or true <= pca.tol


@pytest.mark.parametrize("averaging", [Gossip(1e-6), Gossip(1e-8), Chebyshev(1e-6), Chebyshev(1e-8)], ids=str)
def test_the_accuracy_of_averages_counts_for_what_is_averaged(averaging):
    # Node 0 hangs off a clique, so what is left of it decays last, and its covariance is twelve times the pooled one.
    graph = nx.complete_graph(12)
    graph.remove_edges_from([(0, other) for other in range(2, 12)])
    matrices = np.repeat(np.diag(np.linspace(1e-3, 1e-4, 6))[np.newaxis], 12, axis=0)
    for node, side in ((0, 1), (11, -1)):
        direction = np.array([np.cos(0.7), side * np.sin(0.7), 0, 0, 0, 0])
        matrices[node] += 12 * np.outer(direction, direction)
    network = Stacked(graphs.metropolis(graph), averaging)
    result = run(BlockKrylov(), Formed(matrices), network, 2, tol=1e-3)
    vectors = np.linalg.eigh(matrices.mean(axis=0))[1][:, ::-1]
    true = np.array([max(sine_to(vectors[:, [k]], x[k]) for x in result.node_components) for k in range(2)])
    assert result.converged
    assert (true <= result.certificate.error_bounds).all()


def exact_components(rows):
    """Components of integers with a huge mean, exact because the mean is taken off in integers first."""
    small = (rows - rows[0]).astype(np.longdouble)
    centred = (small - small.mean(axis=0)).astype(np.float64)
    return np.linalg.svd(centred, full_matrices=False)[2]


@pytest.mark.parametrize("covariance", ["formed", "matrix-free", "chunked"])
@pytest.mark.parametrize("scale", [False, True])
def test_means_far_larger_than_deviations(covariance, scale):
    rng = np.random.default_rng(1)
    rows = rng.integers(-20, 20, (200, 6)) * np.array([1, 2, 3, 4, 6, 9]) + 2.0**46
    pca = DecentralizedPCA(2, n_nodes=5, covariance=covariance, scale=scale, random_state=0).fit(rows)
    if scale:
        small = rows - rows[0]
        true = exact_components((small - small.mean(axis=0)) / small.std(axis=0))
    else:
        true = exact_components(rows)
    sines = [sine_to(true[[k]].T, pca.components_[k]) for k in range(2)]
    assert (sines <= pca.certificate_.error_bounds).all()
    assert max(sines) < 1e-12


@pytest.mark.parametrize("seed", [1, 7])
def test_sparse_rows_with_large_means(seed):
    rng = np.random.default_rng(seed)
    rows = sparse.random_array((60, 5), density=1.0, rng=rng, format="csr")
    rows.data = rng.standard_normal(len(rows.data)) + 1e5
    true = exact_components(rows.toarray())
    pca = DecentralizedPCA(3, n_nodes=4, covariance="sparse", tol=1e-3, random_state=seed).fit(rows)
    sines = [sine_to(true[[k]].T, pca.components_[k]) for k in range(3)]
    assert pca.result_.converged
    assert (sines <= pca.certificate_.error_bounds).all()


def test_numbers_too_small_to_be_squared_are_refused():
    rows = np.random.default_rng(0).standard_normal((60, 3)) * 1e-160
    with pytest.raises(DataError, match="rescale"):
        DecentralizedPCA(1, n_nodes=3, scale=True).fit(rows)


@pytest.mark.parametrize(("dtype", "large"), [(np.float64, 1e8), (np.float32, 1e6)])
@pytest.mark.parametrize("covariance", ["formed", "matrix-free", "chunked"])
def test_the_noise_variance_does_not_cancel(dtype, large, covariance):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2000, 8)).astype(dtype)
    rows[:, 0] *= large
    pca = DecentralizedPCA(1, n_nodes=5, covariance=covariance, random_state=0).fit(rows)
    true = np.linalg.eigvalsh(np.cov(rows[:, 1:].astype(np.float64).T)).mean()
    # The first column correlates with the others by chance, which takes a little off them.
    assert pca.noise_variance_ == pytest.approx(true, rel=1e-2)
    whole = np.linalg.svd(rows.astype(np.longdouble).astype(np.float64) - rows.mean(axis=0, dtype=np.float64))[1]
    assert pca.noise_variance_ == pytest.approx((whole[1:] ** 2).sum() / 1999 / 7, rel=1e-6)


class Changing(Formed):
    """A covariance whose samples change after a few products."""

    def apply(self, X):
        products = self.__dict__.setdefault("products", [])
        products.append(1)
        changed = self.matrices * (1 + 1e-6 * (len(products) > 3) * np.arange(self.n_features))
        return changed @ X


@pytest.mark.parametrize("solver", [BlockKrylov(), OrthogonalIteration()], ids=lambda solver: solver.name)
def test_samples_that_change_during_a_run_are_noticed(solver):
    covariance, _ = with_spectrum(np.linspace(1, 0.1, 40) ** 2)
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(5)))
    with pytest.raises(DataError, match="changed during the fit"):
        run(solver, Changing(covariance.matrices), network, 4)


def test_the_chance_bounds_what_random_matrices_do():
    rng = np.random.default_rng(0)
    for s, q in ((3, 1), (4, 2), (6, 2), (6, 4)):
        smallest = np.array([np.linalg.svd(rng.standard_normal((q, s)), compute_uv=False)[-1] for _ in range(4000)])
        for size in (0.05, 0.2, 0.5):
            seen = np.mean(smallest <= size * np.sqrt(s))
            # Two components' worth of eigenspaces and two tests: a factor of four beside one of them.
            assert seen <= chance_missed(np.full(s, size), 1, q - 1)
    assert chance_missed(np.full(12, 1e-3), 3, 1) < LARGEST_CHANCE
    assert chance_missed(np.full(3, 1e-3), 3, 3) == 1.0


def test_an_eigenvalue_that_two_components_share_does_not_vouch_for_a_third():
    # Two vectors between q_1 and q_2 have overlapping intervals, and the eigenvalue of q_2 alone is in both.
    values = np.array([1.0, 0.98, 0.5])
    residuals = np.array([0.05, 0.05, 1e-3])
    radii = eigenvalue_radii(values, residuals, 0.0)
    assert radii[:2] == pytest.approx(np.hypot(0.05, 0.05))
    assert radii[2] == 1e-3
    assert (eigenvalue_radii(values, np.full(3, 1e-3), 0.0) == 1e-3).all()
    # A wider interval may meet the next one.
    assert (eigenvalue_radii(np.array([1.0, 0.98, 0.92]), np.array([0.05, 0.05, 1e-3]), 0.0) > 0.07).all()


def test_eigenvalues_lie_within_their_radii_if_columns_are_not_orthogonal():
    eigenvalues = np.array([0.18786, 0.14235, 0.08996])
    X = np.array([[0.41569, -0.29975], [0.74031, 0.83175], [0.52833, -0.46728]])
    X /= np.linalg.norm(X, axis=0)
    values = np.sum(eigenvalues[:, np.newaxis] * X**2, axis=0)
    residuals = np.linalg.norm(eigenvalues[:, np.newaxis] * X - X * values, axis=0)
    skewness = float(np.abs(X.T @ X - np.eye(2)).max())
    # Both values are nearest to 0.14; a different eigenvalue for each is farther away than both residuals together.
    pairs = ([0, 1], [0, 2], [1, 2])
    farthest = min(np.abs(np.sort(values)[::-1] - eigenvalues[pair]).max() for pair in pairs)
    assert eigenvalue_radii(values, residuals, 0.0).max() < farthest
    assert eigenvalue_radii(values, residuals, skewness).min() >= farthest


@pytest.mark.parametrize("seed", [1456, 1233])
def test_a_direction_that_is_a_mixture_of_eigenvectors_is_not_taken_for_impossible(seed):
    # Of 13 directions with nearly one eigenvalue these starts have next to nothing of one, a mixture of all of them;
    # the basis is restarted before that one shows, so what was said of it by then is kept.
    d, k = 120, 12
    values = np.concatenate([1 + 1e-4 * np.arange(k, 0, -1), [1.000099999], np.linspace(0.03, 0, d - k - 1)])
    for spectrum in (values, np.where(values > 0.5, 1.0, values)):
        network = Stacked(graphs.metropolis(graphs.topologies.complete(2)))
        covariance = Formed(np.stack([np.diag(spectrum)] * 2))
        result = run(
            BlockKrylov(oversample=1, max_width=52), covariance, network, k, tol=0.1, seed=seed, max_rounds=400
        )
        certificate = result.certificate
        if spectrum is values:
            true = [sine_to(np.eye(d)[:, [j]], x) for j, x in enumerate(result.components)]
            assert (true <= certificate.error_bounds).all()
        else:
            assert certificate.open_cluster


def test_vectors_between_eigenvectors_are_no_cluster():
    # Halfway between q_1 and q_2, both have the same x^T C x.
    C = np.diag([2.0, 1.0, 0.3, 0.2, 0.1])
    X = np.eye(5)[:, :2] @ np.array([[1, 1], [1, -1]]) / np.sqrt(2)
    network = Stacked(graphs.metropolis(graphs.topologies.complete(2)))
    certificate = certify(Formed(np.stack([C, C])), network, np.stack([X, X])).certificate
    assert certificate.clusters == ()
    assert (certificate.error_bounds >= np.sqrt(0.5) - 1e-12).all()


@pytest.mark.parametrize("settings", [{}, {"window": 3}, {"forgetting": 0.5}], ids=str)
def test_what_is_rounded_off_large_means_of_a_stream_counts(settings):
    rng = np.random.default_rng(0)
    for _ in range(5):
        rows = rng.standard_normal((60, 6)) * [3, 2, 1.5, 1, 0.5, 0.3]
        rows = rows @ np.linalg.qr(rng.standard_normal((6, 6)))[0] + 1e4 * rng.standard_normal(6)
        pca = StreamingPCA(2, n_nodes=4, topology="complete", random_state=0, **settings)
        for batch in np.split(rows, 3):
            pca.partial_fit(batch, nodes=rng.integers(0, 4, 20))
        weights = np.repeat(settings.get("forgetting", 1.0) ** np.arange(2, -1, -1), 20)[:, np.newaxis]
        # In extended precision, and about a row: means of that size would cost digits.
        exact = rows.astype(np.longdouble) - rows[0]
        exact = np.sqrt(weights) * (exact - (weights * exact).sum(axis=0) / weights.sum())
        vectors = np.linalg.eigh((exact.T @ exact).astype(float))[1][:, ::-1]
        true = [sine_to(vectors[:, [k]], pca.components_[k]) for k in range(2)]
        assert (true <= pca.certificate_.error_bounds).all()


def test_equal_eigenvalues_end_a_run_that_is_restarted():
    # Residuals at the level of rounding go up and down, and one of many is always smaller than ever before.
    covariance, _ = with_spectrum(np.concatenate([np.ones(12), np.linspace(0.5, 0, 188)]), unlike=0.0)
    network = Stacked(graphs.metropolis(graphs.topologies.complete(5)))
    result = run(BlockKrylov(max_width=60), covariance, network, 10, seed=3, max_rounds=1000)
    assert result.converged
    assert result.certificate.open_cluster
    assert result.iterations < 100


def test_eigenpairs_are_found_where_lapack_gives_up(monkeypatch):
    def gives_up(matrix):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    T = np.stack([np.diag([3.0, 1.0, 2.0]), np.ones((3, 3))])
    expected = np.linalg.eigvalsh(T)
    monkeypatch.setattr(np.linalg, "eigh", gives_up)
    values, vectors = eigenpairs(T)
    np.testing.assert_allclose(values, expected, atol=1e-14)
    np.testing.assert_allclose(T @ vectors, vectors * values[:, np.newaxis, :], atol=1e-14)
    with pytest.raises(np.linalg.LinAlgError):
        eigenpairs(np.full((2, 2), np.nan))


# With seed 48 one mean lies so close to the middle of two float64 numbers that nodes would round it differently.
@pytest.mark.parametrize("seed", [5, 6, 48])
@pytest.mark.parametrize("averaging", ["polynomial", Chebyshev(1e-9)], ids=str)
def test_nodes_centre_about_one_point_where_their_averages_differ_in_the_last_digits(averaging, seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((60, 4)) * [3, 2, 1, 0.5] + 1e6 * rng.standard_normal(4)
    rows[:15] += 2
    settings = {"averaging": averaging, "topology": "cycle", "solver": "block-krylov", "random_state": 1}
    pca = DecentralizedPCA(2, transport="threads", **settings).fit(np.split(rows, [9, 21, 45]))
    exact = rows.astype(np.longdouble) - rows[0]
    exact -= exact.mean(axis=0)
    vectors = np.linalg.eigh((exact.T @ exact).astype(float))[1][:, ::-1]
    for components in pca.node_components_:
        true = [sine_to(vectors[:, [k]], components[k]) for k in range(2)]
        assert (true <= pca.certificate_.error_bounds).all()


@pytest.mark.parametrize("transport", [None, "threads"])
def test_nodes_whose_averages_differ_do_not_separate_equal_eigenvalues(transport):
    # Push sums leave every node with other last digits, and so with other eigenvectors of a repeated eigenvalue.
    values = np.array([1.0, 1.0, 0.5, 0.5, 0.23, 0.17])
    axes = np.diag(np.sqrt(values * 11 / 2))
    for seed in range(0, 6, 2):
        rows = np.vstack([axes, -axes])[np.random.default_rng(seed).permutation(12)]
        settings = {"solver": "tracked-subspace", "max_rounds": 200, "tol": 1e-8, "random_state": seed}
        pca = DecentralizedPCA(
            1, topology=graphs.changing.over_time(graphs.topologies.cycle(5)), transport=transport, **settings
        )
        pca.fit(np.split(rows, [6, 7, 9, 11]))
        assert pca.certificate_.open_cluster
        assert np.linalg.norm(pca.node_components_[..., 2:], axis=-1).max() <= pca.certificate_.error_bound <= 1e-8
