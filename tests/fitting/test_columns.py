"""Columns split over nodes: the components of all columns together, and nothing but scores on the way."""

import numpy as np
import pytest
from scipy import sparse

from eigenmesh import graphs
from eigenmesh.data import FeatureShards
from eigenmesh.data.covariance import lifted, lowered
from eigenmesh.errors import DataError, DataWarning, InputError
from eigenmesh.fitting import ColumnData, Request, fit, fit_at_every_node, prepare
from eigenmesh.metrics import largest_angle
from eigenmesh.transports import run_threads

WIDTHS = [40, 1, 25, 9]
N, D, K = 60, sum(WIDTHS), 4
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.DataWarning")


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    spread = np.geomspace(8, 0.5, 12)
    X = rng.standard_normal((N, 12)) * spread @ rng.standard_normal((12, D)) + 0.1 * rng.standard_normal((N, D))
    X[:, 3] = 7.0  # a constant column, at the first node
    return X + 5


def parts_of(X):
    return np.split(X, np.cumsum(WIDTHS)[:-1], axis=1)


def truth(X, scale=False):
    centred = X - np.nanmean(X, axis=0)
    centred = np.where(np.isnan(centred), 0.0, centred)
    if scale:
        centred /= centred.std(axis=0)
    U, s, Vt = np.linalg.svd(centred, full_matrices=False)
    return U[:, :K] * s[:K], s**2 / (len(X) - 1), Vt[:K].T


def data_of(parts, topology="cycle", transport=None, **more):
    shards = FeatureShards.from_list(parts, **more)
    return ColumnData(shards, graphs.metropolis(graphs.topology(topology, shards.n_nodes)), transport)


def request(**settings):
    return Request.parse(n_components=settings.pop("n_components", K), random_state=0, **settings)


def require_true(fitted, X, scale=False, angle=1e-8):
    scores, values, V = truth(X, scale)
    assert fitted.result.converged
    assert largest_angle(fitted.components.T[np.newaxis], V) < angle
    np.testing.assert_allclose(fitted.result.explained_variance, values[:K], rtol=1e-10)
    signs = np.sign(np.sum(fitted.components.T * V, axis=0))
    np.testing.assert_allclose(fitted.scores, scores * signs, atol=1e-6 * np.abs(scores).max())
    assert np.abs(fitted.scores.mean(axis=0)).max() < 1e-12 * np.abs(scores).max()
    np.testing.assert_allclose(fitted.total_variance, values.sum(), rtol=1e-12)
    np.testing.assert_allclose(fitted.noise_variance, values[K:].sum() / (min(X.shape) - K), rtol=1e-6)


def test_the_reflection_takes_out_ones_and_is_undone():
    x = np.random.default_rng(1).standard_normal((2, 7, 3))
    centred = x - x.mean(axis=-2, keepdims=True)
    np.testing.assert_allclose(lowered(x), lowered(centred), atol=1e-14)
    np.testing.assert_allclose(lifted(lowered(x)), centred, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(lowered(x), axis=-2), np.linalg.norm(centred, axis=-2))


@pytest.mark.parametrize("covariance", ["formed", "matrix-free", "chunked"])
def test_components_are_those_of_all_columns(X, covariance):
    fitted = fit(prepare(request(covariance=covariance), data_of(parts_of(X))))
    require_true(fitted, X)
    assert fitted.components[0, 3] == 0


def test_scaled_columns(X):
    X = np.delete(X, 3, axis=1)
    fitted = fit(prepare(request(scale=True), data_of([X[:, :30], X[:, 30:]], "path")))
    require_true(fitted, X, scale=True)


def test_sparse_and_missing_entries(X):
    holes = X.copy()
    holes[np.random.default_rng(2).random(X.shape) < 0.05] = np.nan
    parts = parts_of(holes)
    with pytest.raises(DataError, match=r"node 0, row \d+, column \d+ is NaN"):
        fit(prepare(request(), data_of(parts)))
    require_true(fit(prepare(request(missing="mean"), data_of(parts))), holes)
    thinned = np.where(X > 8, X, 0.0)
    matrices = [sparse.csr_array(part) for part in parts_of(thinned)]
    require_true(fit(prepare(request(), data_of(matrices))), thinned)


@pytest.mark.parametrize("solver", ["s-dot", "tracked-subspace"])
def test_other_exact_solvers_work_as_they_are(X, solver):
    found = fit(prepare(request(solver=solver, tol=1e-7, max_rounds=6000), data_of(parts_of(X))))
    require_true(found, X, angle=1e-7)


def test_one_component_a_share_of_the_variance_and_all(X):
    one = fit(prepare(request(n_components=1), data_of(parts_of(X))))
    assert largest_angle(one.components.T[np.newaxis], truth(X)[2][:, :1]) < 1e-8
    values = truth(X)[1]
    share = fit(prepare(request(n_components=0.9), data_of(parts_of(X))))
    assert len(share.components) == np.searchsorted(np.cumsum(values) / values.sum(), 0.9) + 1
    few = X[:6]
    whole = fit(prepare(request(n_components=None), data_of(parts_of(few))))
    assert whole.result.converged
    assert whole.components.shape == (5, D)
    np.testing.assert_allclose(whole.scores @ whole.components, few - few.mean(axis=0), atol=1e-9)
    with pytest.raises(InputError, match="at most 5"):
        fit(prepare(request(n_components=6), data_of(parts_of(few))))


def test_a_network_of_one_node(X):
    require_true(fit(prepare(request(), data_of([X], "complete"))), X)


def test_the_certificate_bounds_the_loadings_where_they_are_worse_than_the_scores(X):
    # A loose average of the directions leaves much of the first component in the last one.
    fitted = fit(prepare(request(tol=1e-2, solver="s-dot"), data_of(parts_of(X))))
    scores, _, V = truth(X)
    bounds = fitted.result.certificate.error_bounds
    for k in range(K):
        assert largest_angle(fitted.components.T[np.newaxis, :, k : k + 1], V[:, k : k + 1]) <= bounds[k]
        u = fitted.result.components[k][np.newaxis, :, np.newaxis]
        assert largest_angle(u, scores[:, k : k + 1] / np.linalg.norm(scores[:, k])) <= bounds[k]


def test_nodes_of_their_own_keep_their_loadings_and_send_no_vector_of_their_length(X):
    parts, sent = parts_of(X), []

    def node(transport):
        send = transport.exchange

        def seen(arrays, *links):
            sent.extend(array.shape for array in arrays)
            return send(arrays, *links)

        transport.exchange = seen
        rank = transport.rank
        own = data_of([parts[rank]], ids=[rank], n_nodes=len(parts), transport=transport)
        return fit(prepare(request(), own), share=True)

    fits = run_threads(len(parts), node)
    assert [one.components.shape for one in fits] == [(K, width) for width in WIDTHS]
    assert all((one.scores == fits[0].scores).all() for one in fits)
    V = np.concatenate([one.components for one in fits], axis=1).T
    assert largest_angle(V[np.newaxis], truth(X)[2]) < 1e-8
    assert sent
    assert not [shape for shape in sent if set(shape) & {40, 25}], "these are numbers of columns"
    gathered = fit_at_every_node(run_threads, request(), data_of(parts))
    require_true(gathered, X)
    assert gathered.moments.mean.shape == (D,)


@pytest.mark.parametrize("topology", ["path", "complete"])
def test_integers_give_the_same_bits_on_every_network(X, topology):
    parts = parts_of(X)
    fitted = fit(prepare(request(averaging="integers"), data_of(parts, topology)))
    require_true(fitted, X)
    other = fit(prepare(request(averaging="integers"), data_of(parts, "star")))
    assert (fitted.scores == other.scores).all()


def ids_of(*changes):
    """The same ids at all nodes, but for changes (node, row)."""
    ids = [np.array([f"P{row:03d}" for row in range(N)]) for _ in WIDTHS]
    for node, row in changes:
        ids[node][row] = f"X{row:03d}"
    return ids


def test_ids_that_agree_are_taken_and_the_first_that_does_not_is_named(X):
    parts = parts_of(X)
    require_true(fit(prepare(request(), data_of(parts, sample_ids=ids_of()))), X)
    with pytest.raises(DataError, match=r"at node 2 from row 17 on \(counted from 0\)"):
        prepare(request(), data_of(parts, sample_ids=ids_of((2, 17), (2, 40)), topology="path"))
    with pytest.raises(DataError, match="some nodes have ids of their samples and some have none"):
        prepare(request(), data_of(parts, sample_ids=[None, *ids_of()[1:]]))
    with pytest.raises(DataError, match="has 59 ids for 60 samples"):
        data_of(parts, sample_ids=[*ids_of()[:3], np.arange(59)])


@pytest.mark.parametrize("twin", ["P3", " P3 "], ids=["equal", "equal but for blanks"])
def test_ids_that_are_there_twice_are_refused(twin):
    ids = np.array([f"P{row}" for row in range(60)], dtype=object)
    ids[17] = twin
    with pytest.raises(DataError, match=r"the id of row 17 at node 0 is 'P3', as the id of row 3 at node 0 is; give"):
        FeatureShards.from_list(np.split(np.arange(240.0).reshape(60, 4), 2, axis=1), sample_ids=[ids, ids])


def test_only_the_node_that_differs_learns_where(X):
    parts, ids, heard = parts_of(X), ids_of((3, 5)), {}

    def node(transport):
        rank = transport.rank
        own = {"ids": [rank], "n_nodes": len(parts), "transport": transport, "sample_ids": [ids[rank]]}
        try:
            prepare(request(), data_of([parts[rank]], "path", **own))
        except DataError as error:
            heard[rank] = str(error)

    run_threads(len(parts), node)
    assert "node 3 from row 5 on" in heard[3]
    assert all("at another node" in heard[rank] for rank in range(3))


def test_other_numbers_of_rows_are_refused(X):
    parts = parts_of(X)
    parts[1] = parts[1][:-1]
    with pytest.raises(DataError, match="node 1 has 59, the others 60"):
        data_of(parts)

    def node(transport):
        own = data_of([parts[transport.rank]], ids=[transport.rank], n_nodes=len(parts), transport=transport)
        prepare(request(), own)

    with pytest.raises(InputError, match="n_samples: 59 at node 1, 60 at nodes 0, 2"):
        run_threads(len(parts), node)


def test_a_node_may_have_nothing_but_constants_but_not_all_may(X):
    parts = parts_of(X)
    parts[1] = np.full((N, 1), 3.0)
    require_true(fit(prepare(request(), data_of(parts))), np.hstack(parts))
    with pytest.raises(DataError, match="total variance is zero"):
        prepare(request(), data_of([np.ones((N, 2)), np.ones((N, 3))], "path"))
    with pytest.raises(DataError, match="divide by zero in constant"):
        prepare(request(scale=True), data_of(parts))


@pytest.mark.filterwarnings("default")
def test_few_columns_are_warned_of(X):
    with pytest.warns(DataWarning, match=r"node 0 with 40 columns and 3 more nodes: about 108 products"):
        prepare(request(), data_of(parts_of(X)))
    with pytest.raises(InputError, match='covariance = "sparse" is for split samples'):
        prepare(request(covariance="sparse"), data_of(parts_of(X)))


def test_masked_columns_have_the_bits_of_open_integers_and_no_warning(X, recwarn):
    pytest.importorskip("cryptography")
    parts, settings = parts_of(X), {"averaging": "integers"}
    open_ones = fit(prepare(request(**settings), data_of(parts)))
    recwarn.clear()
    masked = fit(prepare(request(**settings, privacy="masked"), data_of(parts)))
    assert (masked.scores == open_ones.scores).all()
    assert (masked.components == open_ones.components).all()
    assert not [one for one in recwarn if issubclass(one.category, DataWarning)]
