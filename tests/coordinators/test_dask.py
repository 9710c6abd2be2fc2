"""PCA of dask arrays and data frames: scikit-learn's answers, whatever the chunks, and nothing gathered."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import sparse as scipy_sparse
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from eigenmesh import DecentralizedPCA, load_model
from eigenmesh.coordinators import is_asked, verbs
from eigenmesh.data import CovarianceKind
from eigenmesh.data.datasets import gaussian, geometric_spectrum
from eigenmesh.errors import DataError, InputError
from eigenmesh.fitting import Request, prepare
from eigenmesh.solvers import FastPCA
from problems import angles, truth

dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'eigenmesh[dask]'")
da = pytest.importorskip("dask.array", reason="dask.array is not installed: pip install 'eigenmesh[dask]'")
dd = pytest.importorskip("dask.dataframe", reason="dask.dataframe is not installed: pip install 'eigenmesh[dask]'")

from eigenmesh.coordinators.asked import AskedData, AskedSites  # noqa: E402
from eigenmesh.coordinators.coordinator import FAN_IN  # noqa: E402
from eigenmesh.coordinators.dask import DaskBlocks  # noqa: E402

UNEQUAL = (100, 3, 250, 47)
# A message has a head of at most so many bytes.
HEAD = 300


@pytest.fixture(autouse=True)
def threads():
    """Dask's own threads, whatever client another module has left."""
    with dask.config.set(scheduler="threads"):
        yield


def sample(n=400, d=12, seed=0, mean=5.0):
    rng = np.random.default_rng(seed)
    return gaussian(geometric_spectrum(d, 3, 0.5, ratio=0.7), n, seed) + rng.normal(scale=mean, size=d)


def fitted(data, k=3, **settings):
    return DecentralizedPCA(k, **{"tol": 1e-9, **settings}).fit(data)


def assert_same_as_scikit_learn(ours, X, k=3):
    theirs = PCA(k, svd_solver="full").fit(X)
    assert angles(ours.components_, theirs.components_.T).max() < 1e-9
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_"):
        assert np.allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-12), name
    assert (ours.n_samples_, ours.n_features_in_, ours.n_components_) == (*X.shape, k)
    assert ours.certificate_.error_bound < 1e-9
    assert ours.result_.converged


@pytest.mark.parametrize("covariance", ["auto", "formed", "matrix-free", "chunked"])
@pytest.mark.parametrize("chunks", [(UNEQUAL, (12,)), (UNEQUAL, (5, 7)), ((400,), (12,)), ((4,) * 100, (12,))])
def test_any_chunks_any_way_of_holding(chunks, covariance):
    X = sample()
    pca = fitted(da.from_array(X, chunks=chunks), covariance=covariance)
    assert_same_as_scikit_learn(pca, X)
    assert pca.n_nodes_ == len(chunks[0])
    assert pca.node_components_.shape == (1, 3, 12)
    assert pca.node_names_ == tuple(str(node) for node in range(len(chunks[0])))
    # To the solver the cluster is one node.
    assert pca.weights_.n_nodes == 1


@pytest.mark.parametrize("solver", ["block-krylov", "tracked-subspace", "one-sum"])
@pytest.mark.parametrize("covariance", ["auto", "matrix-free"])
def test_exact_solvers(solver, covariance):
    X = sample()
    pca = fitted(da.from_array(X, chunks=(60, 12)), solver=solver, covariance=covariance)
    assert pca.result_.solver == solver
    assert_same_as_scikit_learn(pca, X)


@pytest.mark.parametrize("k", [1, 12, None])
def test_one_and_all_components(k):
    X = sample()
    pca = fitted(da.from_array(X, chunks=(60, 12)), k=k)
    assert_same_as_scikit_learn(pca, X, k or 12)


def test_share_of_the_variance():
    X = sample()
    pca = fitted(da.from_array(X, chunks=(60, 12)), k=0.8)
    assert pca.n_components_ == PCA(0.8, svd_solver="full").fit(X).n_components_


@pytest.mark.parametrize("covariance", ["auto", "matrix-free", "chunked"])
def test_float32_samples_are_multiplied_in_float64(covariance):
    X = sample(mean=1.0).astype(np.float32)
    pca = fitted(da.from_array(X, chunks=(60, 12)), covariance=covariance)
    assert pca.components_.dtype == np.float64
    assert angles(pca.components_, truth(X.astype(float))[1]).max() < 1e-6


def test_integers():
    X = np.rint(10 * sample()).astype(np.int16)
    assert_same_as_scikit_learn(fitted(da.from_array(X, chunks=(60, 5))), X.astype(float))


class TestSparse:
    @staticmethod
    def matrix():
        X = sample()
        return np.where(np.abs(X) > 4, X, 0.0)

    @pytest.mark.parametrize("covariance", ["auto", "formed", "sparse", "chunked"])
    @pytest.mark.parametrize("make", [scipy_sparse.csr_array, scipy_sparse.csc_matrix])
    def test_scipy(self, make, covariance):
        X = self.matrix()
        blocks = da.from_array(X, chunks=(90, 12)).map_blocks(make)
        assert_same_as_scikit_learn(fitted(blocks, covariance=covariance), X)

    def test_package_sparse_with_column_chunks(self):
        sparse = pytest.importorskip("sparse", reason="the package sparse is not installed")
        X = self.matrix()
        blocks = da.from_array(X, chunks=(90, 5)).map_blocks(sparse.COO)
        pca = fitted(blocks)
        assert_same_as_scikit_learn(pca, X)
        assert np.allclose(pca.transform(blocks).compute(), PCA(3).fit(X).transform(X), atol=1e-7)

    def test_never_dense(self, monkeypatch):
        X = self.matrix()
        blocks = da.from_array(X, chunks=(90, 12)).map_blocks(scipy_sparse.csr_array)

        make_dense = scipy_sparse.csr_array.toarray

        def watched(self, *args, **kwargs):
            assert self.shape[1] != 12, "a sparse block was made dense"
            return make_dense(self, *args, **kwargs)

        monkeypatch.setattr(scipy_sparse.csr_array, "toarray", watched)
        assert_same_as_scikit_learn(fitted(blocks, covariance="sparse"), X)

    def test_blocks_that_did_not_say_so(self):
        X = self.matrix()
        blocks = da.from_array(X, chunks=(90, 12)).map_blocks(scipy_sparse.csr_array, meta=np.empty((0, 0)))
        assert_same_as_scikit_learn(fitted(blocks, covariance="matrix-free"), X)


class TestFrames:
    columns = tuple("abcdefghijkl")

    def frame(self):
        return pd.DataFrame(sample(), columns=list(self.columns))

    def test_names_and_answers(self):
        frame = self.frame()
        lazy = dd.from_pandas(frame, npartitions=5)
        pca = fitted(lazy)
        assert_same_as_scikit_learn(pca, frame.to_numpy())
        assert tuple(pca.feature_names_in_) == self.columns
        assert np.allclose(pca.transform(lazy).compute(), pca.transform(frame), atol=1e-12)
        with pytest.raises(ValueError, match="feature names"):
            pca.transform(lazy.rename(columns={"a": "z"}))

    def test_lengths_that_nobody_knows_and_partitions_without_rows(self):
        frame = self.frame()
        lazy = dd.from_pandas(frame, npartitions=8)
        kept = lazy.map_partitions(lambda part: part[part.index < 230])
        pca = fitted(kept)
        assert_same_as_scikit_learn(pca, frame.iloc[:230].to_numpy())
        assert pca.n_nodes_ == 8
        assert pca.transform(kept).compute().shape == (230, 3)

    def test_nullable_columns(self):
        frame = self.frame().round().astype("Int64")
        frame.iloc[3, 2] = pd.NA
        lazy = dd.from_pandas(frame, npartitions=3)
        filled = frame.astype(float).fillna(frame.astype(float).mean())
        assert_same_as_scikit_learn(fitted(lazy, missing="mean"), filled.to_numpy())

    def test_columns_that_are_not_numbers(self):
        lazy = dd.from_pandas(self.frame().assign(name="x"), npartitions=3)
        with pytest.raises(DataError, match=r"not numbers: 'name'"):
            fitted(lazy)


@pytest.mark.parametrize("covariance", ["auto", "matrix-free", "chunked"])
def test_scaled(covariance):
    X = sample() * np.geomspace(1, 100, 12)
    pca = fitted(da.from_array(X, chunks=(UNEQUAL, (5, 7))), scale=True, covariance=covariance)
    scaler = StandardScaler().fit(X)
    assert angles(pca.components_, truth(scaler.transform(X))[1]).max() < 1e-9
    assert np.allclose(pca.scale_, scaler.scale_, rtol=1e-12)


@pytest.mark.parametrize("covariance", ["auto", "matrix-free", "chunked"])
def test_missing_entries_become_the_mean(covariance):
    X = sample()
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    pca = fitted(da.from_array(X, chunks=(UNEQUAL, (12,))), missing="mean", covariance=covariance)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    assert angles(pca.components_, truth(filled)[1]).max() < 1e-9


class TestLazyScores:
    @pytest.mark.parametrize("whiten", [False, True])
    def test_equal_those_of_the_computed_array(self, whiten):
        X = sample()
        lazy = da.from_array(X, chunks=(UNEQUAL, (5, 7)))
        pca = DecentralizedPCA(3, whiten=whiten, scale=True)
        scores = pca.fit_transform(lazy)
        assert is_asked(scores)
        assert scores.chunks == (UNEQUAL, (3,))
        assert np.allclose(scores.compute(), pca.transform(X), atol=1e-12)

    def test_float32_stays_float32_also_with_a_loaded_model(self, tmp_path):
        X = sample().astype(np.float32)
        lazy = da.from_array(X, chunks=(UNEQUAL, 12))
        pca = DecentralizedPCA(3, tol=1e-3).fit(lazy)
        pca.save(tmp_path / "model.npz")
        for model in (pca, load_model(tmp_path / "model.npz")):
            scores = model.transform(lazy)
            assert scores.dtype == scores.compute().dtype == np.float32
            assert np.array_equal(scores.compute(), pca.transform(X))

    def test_refusals(self):
        X = sample()
        lazy = da.from_array(X, chunks=(100, 12))
        pca = DecentralizedPCA(3).fit(lazy)
        with pytest.raises(ValueError, match="5 features, but DecentralizedPCA is expecting 12"):
            pca.transform(lazy[:, :5])
        with pytest.raises(InputError, match="support only fit and transform"):
            pca.score_samples(lazy)
        with pytest.raises(InputError, match="support only fit and transform"):
            pca.plan(lazy)


class TestWhatIsMoved:
    def test_a_round_a_product_and_two_messages_a_block(self):
        X = da.from_array(sample(), chunks=(40, 12))
        # The sums of the first block, then everything about its mean: 2 d + 4 numbers; d to, and 1 + d + 78 from each.
        formed = fitted(X, covariance="formed").traffic_
        assert (formed.rounds, formed.messages) == (2, 2 + 20)
        numbers = 8 * (28 + 10 * (12 + 13 + 78))
        assert numbers < formed.bytes < numbers + 22 * HEAD
        free = fitted(X, covariance="matrix-free")
        products = free.n_iter_  # the certificate needs none of its own
        assert (free.traffic_.rounds, free.traffic_.messages) == (2 + products, 2 + 20 * (1 + products))
        # Products have K + 5 = 8 columns, and go with the mean.
        numbers = 8 * (28 + 10 * (28 + (12 + 2 * 12 * 8) * products))
        assert numbers < free.traffic_.bytes < numbers + free.traffic_.messages * HEAD
        assert free.result_.traffic_by_phase["certificate"].rounds == 0

    def test_sums_have_few_operands(self, monkeypatch):
        widths, add = [], verbs.add

        def watched(answers):
            widths.append(len(answers))
            return add(answers)

        monkeypatch.setattr(verbs, "add", watched)
        blocks = DaskBlocks(da.arange(300, chunks=3).reshape((100, 3)).astype(float))
        total, _ = AskedSites(blocks).total("sums")
        assert np.array_equal(total[:4], [100, 14850, 14950, 15050])
        assert max(widths) == FAN_IN
        assert len(widths) == 13 + 2 + 1

    def test_only_sums_come_back(self):
        X = sample(n=5000)
        lazy = da.from_array(X, chunks=(500, 12))
        came = []

        def watched(dsk, keys, **settings):
            results = dask.threaded.get(dsk, keys, **settings)
            came.extend(_bytes_of(results))
            return results

        with dask.config.set(scheduler=watched):
            fitted(lazy, covariance="chunked")
        assert came
        assert 8 * 12 * 8 < max(came) < 8 * 12 * 8 + HEAD
        assert max(came) < X.nbytes / 100


def _bytes_of(results):
    if isinstance(results, list | tuple):
        return [size for result in results for size in _bytes_of(result)]
    return [len(results)]


class TestOnePass:
    """Formed covariances come with their moments, unless that would cost precision."""

    def rounds(self, X, chunks, **settings):
        pca = fitted(da.from_array(X, chunks=chunks), covariance="formed", **settings)
        assert_same_as_scikit_learn(pca, X)
        return pca.traffic_.rounds

    def test_large_means_are_no_matter(self):
        X = sample() + 1e6
        pca = fitted(da.from_array(X, chunks=(60, 12)), tol=1e-7, covariance="formed")
        assert pca.traffic_.rounds == 2
        assert np.allclose(pca.mean_, X.mean(axis=0), rtol=1e-14)
        assert np.allclose(pca.explained_variance_, truth(X)[0][:3], rtol=1e-9)

    def test_constant_columns_are_no_matter(self):
        X = sample()
        X[:, 3], X[:, 7] = 0.0, 1 / 3
        assert self.rounds(X, (60, 12)) == 2

    def test_a_first_block_far_from_the_others_takes_the_usual_passes(self):
        X = sample(n=4000)
        X[0] += 100.0
        assert self.rounds(X, ((1, 3999), (12,))) == 2 + 2

    def test_an_empty_first_block(self):
        frame = pd.DataFrame(sample())
        lazy = dd.from_pandas(frame, npartitions=4).map_partitions(lambda part: part[part.index >= 150])
        assert_same_as_scikit_learn(fitted(lazy, covariance="formed"), frame.iloc[150:].to_numpy())


class TestHowItIsHeld:
    def problem(self, lazy, kind=None, k=3):
        return prepare(Request(k, covariance=kind), AskedData(AskedSites(DaskBlocks(lazy))))

    def test_small_d_is_formed_and_large_d_is_not(self):
        small = self.problem(da.from_array(sample(n=4000), chunks=(500, 12)))
        assert small.covariance.kind is CovarianceKind.FORMED
        wide = np.random.default_rng(0).standard_normal((60, 9000))
        assert self.problem(da.from_array(wide, chunks=(20, 9000))).covariance.kind is CovarianceKind.MATRIX_FREE

    def test_more_than_memory_is_read_anew(self, monkeypatch):
        monkeypatch.setattr("eigenmesh.coordinators.dask.KEPT_BYTES", 100_000)
        reads = []

        def read(block_info=None):
            location = block_info[None]["array-location"][0]
            reads.append(location)
            return np.random.default_rng(location[0]).standard_normal((20, 9000))

        lazy = da.map_blocks(read, chunks=((20, 20, 20), (9000,)), dtype=float)
        reads.clear()
        pca = fitted(lazy, tol=1e-6)
        assert len(reads) == 1 + 3 * (pca.traffic_.rounds - 1)
        X = lazy.compute()
        gram_vectors = PCA(3, svd_solver="full").fit(X).components_
        assert angles(pca.components_, gram_vectors.T).max() < 1e-6


class TestRefused:
    lazy = staticmethod(lambda: da.from_array(sample(), chunks=(100, 12)))

    @pytest.mark.parametrize("solver", ["fast-pca", "dsa", "deepca", "s-dot", "krasulina", FastPCA()])
    def test_solvers_of_many_rounds(self, solver):
        with pytest.raises(InputError, match=r"each exchange takes 0.08 s; use solver=\"auto\""):
            fitted(self.lazy(), solver=solver)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"topology": "cycle"}, "topology = 'cycle' has no meaning for dask data"),
            ({"topology": np.ones((4, 4)) / 4}, "Leave topology out"),
            ({"averaging": "gossip"}, "averaging = 'gossip' has no meaning"),
            ({"split": "label"}, "split = 'label' has no meaning"),
            ({"transport": "mpi"}, "transport = 'mpi' has no meaning"),
            ({"device": "cpu"}, "device = 'cpu' has no meaning"),
            ({"n_nodes": 5}, "n_nodes = 5, but the data have 4 parts"),
            ({"k": 13}, "n_components = 13 must be at most 12"),
        ],
    )
    def test_settings_without_a_meaning(self, settings, message):
        with pytest.raises(InputError, match=message):
            fitted(self.lazy(), **settings)

    def test_as_many_nodes_as_blocks_is_no_contradiction(self):
        assert fitted(self.lazy(), n_nodes=4).n_nodes_ == 4

    def test_nodes(self):
        with pytest.raises(InputError, match="in parts already"):
            DecentralizedPCA(3).fit(self.lazy(), nodes=np.zeros(400))

    def test_not_finite_entries_are_named(self):
        X = sample()
        X[231, 7] = np.nan
        with pytest.raises(DataError, match=r"node 2, row 31, column 7 is NaN;.*missing=\"mean\""):
            fitted(da.from_array(X, chunks=(100, 12)))
        with pytest.raises(DataError, match="node 0, row 231, column 7 is NaN"):
            fitted(da.from_array(X, chunks=(400, 12)), covariance="formed")
        frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcdefghijkl")), npartitions=4)
        with pytest.raises(DataError, match=r"node 2, row 31, column 7 \('h'\) is NaN"):
            fitted(frame)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda part: part.rename(columns={"b": "x"}), "lacks column 'b', which the dask data frame has"),
            (lambda part: part[["a", "b"]], "lacks column 'c', which the dask data frame has"),
            (lambda part: part.assign(d=1.0), "has column 'd', which the dask data frame lacks"),
        ],
        ids=["name", "fewer", "more"],
    )
    def test_a_partition_with_other_columns_is_named(self, change, said):
        whole = pd.DataFrame(sample()[:, :3], columns=list("abc"))
        parts = np.split(np.arange(400), 4)

        def read(number):
            part = whole.iloc[parts[number]]
            return change(part) if number == 2 else part

        frame = dd.from_map(read, range(4), meta=whole[:0])
        with pytest.raises(DataError, match=f"partition 2 of the dask data frame {said}"):
            fitted(frame, k=2)
        model = fitted(dd.from_pandas(whole, npartitions=4), k=2)
        with pytest.raises(DataError, match=f"partition 2 of the dask data frame {said}"):
            model.transform(frame).compute()

    def test_columns_of_a_partition_may_be_in_another_order(self):
        whole = pd.DataFrame(sample()[:, :3], columns=list("abc"))
        parts = np.split(np.arange(400), 4)

        def read(number):
            part = whole.iloc[parts[number]]
            return part[["b", "a", "c"]] if number == 2 else part

        frame, straight = dd.from_map(read, range(4), meta=whole[:0]), dd.from_pandas(whole, npartitions=4)
        model, plain = fitted(frame, k=2), fitted(straight, k=2)
        np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-12)
        np.testing.assert_allclose(model.transform(frame).compute(), plain.transform(straight).compute(), atol=1e-12)

    def test_a_column_of_dates_is_named_before_anything_is_read(self):
        frame = pd.DataFrame(sample()[:, :3], columns=list("abc")).assign(seen=pd.date_range("2026", periods=400))
        with pytest.raises(DataError, match="columns that are not numbers: 'seen'"):
            fitted(dd.from_pandas(frame, npartitions=4), k=2)

    @pytest.mark.parametrize("covariance", ["formed", "matrix-free"])
    def test_overflow(self, covariance):
        X = sample()
        X[300:, 2] *= 1e200
        with pytest.raises(DataError, match="variance overflows float64 in column 2"):
            fitted(da.from_array(X, chunks=(100, 12)), covariance=covariance)

    def test_data_without_components(self):
        with pytest.raises(DataError, match="total variance is zero"):
            fitted(da.ones((30, 3), chunks=(10, 3)))
        with pytest.raises(DataError, match="n_samples = 1 "):
            fitted(da.ones((1, 3), chunks=(1, 3)), k=1)
        empty = dd.from_pandas(pd.DataFrame(sample()), npartitions=3)
        with pytest.raises(DataError, match="n_samples = 0 "):
            fitted(empty.map_partitions(lambda part: part[:0]))

    @pytest.mark.parametrize("make", [lambda: da.ones(5), lambda: da.ones((2, 3, 4)), lambda: dask.delayed(1)])
    def test_other_collections(self, make):
        with pytest.raises(InputError, match="2-D dask array or a dask data frame; got dask"):
            fitted(make())


@pytest.mark.slow
def test_importing_eigenmesh_does_not_import_dask():
    code = "import sys, eigenmesh, eigenmesh.estimator.pca; sys.exit('dask' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
