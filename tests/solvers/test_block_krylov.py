"""Block Krylov: exact on any split, for close, equal and missing eigenvalues, in few averages."""

import tracemalloc

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from eigenmesh import DecentralizedPCA, graphs, run
from eigenmesh.averaging import Chebyshev, Gossip, Polynomial, Tree
from eigenmesh.certificate import Projected
from eigenmesh.data import CovarianceKind, Formed
from eigenmesh.data.datasets import gaussian, geometric_spectrum, nearly_equal, paper_spectrum, unlike_nodes
from eigenmesh.errors import InputError
from eigenmesh.metrics import largest_angle, subspace_angle
from eigenmesh.networks import Stacked
from eigenmesh.solvers import BlockKrylov, block_krylov
from eigenmesh.solvers.base import fresh_directions, random_basis
from problems import GRAPHS, angles, from_parts, make_problem, with_spectrum


@pytest.mark.parametrize("topology", GRAPHS)
@pytest.mark.parametrize("unlike", [False, True], ids=["like", "unlike"])
@pytest.mark.parametrize("averaging", [Tree(), Polynomial(), Chebyshev(), Gossip()], ids=repr)
def test_every_node_ends_with_the_pooled_components(topology, unlike, averaging):
    problem = make_problem(geometric_spectrum(40, 4, 0.9), 6, topology, seed=2, unlike=unlike, averaging=averaging)
    for kind in (CovarianceKind.FORMED, CovarianceKind.MATRIX_FREE):
        result = run(BlockKrylov(), problem.covariance(kind=kind), problem.network, 4, max_rounds=10**6)
        true = angles(result.node_components, problem.vectors).max(axis=0)
        assert result.converged
        assert true.max() < 1e-6
        assert (result.certificate.error_bounds >= true).all()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("topology", ["erdos_renyi", "cycle"])
def test_the_settings_of_the_paper_take_few_rounds(seed, topology):
    bar = {"erdos_renyi": 60, "cycle": 45}[topology]
    for gap in (0.8, 0.97):
        spectrum = paper_spectrum(20, 5, gap)
        equal = nearly_equal(spectrum, 5)
        for parts in (
            np.split(gaussian(spectrum, 20_000, seed), 20),
            np.split(gaussian(equal, 20_000, seed), 20),
            unlike_nodes(spectrum, [1000] * 20, seed),
        ):
            problem = from_parts(parts, topology, seed, Polynomial())
            result = run(
                BlockKrylov(), problem.covariance(), problem.network, 5, seed=seed, reference=problem.vectors[:, :5]
            )
            taken = next(record.rounds for record in result.history if record.error <= 1e-10)
            assert taken <= bar
            assert result.converged


@pytest.mark.parametrize("topology", ["directed_cycle", "directed_chords", "random_out"])
@pytest.mark.parametrize("rule", ["balanced", "push"])
def test_one_way_links_take_a_product_times_both_heights(topology, rule):
    problem = make_problem(geometric_spectrum(30, 4, 0.8), 12, unlike=True)
    network = Stacked(graphs.weighting(rule, graphs.topology(topology, 12, seed=1)))
    result = run(BlockKrylov(), problem.covariance(), network, 4)
    true = angles(result.node_components, problem.vectors).max(axis=0)
    assert result.converged
    assert true.max() < 1e-10
    assert (result.certificate.error_bounds >= true).all()
    graph, root = network.weights.graph, network.average.root
    heights = nx.eccentricity(graph, root) + nx.eccentricity(graph.reverse(), root)
    assert result.traffic_by_phase["iterations"].rounds == result.iterations * heights


@pytest.mark.parametrize("averaging", [Tree(), Polynomial()], ids=repr)
def test_equal_eigenvalues_give_the_exact_span_and_are_named(averaging):
    values = np.concatenate([[5, 3, 3, 3], np.geomspace(1, 0.01, 40)])
    covariance, Q = with_spectrum(values)
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(5)), averaging)
    result = run(BlockKrylov(), covariance, network, 5)
    assert result.converged
    assert result.certificate.clusters == ((1, 2, 3),)
    assert subspace_angle(result.components[1:4].T, Q[:, 1:4]) < 1e-8
    assert angles(result.components[[0, 4]], Q[:, [0, 4]]).max() < 1e-8
    # All nodes hold the same vectors inside the span too.
    assert result.certificate.disagreement.max() < 1e-6


def test_an_eigenvalue_that_is_cut_by_k_is_a_choice():
    covariance, Q = with_spectrum([4, 2, 2, 2, 2, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01])
    result = run(BlockKrylov(), covariance, Stacked(graphs.metropolis(graphs.topologies.cycle(5))), 3)
    assert result.converged
    assert result.certificate.open_cluster
    span = Q[:, :5]
    assert np.linalg.norm(result.components.T - span @ (span.T @ result.components.T)) < 1e-7


@pytest.mark.parametrize("rank", [3, 40], ids=["the space fills up", "restarts"])
def test_products_with_the_basis_are_known_without_keeping_them(rank):
    covariance, _ = with_spectrum(np.where(np.arange(40) < rank, np.geomspace(1, 0.1, 40), 0.0))
    network, solver = Stacked(graphs.metropolis(graphs.topologies.cycle(5))), BlockKrylov(oversample=2, max_width=12)
    basis = np.broadcast_to(np.eye(40)[:, :2], (5, 40, 2))
    (state,) = solver.init(covariance, network, basis)
    for _ in range(8):
        earlier = state
        before = earlier.V.times(np.eye(earlier.V.width)[np.newaxis])
        (state,) = solver.step(covariance, network, (state,))
        V, T, leak = state.V.times(np.eye(state.V.width)[np.newaxis])[0], state.T.matrix[0], state.leak[0]
        CV = covariance.apply(np.broadcast_to(V, (5, *V.shape))).mean(axis=0)
        present = np.diag(state.V.present[0])
        np.testing.assert_allclose(V.T @ V, present, atol=1e-13)
        reached = V @ T
        reached[:, -leak.shape[1] :] += (state.B @ state.whitening)[0] @ leak
        lost = np.linalg.norm(CV - reached)
        assert lost <= state.lost[0, 0] + 1e-14
        exact = np.linalg.norm((CV - V @ (V.T @ CV)) @ state.T.leading(state.report.shape[-1])[1][0], axis=0)
        np.testing.assert_allclose(state.report[0, 1], exact, atol=1e-12)
        # A state that is kept does not change when the next one is made, until a restart takes its room.
        kept = earlier.V.times(np.eye(earlier.V.width)[np.newaxis])
        assert state.products is None or np.array_equal(kept, before)


def lean_problem(seed, d=90, n_nodes=6, power=0.8):
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((20 + 9 * node, d)) * np.exp(rng.uniform(-1, 1, d)) for node in range(n_nodes)]
    return from_parts([part * np.arange(1, d + 1.0) ** -power for part in parts], "path")


@pytest.mark.parametrize("max_width", [None, 30], ids=["one basis", "restarts"])
def test_errors_of_few_bits_and_columns_that_wait_are_known(max_width):
    problem = lean_problem(0)
    covariance, network = problem.covariance(), problem.network
    solver = BlockKrylov(max_width=max_width, lean=True).towards(1e-4)
    basis = np.broadcast_to(random_basis(90, 3, 7), (6, 90, 3))
    (state,), columns, bits = solver.init(covariance, network, basis, 7), set(), set()
    for _ in range(8):
        columns.add(state.sending.columns)
        bits.add(state.sending.bits)
        (state,) = solver.step(covariance, network, (state,))
        V, T, leak = state.V.times(np.eye(state.V.width)[np.newaxis])[0], state.T.matrix[0], state.leak[0]
        CV = covariance.apply(np.broadcast_to(V, (6, *V.shape))).mean(axis=0)
        behind = (state.B @ state.whitening)[0]
        whole = np.hstack([V, behind])
        np.testing.assert_allclose(whole.T @ whole, np.eye(whole.shape[1]), atol=1e-12)
        reached = V @ T
        reached[:, -leak.shape[1] :] += behind @ leak
        off = np.linalg.norm(CV - reached, axis=0)
        assert (off <= state.errors[0] + state.lost[0, 0] + 1e-14).all()
        # They are no more than some times as large as they have to be.
        assert state.errors.max() <= 30 * off.max()
        exact = np.linalg.norm((CV - V @ (V.T @ CV)) @ state.T.leading(8)[1][0], axis=0)
        assert (exact <= state.report[0, 1] + 1e-14).all()
    assert min(columns) < 8 == max(columns)
    assert len(bits) > 2


@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-10])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_lean_runs_send_fewer_bytes_and_are_as_sure(k, tol):
    for seed in range(3):
        problem = lean_problem(seed, d=200, n_nodes=5)
        usual, lean = (
            run(BlockKrylov(lean=lean), problem.covariance(), problem.network, k, tol=tol, seed=seed, drawn=True)
            for lean in (False, True)
        )
        true = angles(lean.node_components, problem.vectors).max(axis=0)
        assert lean.converged
        assert (true <= lean.certificate.error_bounds).all()
        assert lean.certificate.chance <= 1e-9
        assert lean.iterations <= usual.iterations + 3
        np.testing.assert_allclose(lean.explained_variance, usual.explained_variance, rtol=tol)


def test_a_run_whose_bits_were_too_few_begins_again_with_all_of_them(monkeypatch):
    # So that the first products do not suffice: as if the gap had seemed to be much larger.
    monkeypatch.setattr("eigenmesh.solvers.lean.FIRST_RATIO", 1e-4)
    monkeypatch.setattr("eigenmesh.solvers.lean.SHARE_OF_ERRORS", 1e3)
    problem = lean_problem(1)
    result = run(BlockKrylov(lean=True), problem.covariance(), problem.network, 3, tol=1e-9)
    true = angles(result.node_components, problem.vectors).max(axis=0)
    assert result.converged
    assert (true <= result.certificate.error_bounds).all()


def test_lean_runs_are_as_others_without_a_tree():
    problem = make_problem(geometric_spectrum(40, 4, 0.9), 6, "path", averaging=Polynomial())
    one, other = (run(BlockKrylov(lean=lean), problem.covariance(), problem.network, 3) for lean in (True, False))
    assert one.components.tobytes() == other.components.tobytes()


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_rank_below_k(k):
    rng = np.random.default_rng(1)
    factor = rng.standard_normal((2, 12))
    problem = from_parts([rng.standard_normal((30, 2)) @ factor for _ in range(4)], "path")
    result = run(BlockKrylov(), problem.covariance(), problem.network, k)
    assert result.converged
    assert angles(result.node_components[:, : min(k, 2)], problem.vectors).max() < 1e-7
    assert np.allclose(result.explained_variance[2:], 0, atol=1e-10)
    assert np.allclose(result.components @ result.components.T, np.eye(k), atol=1e-6)


def test_all_components_at_once():
    problem = make_problem(np.geomspace(3, 0.1, 9), n_nodes=4, topology="cycle", unlike=True)
    result = run(BlockKrylov(), problem.covariance(), problem.network, 9)
    assert result.converged
    assert result.iterations <= 3
    assert angles(result.node_components, problem.vectors).max() < 1e-8


@pytest.mark.parametrize("max_width", [1, 40, 60])
def test_thick_restarts_keep_what_is_found(max_width):
    problem = make_problem(1 / np.arange(1, 121) ** 0.7, n_nodes=4, samples=1000)
    result = run(BlockKrylov(max_width=max_width), problem.covariance(), problem.network, 6, max_rounds=3000)
    whole = run(BlockKrylov(max_width=10**6), problem.covariance(), problem.network, 6)
    assert result.converged
    assert whole.iterations <= result.iterations
    assert angles(result.node_components, problem.vectors).max() < 1e-6


def test_a_restart_costs_a_product_at_most_and_no_second_look_beyond_the_components():
    problem = make_problem(1 / np.arange(1, 201) ** 0.3, n_nodes=4, samples=1000)
    whole, narrow = (
        run(BlockKrylov(max_width=width), problem.covariance(), problem.network, 6) for width in (10**6, 99)
    )
    assert narrow.converged
    assert whole.iterations <= narrow.iterations <= whole.iterations + 1
    # A look of its own takes dozens of rounds; this one is a maximum over the nodes.
    ours, theirs = (each.traffic_by_phase["certificate"].rounds for each in (narrow, whole))
    assert theirs < ours <= theirs + 3 * problem.network.maximum_rounds
    assert angles(narrow.node_components, problem.vectors).max() <= narrow.certificate.error_bound


def blocks_of(solver, covariance, network, **settings):
    """The result of a run, and the blocks that the basis had after each step, before the loop made it narrow."""
    blocks, step = [], BlockKrylov.step

    def counted(solver, covariance, network, state):
        state = step(solver, covariance, network, state)
        blocks.append(state[0].V.width // state[0].whitening.shape[-1])
        return state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockKrylov, "step", counted)
        return run(solver, covariance, network, 5, **settings), blocks


def test_a_large_basis_is_no_wider_than_it_was_when_the_certificate_had_looked_beyond_the_components(monkeypatch):
    monkeypatch.setattr(block_krylov, "LARGE_BYTES", 6 * 10 * 500 * 8)
    covariance, Q = with_spectrum(1 / np.arange(1, 501) ** 0.1)
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(5)))
    whole, all_blocks = blocks_of(BlockKrylov(max_width=10**6), covariance, network, tol=1e-9)
    result, blocks = blocks_of(BlockKrylov(), covariance, network, tol=1e-9)
    assert max(all_blocks) == whole.iterations
    assert max(blocks) <= 0.7 * whole.iterations
    assert result.iterations <= whole.iterations + 1
    assert angles(result.components, Q[:, :5]).max() <= result.certificate.error_bound <= 1e-9
    # A maximum over the nodes for each look, and no products.
    more = result.traffic_by_phase["certificate"].rounds - whole.traffic_by_phase["certificate"].rounds
    assert 0 < more <= 2 * network.maximum_rounds


def test_where_a_few_blocks_are_large_and_enough_there_are_no_more(monkeypatch):
    monkeypatch.setattr(block_krylov, "LARGE_BYTES", 0)
    covariance, Q = with_spectrum(np.append(np.linspace(9.0, 5.0, 5), np.linspace(0.5, 0.1, 495)))
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(5)))
    result, blocks = blocks_of(BlockKrylov(), covariance, network, tol=1e-11)
    assert len(blocks) > max(blocks) == 3
    assert angles(result.components, Q[:, :5]).max() <= result.certificate.error_bound <= 1e-11


def test_a_basis_that_has_not_told_enough_grows_on(monkeypatch):
    monkeypatch.setattr(block_krylov, "LARGE_BYTES", 0)
    covariance, _ = with_spectrum(1 / np.arange(1, 501) ** 0.1)
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(5)))
    result, blocks = blocks_of(BlockKrylov(), covariance, network, max_iterations=9)
    assert blocks == [*range(1, 10)]
    assert not result.converged


def test_the_start_is_the_space_of_gaussian_columns_whose_coordinates_are_known():
    (d, k), network = (3000, 4), Stacked(graphs.metropolis(graphs.topologies.complete(1)))
    covariance, drawn = Formed(np.eye(2)[np.newaxis]), np.random.default_rng(7).standard_normal((d, k))
    own = random_basis(d, k, seed=7)
    for basis, known in ((own, drawn), (np.eye(d)[:, :k], drawn[:, :0])):
        (state,) = BlockKrylov().init(covariance, network, basis[np.newaxis], 7)
        B, start = state.B[0], state.start[0]
        columns = np.hstack([known, fresh_directions(basis, B.shape[1], 7)])
        eps = 100 * np.finfo(float).eps
        np.testing.assert_allclose(B @ start, columns, atol=eps)
        np.testing.assert_allclose(B.T @ B, np.eye(B.shape[1]), atol=eps)
        np.testing.assert_allclose(B[:, :k], basis, atol=eps)


def test_beside_samples_and_basis_a_fit_needs_no_more_than_a_few_blocks():
    rng, d = np.random.default_rng(0), 40_000
    noise, shared = (sparse.random(n, d, density=0.002, random_state=rng, format="csr") for n in (300, 15))
    X = noise + sparse.csr_array(np.repeat(np.diag(np.linspace(9.0, 3.0, 15)), 20, axis=0)) @ shared
    DecentralizedPCA(12, n_nodes=5).fit(X)
    tracemalloc.start()
    try:
        DecentralizedPCA(12, n_nodes=5, random_state=0).fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # There is room for so many blocks and the next one, of which the system gives only what is used. Nine more are a
    # copy of the block, the product of a node and its temporary arrays, and the sums between the root and that node.
    assert peak < (block_krylov.USUAL_BLOCKS + 1 + 9) * 8 * d * 17


def test_a_warm_start_saves_products():
    problem = make_problem(1 / np.arange(1, 81) ** 0.7, n_nodes=4, samples=1000)
    covariance = problem.covariance()
    cold = run(BlockKrylov(), covariance, problem.network, 4)
    warm = run(BlockKrylov(), covariance, problem.network, 4, basis=cold.components.T)
    assert warm.iterations < cold.iterations


@pytest.mark.parametrize(("d", "exchanges"), [(200, 0), (30, 1)])
def test_checks_cost_nothing_but_one_exchange_in_a_complete_space(d, exchanges):
    problem = make_problem(paper_spectrum(d, 5, 0.9), n_nodes=8, topology="cycle")
    result = run(BlockKrylov(), problem.covariance(), problem.network, 5)
    assert result.traffic_by_phase["checks"].rounds == exchanges * problem.network.average.rounds
    assert result.traffic_by_phase["iterations"].rounds == result.iterations * problem.network.average.rounds


def test_sparse_data_stay_sparse():
    X = sparse.random(400, 3000, density=0.01, random_state=np.random.default_rng(0), format="csr")
    X[:, :5] *= 20
    ours = DecentralizedPCA(3, n_nodes=5).fit(X)
    dense = X.toarray() - X.toarray().mean(axis=0)
    _, _, right = np.linalg.svd(dense, full_matrices=False)
    assert ours.result_.converged
    assert angles(ours.components_, right.T).max() < 1e-6


@pytest.mark.parametrize("settings", [{"oversample": 0}, {"oversample": 2.5}, {"max_width": 0}, {"max_width": "wide"}])
def test_bad_settings(settings):
    with pytest.raises(InputError, match="at least 1"):
        BlockKrylov(**settings)


@pytest.mark.parametrize("factor", [1e-40, 1e-10, 1.0, 1e40])
def test_the_scale_of_the_data_does_not_matter(factor):
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((200, 6)) * np.arange(6, 0, -1)) @ rng.standard_normal((6, 40))
    ours = DecentralizedPCA(10, n_nodes=4, topology="cycle").fit(rows * factor)
    assert ours.result_.converged
    assert ours.explained_variance_ratio_.sum() == pytest.approx(1)


def test_one_product_is_already_a_step_forward():
    values = np.concatenate([[1000, 300, 100], np.linspace(1, 0.1, 27)])
    covariance, _ = with_spectrum(values)
    result = run(BlockKrylov(), covariance, Stacked(graphs.metropolis(graphs.topologies.cycle(5))), 3, max_rounds=1)
    assert result.iterations == 1
    assert result.explained_variance[0] > 100


def test_in_a_wide_space_ritz_pairs_are_computed_only_where_residuals_may_be_small_enough(monkeypatch):
    covariance, Q = with_spectrum(1 / np.arange(1, 701) ** 0.3)
    network, found = Stacked(graphs.metropolis(graphs.topologies.cycle(5))), {}
    for few in (block_krylov.FEW_COLUMNS, 10**6):
        monkeypatch.setattr(block_krylov, "FEW_COLUMNS", few)
        result = run(BlockKrylov(), covariance, network, 40)
        assert result.converged
        assert angles(result.components, Q[:, :40]).max() <= result.certificate.error_bound <= 1e-6
        found[few] = result.iterations, sum(np.isinf(record.residual) for record in result.history)
    (quiet, without), (usual, first) = found.values()
    assert quiet <= usual + 1
    assert without >= first + 2 == 3


@pytest.mark.parametrize("fall", [1e-1, 1e-4])
def test_residuals_that_fall_fast_are_seen_to_be_small_enough_in_a_wide_space_too(fall, monkeypatch):
    # The components are far above the rest, so that every product is a large step.
    covariance, _ = with_spectrum(np.append(np.linspace(9.0, 5.0, 40), fall * np.linspace(1.0, 0.1, 460)))
    network, products = Stacked(graphs.metropolis(graphs.topologies.cycle(5))), []
    for few in (50, 10**6):
        monkeypatch.setattr(block_krylov, "FEW_COLUMNS", few)
        products.append(run(BlockKrylov(), covariance, network, 40, tol=1e-9).iterations)
    assert products[0] <= products[1] + 1


@pytest.mark.parametrize("width", [40, 300])
def test_a_few_leading_pairs_are_those_of_all(width):
    rng, absent = np.random.default_rng(0), [3, width - 1]
    axes = np.linalg.qr(rng.standard_normal((width, width)))[0]
    # Equal and nearly equal eigenvalues lie among the leading ones.
    values = np.geomspace(1, 1e-8, width)
    values[5:8] = values[5] * np.array([1, 1, 1 - 1e-13])
    T, present = (axes * values) @ axes.T, np.ones(width)
    T[absent], T[:, absent], present[absent] = 0, 0, 0
    few = Projected(T[np.newaxis], present[np.newaxis]).leading(20)
    everything = Projected(T[np.newaxis], present[np.newaxis])
    np.testing.assert_allclose(few[0], everything.pairs[0][:, :20], atol=1e-14)
    np.testing.assert_allclose(few[1][0].T @ few[1][0], np.eye(20), atol=1e-13)
    np.testing.assert_allclose(T @ few[1][0], few[1][0] * few[0], atol=1e-14)
    assert (everything.pairs[0][0, -2:] < 0).all()
    assert everything.leading(20)[1].shape == (1, width, 20)


@pytest.mark.parametrize(("d", "products"), [(4, 1), (14, 2), (18, 3)])
def test_a_space_that_is_complete_takes_no_further_product(d, products):
    X = np.random.default_rng(0).standard_normal((200, d))
    pca = DecentralizedPCA(2, n_nodes=5, random_state=0).fit(X)
    true = np.linalg.eigh(np.cov(X.T))[1][:, :-3:-1]
    assert largest_angle(pca.components_.T[np.newaxis], true) < 1e-12
    assert pca.certificate_.error_bound < 1e-10
    assert pca.n_iter_ == products
