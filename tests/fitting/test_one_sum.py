"""One sum: moments and covariance in one sum over all nodes, what it costs, when it is taken, and what it reveals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from eigenmesh import Costs, DecentralizedPCA, graphs
from eigenmesh.averaging import Integers
from eigenmesh.data import CrossProducts, Shards, exponents_of
from eigenmesh.errors import DataError, DataWarning
from eigenmesh.fitting import Workload, choose_method
from eigenmesh.fitting.networks import add_masks
from eigenmesh.fitting.pooled import agreed_exponents, pooled
from eigenmesh.networks import Stacked
from eigenmesh.settings import Request

SIZES = (40, 7, 90, 25, 33, 60, 21, 48)
M = len(SIZES)


def parts(d=12, offset=0.0, seed=0):
    """Unlike nodes of unequal sizes, with the same large mean."""
    rng = np.random.default_rng(seed)
    turn, mean = np.linalg.qr(rng.standard_normal((d, d)))[0], offset * rng.uniform(-1, 1, d)
    rows = [rng.standard_normal((n, d)) * np.geomspace(1, 0.1, d) @ turn for n in SIZES]
    return [part + mean + 0.3 * rng.standard_normal(d) for part in rows]


def fitted(samples, **settings):
    settings = {"n_components": 2, "privacy": "masked", "topology": "cycle", "solver": "one-sum"} | settings
    return DecentralizedPCA(**settings).fit(samples)


def true_components(samples, k, weights=None):
    rows = np.vstack(samples).astype(np.longdouble)
    weights = np.ones(len(rows), np.longdouble) if weights is None else np.asarray(weights, np.longdouble)
    centred = rows - weights @ rows / weights.sum()
    C = ((centred * weights[:, np.newaxis]).T @ centred) / (weights.sum() - 1)
    return np.linalg.eigh(C.astype(np.float64))[1][:, ::-1][:, :k].T


def sines(found, true):
    true = true * np.sign(np.sum(found * true, axis=1, keepdims=True))
    return np.linalg.norm(found - true, axis=1)


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.DataWarning")
@pytest.mark.parametrize("topology", ["cycle", "star", "erdos_renyi"])
@pytest.mark.parametrize("offset", [0, 1e3, 1e6])
@pytest.mark.parametrize("d", [13, 30])
def test_one_average_gives_the_components_and_their_bound(d, offset, topology):
    samples = parts(d, offset)
    pca = fitted(samples, topology=topology)
    off, bounds = sines(pca.components_, true_components(samples, 2)), pca.certificate_.error_bounds
    assert (off <= bounds + 1e-15).all()
    assert bounds.max() < 1e-12
    assert pca.certificate_.chance == 0
    weights = graphs.metropolis(graphs.topology(topology, M, seed=0))
    average = Integers().prepare(weights)
    # Keys for the masks, one average, and the components of the root, which all nodes share.
    assert pca.traffic_.rounds == 2 * average.rounds + average.over.rounds - average.over.height
    words = 1 + CrossProducts.usual(d, M).n_words
    keys, shared = average.messages * 48 * M, (M - 1) * 8 * 2 * (d + 3)
    assert pca.traffic_.bytes == keys + average.messages * 8 * words + shared


@pytest.mark.parametrize(
    "settings",
    [{"n_components": None}, {"n_components": 0.8}, {"scale": True}, {"transport": "threads"}, {"missing": "mean"}],
    ids=str,
)
def test_it_takes_the_settings_of_other_solvers(settings):
    samples = parts(6, 3.0)
    if "missing" in settings:
        samples[0][2, 3] = np.nan
    pca = fitted(samples, **settings)
    other = fitted(samples, **settings | {"solver": "block-krylov", "tol": 1e-9})
    np.testing.assert_allclose(pca.components_, other.components_, atol=1e-8)
    np.testing.assert_allclose(pca.explained_variance_, other.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(pca.noise_variance_, other.noise_variance_, rtol=1e-9, atol=1e-12)
    assert pca.result_.converged
    assert len(pca.node_components_) == M
    assert pca.traffic_.rounds < other.traffic_.rounds
    assert pca.traffic_.bytes < other.traffic_.bytes


@pytest.mark.parametrize("solver", ["one-sum", "block-krylov"])
@pytest.mark.parametrize("how", [{"privacy": "open"}, {"privacy": "masked"}], ids=str)
def test_missing_entries_are_the_mean_to_the_last_digit(how, solver):
    """Where means are large, the rounding of a mean is no part of the entries that are filled in."""
    samples = parts(offset=3e5)
    for node, part in enumerate(samples):
        part[np.random.default_rng(node).random(part.shape) < 0.1] = np.nan
    pca = fitted(samples, solver=solver, tol=1e-12, missing="mean", **how)
    rows = np.vstack(samples).astype(np.longdouble)
    rows -= np.nanmean(rows, axis=0)
    rows = np.nan_to_num(rows - np.nanmean(rows, axis=0))
    true = np.linalg.eigh((rows.T @ rows).astype(np.float64))[1][:, :-3:-1].T
    assert (sines(pca.components_, true) <= pca.certificate_.error_bounds + 1e-15).all()
    assert pca.certificate_.error_bound < 1e-11


def test_rows_may_have_weights():
    samples = parts()
    weights = np.random.default_rng(1).uniform(0.2, 3, sum(SIZES))
    nodes = np.repeat(np.arange(M), SIZES)
    pca = DecentralizedPCA(2, privacy="masked", solver="one-sum").fit(
        np.vstack(samples), nodes=nodes, sample_weight=weights
    )
    assert pca.certificate_.error_bound < 1e-12
    assert (sines(pca.components_, true_components(samples, 2, weights)) <= pca.certificate_.error_bounds).all()


def test_it_is_chosen_where_it_reveals_no_more():
    def solver(d, **settings):
        return DecentralizedPCA(**{"n_components": 5, "privacy": "masked"} | settings).fit(parts(d)).result_.solver

    # d - sqrt(2 d) <= 3 (K + 5): 30 columns of products would give all of C at 38 dimensions, and not at 39.
    assert (solver(38), solver(39)) == ("one-sum", "block-krylov")
    assert solver(38, n_components=2) == "block-krylov"
    assert solver(12, privacy="open") == "block-krylov"
    assert solver(39, n_components=None) == "one-sum"


def test_on_one_cluster_it_is_chosen_where_it_is_smaller():
    """Where an engine sums over all nodes nobody is a stranger: a covariance against 12 products of 10 columns."""
    weights = graphs.metropolis(graphs.topologies.complete(4))

    def solver(d, **facts):
        workload = Workload(weights, d, 5, **{"has_all_reduce": True, "sums_up": True, "n_first": 5} | facts)
        return choose_method(workload, Costs())[0].name

    assert (solver(239), solver(240)) == ("one-sum", "block-krylov")
    assert solver(100, has_all_reduce=False) == "block-krylov"
    # With masks the rule is that of strangers, and streams and split columns do not sum up.
    assert solver(100, masked=True) == solver(20, sums_up=False) == "block-krylov"


@pytest.mark.filterwarnings("error")
def test_beyond_that_it_must_be_named_and_says_what_it_reveals():
    fitted(parts(12))
    with pytest.warns(DataWarning, match=r"all 45 dimensions; block-krylov .* only where it takes 6 products"):
        pca = fitted(parts(45))
    shown = pca.certificate_.disclosure
    assert shown.of_all_samples == "N, mean, variances, and the pooled covariance on all 45 dimensions, by one sum"
    assert "nobody has learned a number of any single node" in shown.words[0]


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.DataWarning")
@pytest.mark.parametrize("missing", ["error", "mean"])
def test_two_sums_of_one_word_where_bytes_cost_more_than_rounds(missing):
    slow = Costs(bandwidth_bytes_s=1e5)
    samples, d = parts(60, 1e4), 60
    one, two = fitted(samples, missing=missing), fitted(samples, costs=slow, missing=missing)
    np.testing.assert_allclose(one.components_, two.components_, atol=1e-10)
    average = Integers().prepare(graphs.metropolis(graphs.topology("cycle", M, seed=0)))
    more = 2 * (1 + d) + d * (d + 1) - (2 * (1 + 2 * d) + d * (d + 1) // 2)
    if missing == "error":
        assert two.traffic_.rounds - one.traffic_.rounds == average.rounds
        assert one.traffic_.bytes - two.traffic_.bytes == 8 * average.messages * more
    else:
        assert one.traffic_ == two.traffic_
    assert (sines(two.components_, true_components(samples, 2)) <= two.certificate_.error_bounds).all()


# Ranges of columns.


def masked_network():
    network = Stacked(graphs.metropolis(graphs.topologies.cycle(M)), Integers())
    add_masks(network)
    return network


def test_agreed_ranges_are_tight_and_cover_all_values():
    samples = parts(5)
    samples = [part * [1.0, 1e-10, 1e7, 1e-300, 0.0] for part in samples]
    samples[3][2, 0] = -(2.0**77)
    exponents = agreed_exponents(masked_network(), Shards.from_list(samples))
    needed = exponents_of(np.abs(np.vstack(samples)).max(axis=0))
    assert (np.array(exponents) - needed >= 0)[:4].all()
    assert (np.array(exponents) - needed < 4)[:4].all()
    assert exponents[4] < -1050


def test_a_sum_in_which_a_node_is_beyond_its_range_says_nothing(monkeypatch):
    """What the others have sent is hidden by random words, or the next sum would give the node's own by difference."""
    samples, totals = parts(8), []
    samples[3][2, 0] = 2.0**30
    network = masked_network()
    total = network.total

    def heard(words):
        totals.append(total(words))
        return totals[-1]

    monkeypatch.setattr(network, "total", heard)
    found = pooled(network, Shards.from_list(samples), Request(), squares=False)
    np.testing.assert_allclose(found.covariance, np.cov(np.vstack(samples).T), rtol=1e-9)
    first, *_, last = totals
    assert len(totals) == 5
    assert stats.kstest(first[0] / 2.0**64, "uniform").pvalue > 1e-9
    with pytest.raises(DataError, match="not the sum of all sites"):
        CrossProducts.usual(8, M, weighted=True).decode(first[0, 1:])
    assert first[0, 0] != 0 == last[0, 0]


def test_a_node_that_sends_other_words_is_found():
    network, samples = masked_network(), parts(8)
    network.masking.masks[2].hear(b"another transcript")
    with pytest.raises(DataError, match="beyond the ranges"):
        pooled(network, Shards.from_list(samples), Request(), squares=False)
