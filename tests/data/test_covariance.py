from __future__ import annotations

import tracemalloc
from functools import partial

import array_api_compat
import array_api_strict
import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.preprocessing import StandardScaler

from eigenmesh.arrays import namespace, to_numpy
from eigenmesh.data import CovarianceKind, RandomSplit, Shards, build_covariance, choose_by_size, pooled_moments
from eigenmesh.data.choice import Sizes
from eigenmesh.data.datasets import gaussian, power_law_spectrum
from eigenmesh.errors import InputError

SIZES = (30, 2, 75, 11)
D = 7
KINDS = list(CovarianceKind)


def make(mean=0.0, dtype=np.float64, missing=False):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((sum(SIZES), D)) * np.linspace(1, 3, D) + mean + np.repeat(np.arange(4), SIZES)[:, None]
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X.astype(dtype)


def cut(X, sparse=False):
    parts = [X[end - size : end] for size, end in zip(SIZES, np.cumsum(SIZES), strict=True)]
    return [scipy.sparse.csr_array(part) for part in parts] if sparse else parts


def reference(X, scale=False):
    """C_i of eq (1), (4, d, d), in extended precision."""
    wide = X.astype(np.longdouble)
    observed = np.isfinite(wide)
    mu = np.where(observed, wide, 0).sum(axis=0) / observed.sum(axis=0)
    centred = np.where(observed, wide - mu, 0)
    if scale:
        centred /= np.sqrt((centred**2).mean(axis=0))
    return np.stack([4 / np.longdouble(len(X) - 1) * part.T @ part for part in cut(centred)])


def relative_error(found, expected):
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("mean", [0.0, 2.0, 3e3])
def test_every_kind_is_the_dense_covariance(exact_network, kind, mean, dtype, scale, missing):
    X = make(mean, dtype, missing)
    shards = Shards.from_list(cut(X, kind is CovarianceKind.SPARSE))
    moments = pooled_moments(shards, exact_network(4), scale=scale, missing="mean" if missing else "error")
    covariance = build_covariance(shards, moments, kind=kind)
    blocks = np.random.default_rng(1).standard_normal((4, D, 3))
    before = blocks.copy()
    found = covariance.apply(blocks)
    assert (covariance.kind, covariance.n_features) == (kind, D)
    assert found.dtype == np.float64
    assert np.array_equal(blocks, before)
    assert relative_error(found, reference(X, scale) @ blocks) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [False, True])
def test_the_mean_over_nodes_is_the_pooled_covariance(exact_network, kind, scale):
    X = make(mean=20.0)
    shards = Shards.from_list(cut(X, kind is CovarianceKind.SPARSE))
    # The mean's error enters squared, so it does not show; the scale's would.
    moments = pooled_moments(shards, exact_network(4, 0.0 if scale else 1e-12), scale=scale)
    covariance = build_covariance(shards, moments, kind=kind)
    average = covariance.apply(np.broadcast_to(np.eye(D), (4, D, D))).mean(axis=0)
    expected = np.cov((StandardScaler().fit_transform(X) if scale else X).T)
    assert relative_error(average, expected) < 1e-12
    np.testing.assert_allclose(np.trace(average), moments.total_variance, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.eigvalsh(average), np.linalg.eigvalsh(expected), rtol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [CovarianceKind.FORMED, CovarianceKind.MATRIX_FREE])
@pytest.mark.parametrize("library", [torch, array_api_strict])
def test_other_libraries(exact_network, library, kind, dtype):
    xp = namespace(library.asarray([0.0]))
    X = make(mean=5.0, dtype=dtype)
    shards = Shards.from_list(cut(X))
    device = "cpu" if library is torch else None
    covariance = build_covariance(shards, pooled_moments(shards, exact_network(4)), kind=kind, xp=xp, device=device)
    blocks = np.random.default_rng(1).standard_normal((4, D, 3))
    found = covariance.apply(covariance.place(blocks))
    assert array_api_compat.array_namespace(found) is xp
    assert found.dtype == xp.float64
    assert relative_error(to_numpy(found), reference(X) @ blocks) < 1e-12


def test_a_sparse_covariance_takes_numpy_arrays_alone(exact_network):
    shards = Shards.from_list(cut(make(), True))
    moments = pooled_moments(shards, exact_network(4))
    message = r"kind sparse works on NumPy arrays; got torch\.Tensor\. Use another kind"
    with pytest.raises(InputError, match=message):
        build_covariance(shards, moments, kind=CovarianceKind.SPARSE, xp=namespace(torch.empty(0)))
    with pytest.raises(InputError, match=message):
        build_covariance(shards, moments, kind=CovarianceKind.SPARSE).apply(torch.zeros(4, D, 1))


def test_sparse_wants_sparse_data_and_the_others_take_both(exact_network):
    dense, sparse = (Shards.from_list(cut(make(mean=1.0), sparse)) for sparse in (False, True))
    moments = pooled_moments(dense, exact_network(4))
    with pytest.raises(InputError, match=r"kind sparse needs scipy\.sparse data; use formed"):
        build_covariance(dense, moments, kind=CovarianceKind.SPARSE)
    blocks = np.ones((4, D, 2))
    for kind in KINDS[:3]:
        found = build_covariance(sparse, moments, kind=kind).apply(blocks)
        assert relative_error(found, reference(make(mean=1.0)) @ blocks) < 1e-12


def test_formed_matrices_are_symmetric_to_the_last_bit(exact_network):
    for dtype in (np.float32, np.float64):
        shards = Shards.from_array(gaussian(power_law_spectrum(60, 1.0), 500, 0, mean=1.0).astype(dtype), 3)
        matrices = build_covariance(
            shards, pooled_moments(shards, exact_network(3)), kind=CovarianceKind.FORMED
        ).matrices
        assert np.array_equal(matrices, matrices.transpose(0, 2, 1))


@pytest.mark.parametrize("kind", KINDS[:3])
def test_many_chunks_and_integers(exact_network, kind):
    X = np.random.default_rng(0).integers(0, 256, (5000, 900), dtype=np.uint8)  # 2.1 chunks
    shards = Shards.from_list([X])
    covariance = build_covariance(shards, pooled_moments(shards, exact_network(1)), kind=kind)
    blocks = np.random.default_rng(1).standard_normal((1, 900, 2))
    centred = X - X.mean(axis=0)
    assert relative_error(covariance.apply(blocks)[0], centred.T @ (centred @ blocks[0]) / 4999) < 1e-12


def peak_bytes(work):
    tracemalloc.start()
    try:
        result = work()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_memory_map_is_not_read_whole(exact_network, tmp_path):
    mapped = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.uint8, (400_000, 512))  # 1.6 GB as float64
    mapped[:] = np.random.default_rng(0).integers(0, 256, 512, dtype=np.uint8)
    mapped[::2] = 0
    mapped.flush()

    def work():
        shards = Shards.from_files([tmp_path / "x.npy"], 4, RandomSplit(0))
        moments = pooled_moments(shards, exact_network(4))
        assert choose(shards, 1, 1, memory_bytes=2**27).kind is CovarianceKind.CHUNKED
        covariance = build_covariance(shards, moments, kind=CovarianceKind.CHUNKED)
        return covariance.apply(np.ones((4, 512, 1))).mean(axis=0)

    found, peak = peak_bytes(work)
    spread = mapped[1].astype(float) / 2  # half the rows are zero: the covariance is v v^T / 4
    expected = spread * spread.sum() * (400_000 / 399_999)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-10)
    assert peak < 100e6


def test_a_wide_sparse_matrix_is_not_made_dense(exact_network):
    rng = np.random.default_rng(0)
    places = rng.integers(0, 4000, 80_000), rng.integers(0, 20_000, 80_000)
    X = scipy.sparse.coo_array((rng.random(80_000), places), shape=(4000, 20_000)).tocsr()
    dense_bytes = 4000 * 20_000 * 8

    def work():
        shards = Shards.from_array(X, 4, RandomSplit(0))
        moments = pooled_moments(shards, exact_network(4), scale=False)
        assert choose(shards, 2, 10).kind is CovarianceKind.SPARSE
        return moments, build_covariance(shards, moments).apply(np.ones((4, 20_000, 2))).mean(axis=0)

    (moments, found), peak = peak_bytes(work)
    assert peak < dense_bytes / 20
    mu = X.mean(axis=0)
    Z = X @ np.ones((20_000, 2)) - mu.sum()
    expected = (X.T @ Z - np.outer(mu, Z.sum(axis=0))) / 3999
    assert relative_error(found, expected) < 1e-12
    squares = X.multiply(X).sum(axis=0) - 4000 * mu**2
    np.testing.assert_allclose(moments.variance, squares / 3999, rtol=1e-10, atol=1e-18)


def choose(shards, n_components, products, **limits):
    return choose_by_size(Sizes.of(*shards.blocks), n_components, products, **limits)


class TestChoose:
    def shards(self, n_samples, d, n_nodes=2, dtype=np.float64):
        return Shards.from_array(np.broadcast_to(np.zeros(1, dtype=dtype), (n_samples, d)), n_nodes)

    def test_tall_data_are_formed(self):
        shards = self.shards(100_000, 100)
        choice = choose(shards, 10, 50)
        assert choice.kind is CovarianceKind.FORMED
        assert choice.bytes == Sizes.of(*shards.blocks).memory_needed(choice.kind) < 40e6
        assert "flops" in choice.reason

    def test_wide_data_are_not(self):
        choice = choose(self.shards(957, 14_079, 11), 5, 20)
        assert choice.kind is CovarianceKind.MATRIX_FREE

    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.uint8])
    def test_data_in_memory_are_not_copied(self, dtype):
        choice = choose(self.shards(957, 14_079, 11, dtype), 5, 20)
        assert choice.kind is CovarianceKind.MATRIX_FREE
        assert choice.bytes < 957 * 14_079

    def test_few_products_are_not_worth_forming(self):
        assert choose(self.shards(40_000, 500), 2, 3).kind is CovarianceKind.MATRIX_FREE
        assert choose(self.shards(40_000, 500), 10, 100).kind is CovarianceKind.FORMED

    def test_a_mapped_file_is_held_only_if_it_is_small(self, tmp_path):
        for rows, kind in ((4000, CovarianceKind.MATRIX_FREE), (80_000, CovarianceKind.CHUNKED)):
            path = tmp_path / f"{rows}.npy"
            np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(rows, 500))
            shards = Shards.from_array(np.load(path, mmap_mode="r"), 2)
            assert choose(shards, 2, 3).kind is kind

    def test_memory_decides_last(self):
        shards = self.shards(10_000, 2000)
        assert choose(shards, 50, 100).kind is CovarianceKind.FORMED
        tall = choose(self.shards(3000, 2000, n_nodes=1), 50, 400, memory_bytes=90 * 2**20)
        assert tall.kind is CovarianceKind.MATRIX_FREE
        assert tall.bytes < 90 * 2**20
        assert "but the matrices take" in tall.reason
        least = choose(shards, 50, 100, memory_bytes=50 * 2**20)
        assert least.kind is CovarianceKind.MATRIX_FREE
        assert "matrices take 126 MiB of 50 MiB" in least.reason

    def test_numbers_are_checked(self):
        with pytest.raises(InputError, match="at least 1; got 0 and 5"):
            choose(self.shards(10, 2), 0, 5)

    def test_build_takes_the_choice(self, exact_network):
        shards = Shards.from_list(cut(np.hstack([make(), make(1.0)])))
        moments = pooled_moments(shards, exact_network(4))
        for products in (1, 100):
            kind = choose(shards, 1, products).kind
            assert build_covariance(shards, moments, n_components=1, products=products).kind is kind
        assert {choose(shards, 1, products).kind for products in (1, 100)} == set(KINDS[:2])


@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_rows_with_few_entries_are_formed_from_these(exact_network, weighted, monkeypatch):
    """As the dense ones are, with holes, weights, scaled columns and pieces of some rows."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(
        300, 40, density=0.05, random_state=rng, format="csr", data_rvs=lambda n: rng.gamma(2, size=n)
    )
    X.data[[3, 50]] = np.nan
    monkeypatch.setattr("eigenmesh.data.covariance.FORMED_BYTES", 1000)
    monkeypatch.setattr("eigenmesh.data.covariance.COLUMNS_FORMED", 16)
    found = []
    for matrix in (X, X.toarray()):
        shards = Shards.from_array(matrix, 3).weighted_rows(np.arange(300) % 4 + 1 if weighted else None)
        moments = pooled_moments(shards, exact_network(3), scale=True, missing="mean")
        found.append(build_covariance(shards, moments, kind=CovarianceKind.FORMED))
    np.testing.assert_allclose(found[0].matrices, found[1].matrices, atol=1e-12)
    np.testing.assert_array_equal(found[0].matrices, found[0].matrices.mT)
    assert found[0].rounding_size > 0


def test_sparse_data_are_formed_where_their_entries_are_few_and_products_many():
    thin = Shards.from_array(scipy.sparse.random(20_000, 300, density=0.02, random_state=0, format="csr"), 4)
    assert choose(thin, 55, 12).kind is CovarianceKind.FORMED
    assert choose(thin, 55, 12, memory_bytes=10**6).kind is CovarianceKind.SPARSE
    assert choose(thin, 1, 1).kind is CovarianceKind.SPARSE
    full = Shards.from_array(scipy.sparse.random(2_000, 300, density=0.4, random_state=0, format="csr"), 4)
    assert choose(full, 55, 12).kind is CovarianceKind.SPARSE


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool", ">f8"])
@pytest.mark.parametrize("shape", [(3000, 90), (150, 2100)])
def test_rows_of_any_dtype_and_order_are_converted_in_pieces(exact_network, monkeypatch, shape, dtype, order):
    """Never as a whole, and with the bits of float64 rows in C order."""
    monkeypatch.setattr("eigenmesh.data.source.CHUNK_BYTES", 8 * 64 * 2048)
    rng = np.random.default_rng(0)
    X = np.asarray(rng.integers(0, 2, shape), dtype=dtype, order=order)
    plain = Shards.from_list([np.ascontiguousarray(X, dtype=np.float64)])
    moments, C = pooled_moments(plain, exact_network(1)), reference_of_all(X)
    blocks = rng.standard_normal((1, shape[1], 3))
    for kind in (CovarianceKind.CHUNKED, CovarianceKind.MATRIX_FREE, CovarianceKind.FORMED):
        covariance = build_covariance(Shards.from_list([X]), moments, kind=kind)
        product = covariance.apply(blocks)
        assert relative_error(product[0], C @ blocks[0]) < 1e-12
        assert product.tobytes() == build_covariance(plain, moments, kind=kind).apply(blocks).tobytes()
        if kind is not CovarianceKind.FORMED:
            assert peak_bytes(partial(covariance.apply, blocks))[1] < 8 * X.size


def reference_of_all(X):
    """The pooled covariance (d, d)."""
    return np.cov(X.T.astype(float))


def test_sparse_rows_of_float32_stay_float32(exact_network):
    X = scipy.sparse.random(4000, 30, density=0.5, random_state=0, format="csr").astype(np.float32)
    shards = Shards.from_list([X])
    covariance = build_covariance(shards, pooled_moments(shards, exact_network(1)), kind=CovarianceKind.SPARSE)
    blocks = np.random.default_rng(0).standard_normal((1, 30, 3))
    assert relative_error(covariance.apply(blocks)[0], reference_of_all(X.toarray()) @ blocks[0]) < 1e-12
    assert not any(scipy.sparse.issparse(rows) for rows in covariance.matrices)
