"""One sum over the sites: the covariance in integers, its error and its bound, and what receivers refuse."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from eigenmesh.data import CrossProducts, Pooled, Shards
from eigenmesh.errors import DataError

SIZES = [0, 30, 37, 160, 300]


def samples(d=6, offset=0.0, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((SIZES[-1], d)) * np.exp(rng.uniform(-1, 1, d)) @ rng.standard_normal((d, d))
    return rows + offset * rng.standard_normal(d)


def shards_of(rows, weights=None):
    parts = [slice(*pair) for pair in pairwise(SIZES)]
    shards = Shards.from_list([rows[part] for part in parts])
    return shards if weights is None else shards.weighted([weights[part] for part in parts])


def total_of(form, shards):
    return np.sum([form.encode(shards, at) for at in range(form.n_sites)], axis=0, dtype=np.uint64)


def pooled(rows, weights=None, exponent=20, **more):
    form = CrossProducts((exponent,) * rows.shape[1], len(SIZES) - 1, weighted=weights is not None, **more)
    return form.decode(total_of(form, shards_of(rows, weights)))


def true_covariance(rows, weights=None):
    """In 80 bits."""
    weights = np.ones(len(rows)) if weights is None else weights
    rows, weights = rows.astype(np.longdouble), weights.astype(np.longdouble)[:, np.newaxis]
    total = weights.sum()
    centred = rows - (weights * rows).sum(axis=0) / total
    centred -= (weights * centred).sum(axis=0) / total
    return (weights * centred).T @ centred / (total - 1)


def error_of(found, true):
    return float(np.linalg.norm((found - true).astype(np.float64), 2))


@pytest.mark.parametrize("offset", [0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("d", [1, 6, 60])
def test_large_means_cost_nothing(d, weighs, offset):
    rows = samples(d, offset)
    weights = np.random.default_rng(1).uniform(0.1, 3, len(rows)) if weighs else None
    one, true = pooled(rows, weights, exponent=32 if offset > 1e6 else 24), true_covariance(rows, weights)
    error, size = error_of(one.covariance, true), np.linalg.norm(one.covariance, 2)
    assert error <= one.error() <= (1e-9 if offset > 1e6 else 3e-14) * size
    assert error <= (1e-11 if offset > 1e6 else 2e-16) * size
    mean = np.average(rows.astype(np.longdouble), axis=0, weights=weights)
    assert one.n_samples == pytest.approx(len(rows) if weights is None else weights.sum(), rel=1e-15)
    np.testing.assert_allclose((one.mean + one.rest.astype(np.longdouble) - mean).astype(float), 0, atol=1e-17 * 2**32)


@pytest.mark.parametrize("exponent", [10, 30, 40, 50])
def test_the_bound_says_what_wide_ranges_cost(exponent):
    rows = samples(12)
    one, true = pooled(rows, exponent=exponent), true_covariance(rows)
    assert error_of(one.covariance, true) <= one.error()
    deviation = np.sqrt(np.diagonal(true).astype(float))
    scaled = pooled(rows, exponent=exponent).covariance / np.outer(deviation, deviation)
    exact = (true / np.sqrt(np.outer(np.diagonal(true), np.diagonal(true)))).astype(float)
    assert error_of(scaled, exact) <= one.error(deviation)


@pytest.mark.parametrize("size", [1e-300, 1e-10, 1e7, 1e100])
def test_data_of_any_size(size):
    rows = samples()
    one = pooled(size * rows, exponent=int(np.frexp(size)[1]) + 6)
    np.testing.assert_allclose(one.covariance / size / size if size > 1e-300 else 0, np.cov(rows.T) * (size > 1e-300))


def test_squares_alone_give_the_same_moments():
    rows = samples(offset=1e5)
    shards, whole, squares = shards_of(rows), pooled(rows), pooled(rows, squares=True)
    np.testing.assert_array_equal(squares.covariance, np.diagonal(whole.covariance))
    moments = squares.moments(shards)
    np.testing.assert_allclose(moments.variance, rows.var(axis=0, ddof=1), rtol=1e-9)
    np.testing.assert_array_equal(moments.variance, whole.moments(shards).variance)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-15)


def test_squares_of_many_features_take_memory_like_the_features_not_their_pairs():
    d = 2000
    rows = np.random.default_rng(0).standard_normal((SIZES[-1], d))
    form = CrossProducts.usual(d, len(SIZES) - 1, squares=True)
    total = total_of(form, shards_of(rows))
    tracemalloc.start()
    try:
        found = form.decode(total)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(found.covariance, rows.var(axis=0, ddof=1), rtol=1e-9)
    assert most < d * d * 8 / 4


def test_sparse_rows_and_many_chunks():
    rows = np.round(samples(3), 1) * (np.random.default_rng(0).random((SIZES[-1], 3)) < 0.4)
    one = pooled(rows)
    parts = [sparse.csr_array(rows[slice(*pair)]) for pair in pairwise(SIZES)]
    form = CrossProducts.usual(3, len(parts))
    thin = form.decode(total_of(form, Shards.from_list(parts)))
    np.testing.assert_array_equal(thin.covariance, one.covariance)
    many = np.vstack([rows + 7] * 40)
    form = CrossProducts.usual(3, 2)
    found = form.decode(total_of(form, Shards.from_list([many[:9000], many[9000:]])))
    assert error_of(found.covariance, true_covariance(many)) <= found.error()


def test_whole_numbers_give_the_correctly_rounded_covariance():
    """Any split, any order: integers as samples have an exact sum."""
    rows = np.random.default_rng(0).integers(-(2**19), 2**19, (SIZES[-1], 4)).astype(float)
    N, T = len(rows), rows.astype(object)
    exact = (N * (T.T @ T) - np.outer(T.sum(axis=0), T.sum(axis=0))) / (N * (N - 1))
    np.testing.assert_array_equal(pooled(rows).covariance, exact.astype(float))


def test_a_value_beyond_the_range_is_refused_at_its_site():
    rows = samples()
    rows[35, 2], rows[36, 4] = -(2.0**25), 3e9
    shards = shards_of(rows)
    form = CrossProducts.usual(6, 4)
    form.encode(shards, 0)
    with pytest.raises(
        DataError, match=r"node 1 has values .* 2\^20 .* nothing is sent.* 25 in column 2, 32 in column 4"
    ):
        form.encode(shards, 1)
    with pytest.raises(DataError, match="column 4 is NaN"):
        form.encode(shards_of(np.where(rows == 3e9, np.nan, rows)), 1)


def test_what_is_not_the_sum_of_all_sites_is_refused():
    """Each site adds a mask, and the masks cancel in the sum of all."""
    rng, d = np.random.default_rng(0), 4
    form, shards = CrossProducts.usual(d, 4), shards_of(samples(d))
    masks = rng.integers(0, 2**64, (4, form.n_words), dtype=np.uint64)
    masks[3] = -masks[:3].sum(axis=0, dtype=np.uint64)
    sent = np.stack([form.encode(shards, at) for at in range(4)]) + masks
    assert isinstance(form.decode(sent.sum(axis=0, dtype=np.uint64)), Pooled)
    for wrong in (sent[:3], sent[[0, 1, 2, 3, 3]], sent[[0, 0, 1, 2]]):
        with pytest.raises(DataError, match="not the sum of all sites"):
            form.decode(wrong.sum(axis=0, dtype=np.uint64))


def test_a_random_entry_is_refused():
    rng, d = np.random.default_rng(0), 5
    form = CrossProducts.usual(d, 4)
    total = total_of(form, shards_of(samples(d)))
    for number in range(form.n_words // 2):
        damaged = total.copy()
        damaged[[number, number + form.n_words // 2]] = rng.integers(0, 2**64, 2, dtype=np.uint64)
        with pytest.raises(DataError, match="not the sum of all sites"):
            form.decode(damaged)


def test_rows_with_weights_need_no_whole_count():
    weights = np.full(SIZES[-1], 0.7)
    rows = samples()
    form = CrossProducts.usual(6, 4)
    with pytest.raises(DataError, match=r"N = 2[\d.]+ is not a number of samples"):
        form.decode(total_of(form, shards_of(rows, np.where(np.arange(len(rows)) == 3, 0.25, weights))))
    assert pooled(rows, weights).n_samples == pytest.approx(210)


@pytest.mark.parametrize("n_sites", [2, 3, 100, 5000])
def test_words_have_room_for_all_sites(n_sites):
    """As many samples at the end of the range as are allowed."""
    form = CrossProducts((0,), n_sites, weighted=True)
    own = Shards.from_list([np.array([[1.0], [-1.0]])])
    weighted = own.weighted([np.full(2, 2.0**30 / n_sites * 0.999)])
    words = np.zeros(form.n_words, np.uint64)
    for _ in range(n_sites):
        words += form.encode(weighted, 0)
    assert form.decode(words).covariance[0, 0] == pytest.approx(1)
