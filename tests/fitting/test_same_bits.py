"""With averages in integers a fit is the same to the last bit, whatever the network, the engine and the order."""

import io
import threading

import numpy as np
import pytest
from scipy import sparse

from eigenmesh import DecentralizedPCA
from eigenmesh.averaging import AllReduce, Integers
from eigenmesh.certificate import measured
from eigenmesh.certificate.certificate import own_signs
from eigenmesh.data import Shards
from eigenmesh.errors import DataError, InputError, TransportError
from eigenmesh.fitting import NodeData, Request, Spread, fit, model_of, prepare
from eigenmesh.solvers import block_krylov as _block_krylov
from eigenmesh.transports import run_threads

SIZES = (40, 7, 90, 25, 33, 60)


def parts(mean=0.0, d=30, seed=0):
    """Unlike nodes of unequal sizes."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, d)) * rng.uniform(0.2, 3, d) + rng.standard_normal(d) + mean for n in SIZES]


def fitted(samples, topology="cycle", **settings):
    settings = {"n_components": 3, "averaging": "integers", "random_state": 1, "topology": topology} | settings
    return DecentralizedPCA(**settings).fit(samples)


def bits(pca):
    """All numbers of a fit that are the pooled data's and not the network's."""
    found = (pca.components_, pca.explained_variance_, pca.explained_variance_ratio_, pca.mean_, pca.singular_values_)
    certificate = pca.certificate_
    found = (*found, certificate.error_bounds, certificate.residuals, certificate.gaps, certificate.chance)
    return [np.asarray(one).tobytes() for one in (*found, pca.noise_variance_, pca.node_components_[0])]


KINDS = {
    "dense": {},
    "large means": {"mean": 1e4},
    "formed": {"covariance": "formed"},
    "chunked": {"covariance": "chunked"},
    "scaled": {"scale": True},
    "float32": {"dtype": np.float32},
    "a share of the variance": {"n_components": 0.6},
    "one sum": {"solver": "one-sum"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_on_any_network_in_any_order_with_any_engine(kind):
    settings = dict(KINDS[kind])
    samples = [part.astype(settings.get("dtype", float)) for part in parts(settings.pop("mean", 0.0))]
    settings.pop("dtype", None)
    first = fitted(samples, **settings)
    assert first.result_.converged
    whole = np.linalg.svd(np.vstack(samples) - first.mean_, full_matrices=False)[2] if "scale" not in settings else None
    if whole is not None:
        cosines = np.sum(first.components_ * whole[: len(first.components_)], axis=1)
        assert np.sqrt(np.maximum(0, 1 - cosines**2)).max() <= max(first.certificate_.error_bound, 1e-6)
    others = [
        fitted(samples, "star", **settings),
        fitted(samples, averaging=Integers(AllReduce()), **settings),
        fitted([samples[i] for i in (3, 5, 0, 1, 4, 2)], "erdos_renyi", **settings),
        fitted(samples, transport="threads", **settings),
    ]
    for other in others:
        assert bits(other) == bits(first)


def test_one_array_that_is_split_gives_the_bits_of_its_parts():
    samples = parts()
    nodes = np.repeat(np.arange(len(SIZES)), SIZES)
    order = np.random.default_rng(3).permutation(len(nodes))
    mixed, nodes = np.vstack(samples)[order], nodes[order]
    held = [mixed[nodes == node] for node in range(len(SIZES))]
    pca = DecentralizedPCA(3, averaging="integers", random_state=1, topology="star").fit(mixed, nodes=nodes)
    assert bits(pca) == bits(fitted(held))


def test_sparse_samples_give_the_same_bits_too():
    samples = [sparse.csr_array(np.where(part > 1, part, 0.0)) for part in parts()]
    assert bits(fitted(samples)) == bits(fitted(samples[::-1], "path", transport="threads"))


def test_saved_files_are_the_same_at_every_node():
    samples, weights = parts(), Spread("erdos_renyi", weights="metropolis").network(len(SIZES))
    request = Request.parse(n_components=3, averaging="integers", random_state=1)

    def node(transport):
        own = Shards.from_list(samples, ids=range(len(SIZES))).take([transport.rank])
        file = io.BytesIO()
        model = model_of(fit(prepare(request, NodeData(own, weights, transport))))
        np.savez(file, **{name: np.asarray(value) for name, value in vars(model).items() if value is not None})
        return file.getvalue()

    assert len(set(run_threads(len(SIZES), node))) == 1


def test_components_are_sent_only_where_a_node_has_other_bits_and_are_then_those_of_one(monkeypatch):
    alike = fitted(parts(), transport="threads")
    other_processor = []

    def last_bit_off(X):
        """As on a processor that rounds differently: the thread that comes first."""
        if not other_processor:
            other_processor.append(threading.get_ident())
        return own_signs(X) * (1 + 2.0**-52 * (threading.get_ident() == other_processor[0]))

    monkeypatch.setattr(_block_krylov, "own_signs", last_bit_off)
    unlike = fitted(parts(), transport="threads")
    assert (alike.result_.alike, unlike.result_.alike) == (True, False)
    assert len({components.tobytes() for components in unlike.node_components_}) == 1
    assert "result" not in alike.result_.traffic_by_phase
    sent = unlike.result_.traffic_by_phase["result"]
    # Five nodes get three components of 30 numbers, with variance, bound and what is left of the variance.
    assert (sent.rounds, sent.messages, sent.bytes) == (3, 5, 5 * 8 * 3 * 33)


def test_a_node_whose_result_is_another_is_noticed(monkeypatch):
    monkeypatch.setattr(measured, "digest_of", lambda mean: np.full(1, np.nan))
    samples, weights = parts(), Spread("path", weights="metropolis").network(len(SIZES))
    prepared = prepare(
        Request.parse(n_components=2, averaging="integers", random_state=1),
        NodeData(Shards.from_list(samples), weights),
    )
    network = prepared.network
    network.broadcast = lambda values: type(network).broadcast(network, values) + 0.1
    with pytest.raises(TransportError, match="has computed a wrong result"):
        fit(prepared)


@pytest.mark.parametrize("solver", ["fast-pca", "deepca", "tracked-subspace", "s-dot", "dsa", "krasulina"])
def test_solvers_that_mix_are_refused_by_name(solver):
    with pytest.raises(InputError, match=rf"solver '{solver}.*' does not average in integers.*block-krylov"):
        fitted(parts(), solver=solver)


@pytest.mark.parametrize("way", [{"averaging": "integers"}, {"privacy": "masked"}], ids=str)
def test_samples_that_change_during_the_fit_are_found_before_anything_is_sent(way):
    samples = parts()
    weights = Spread("path", weights="metropolis").network(len(SIZES))
    request = Request.parse(n_components=2, random_state=1, covariance="chunked", **way)
    prepared = prepare(request, NodeData(Shards.from_list(samples), weights))
    samples[3] *= 1e6
    with pytest.raises(DataError, match=r"node 3 would send .* beyond the common scale .* nothing is sent"):
        fit(prepared)
    assert prepared.network.traffic.rounds == prepared.set_up.rounds


@pytest.mark.parametrize("solver", ["block-krylov", "one-sum"])
@pytest.mark.parametrize("settings", [{}, {"scale": True}, {"missing": "mean"}], ids=str)
@pytest.mark.parametrize("size", [1e-40, 1e-10, 1e7, 1e40])
def test_masked_data_may_have_any_scale(size, settings, solver):
    """Beyond the usual range of columns, or far below it, the nodes agree on another one."""
    samples = [size * part for part in parts()]
    if settings.get("missing"):
        samples[2][3, 4] = np.nan
    one = fitted(samples, privacy="masked", solver=solver, **settings)
    other = fitted(samples, solver=solver, averaging="tree", **settings)
    assert one.result_.converged
    np.testing.assert_allclose(one.components_, other.components_, atol=1e-7)
    np.testing.assert_allclose(one.explained_variance_, other.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(one.mean_, other.mean_, rtol=1e-12)


def test_a_column_without_deviations_that_integers_resolve_is_named():
    samples = [part * np.where(np.arange(30) == 0, 1e-13, 1.0) + 1e3 for part in parts()]
    with pytest.raises(DataError, match=r"divide by zero in constant column 0|do not resolve .* column 0"):
        fitted(samples, scale=True, averaging="integers")


@pytest.mark.parametrize("size", [1e-9, 1e-12])
def test_split_columns_below_the_unit_of_the_words_are_not_called_equal(size):
    """Squares of 1e-12 are 0 in units of 2^-64, although the samples differ."""
    with pytest.raises(DataError, match=r"do not resolve .* multiply .* by a constant"):
        fitted([size * part[:7] for part in parts()], partition="features", privacy="masked")


def test_integers_are_planned_for_where_they_are_asked_for():
    asked = DecentralizedPCA(3, averaging="integers", random_state=1, topology="cycle")
    plan, done = asked.plan(parts()), asked.fit(parts())
    assert plan.best.averaging == "integers"
    assert (plan.best.rounds, plan.best.bytes) == (done.traffic_.rounds, done.traffic_.bytes)
    left_open = asked.set_params(averaging="auto").plan(parts()).forecasts
    assert all(line.averaging != "integers" for line in left_open)
