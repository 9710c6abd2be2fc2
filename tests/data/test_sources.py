from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
import zarr

from cells import text
from eigenmesh import DecentralizedPCA, StreamingPCA
from eigenmesh.data import Block, Shards, Source, Table, as_source, read_table
from eigenmesh.data.formats.plink import Variant
from eigenmesh.data.table import READERS
from eigenmesh.errors import DataError, InputError
from eigenmesh.metrics import largest_angle
from genotypes import write_bed, write_pgen, write_vcf_zarr

# Rows of 2 kB as float64, of which 1,024 make a chunk.
N, D, CHUNK_ROWS = 5000, 256, 1024
TIMES = np.linspace(0, 1, D)
NOISE = np.random.default_rng(0).uniform(0, 1e4, D)

VALUES = np.random.default_rng(1).standard_normal((30, 4))
# What all kinds of file can hold: .bed has copies of an allele alone.
COUNTS = np.random.default_rng(2).integers(0, 3, (30, 4)).astype(np.float64)
VARIANTS = [Variant("1", name, "1", ("A", "G")) for name in "abcd"]
SAMPLES = [f"s{row}" for row in range(30)]


def write_hdf5(path, X):
    with h5py.File(path, "w") as file:
        file["X"] = X


def write_h5ad(path, X):
    with h5py.File(path, "w") as file:
        put(file, X)


def write_zarr(path, X):
    put(zarr.open_group(path, mode="w", zarr_format=2), X)


def put(file, X):
    """As AnnData lays its files out."""
    file["X"] = X
    for name, names in (("obs", SAMPLES), ("var", list("abcd"))):
        file.create_group(name).attrs["_index"] = "_index"
        file[name]["_index"] = text(names, file)


def write_excel(path, X):
    book = pytest.importorskip("openpyxl").Workbook()
    for row in X.tolist():
        book.active.append(row)
    book.save(path)


# How to write a file of every kind: one row for each suffix.
WRITERS = {
    ".npy": np.save,
    ".npz": lambda path, X: np.savez(path, X=X),
    ".csv": lambda path, X: np.savetxt(path, X, delimiter=",", fmt="%.17g"),
    ".tsv": lambda path, X: np.savetxt(path, X, delimiter="\t", fmt="%.17g"),
    ".txt": lambda path, X: np.savetxt(path, X, delimiter=";", fmt="%.17g"),
    **dict.fromkeys((".xlsx", ".xlsm"), write_excel),
    ".parquet": lambda path, X: pd.DataFrame(X, columns=list("abcd")).to_parquet(path),
    **dict.fromkeys((".h5", ".hdf5"), write_hdf5),
    ".h5ad": write_h5ad,
    ".zarr": write_zarr,
    ".bed": lambda path, X: write_bed(path, X, SAMPLES, VARIANTS),
    ".pgen": lambda path, X: write_pgen(path, X, SAMPLES, VARIANTS),
    ".vcz": lambda path, X: write_vcf_zarr(path, X, SAMPLES, VARIANTS),
}
# Kinds whose samples are left sparse.
SPARSE: tuple[str, ...] = ()
KINDS = {
    "array": np.asarray,
    "list": np.ndarray.tolist,
    "tensor": torch.asarray,
    "masked": np.ma.asarray,
    "frame": lambda X: pd.DataFrame(X, columns=list("abcd")),
    "csr": scipy.sparse.csr_array,
    "coo": scipy.sparse.coo_matrix,
    "block": lambda X: Block(as_source(np.repeat(X, 2, axis=0)), slice(0, None, 2)),
}


@dataclass(frozen=True, eq=False)
class Waves:
    """Sums of three waves and noise, computed from the row numbers whenever rows are read."""

    shape: tuple[int, int] = (N, D)
    sparse: bool = False
    reads: list[int] = field(default_factory=list)
    dtype = np.float64
    feature_names = tuple(f"t{column}" for column in range(D))
    in_memory = False

    @property
    def n_stored(self):
        return self.shape[0] * self.shape[1] if self.sparse else None

    def read(self, rows):
        numbers = np.arange(self.shape[0])[rows]
        self.reads.append(len(numbers))
        samples = self.rows(numbers)
        return scipy.sparse.csr_array(samples) if self.sparse else samples

    def rows(self, numbers):
        heights = [3.0, 2.0, 1.0] * np.cos(np.outer(numbers, [1.0, 2.3, 3.1]))
        waves = np.sin(np.pi * np.outer([1, 2, 3], TIMES))
        return 5.0 + heights @ waves + 0.1 * np.cos(np.outer(numbers, NOISE))

    def whole(self):
        return self.rows(np.arange(self.shape[0]))


def pooled_directions(*parts):
    return np.linalg.eigh(np.cov(np.concatenate(parts), rowvar=False))[1][:, :-4:-1]


def angle(pca, *parts):
    return largest_angle(pca.components_.T[np.newaxis], pooled_directions(*parts))


def check_source(source, values=VALUES, sparse=False):
    assert isinstance(source, Source)
    assert (source.shape, source.dtype) == (values.shape, values.dtype)
    assert source.n_stored == (np.count_nonzero(values) if sparse else None)
    assert source.feature_names in (None, tuple("abcd"), tuple(variant.feature for variant in VARIANTS))
    for rows in (slice(0, 30), slice(5, 9), slice(3, 3), np.array([29, 0, 7, 7]), np.array([], dtype=int)):
        piece = source.read(rows)
        assert isinstance(piece, scipy.sparse.csr_array if sparse else np.ndarray)
        assert np.array_equal(piece.toarray() if sparse else piece, values[rows])


@pytest.mark.parametrize("kind", KINDS)
def test_anything_that_holds_samples_is_made_a_source(kind):
    source = as_source(KINDS[kind](VALUES))
    check_source(source, sparse=kind in ("csr", "coo"))
    assert source.in_memory


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("share", [None, (0, 1)])
def test_files_of_every_kind_are_sources(tmp_path, suffix, share):
    path = tmp_path / f"values{suffix}"
    WRITERS[suffix](path, COUNTS)
    check_source(read_table(path, share=share).source, COUNTS, sparse=suffix in SPARSE)


def test_a_home_made_source_is_one_and_is_passed_on_as_it_is():
    waves = Waves()
    assert isinstance(waves, Source)
    assert as_source(waves) is waves
    assert not any(isinstance(other, Source) for other in (np.eye(2), scipy.sparse.eye_array(2), Table(waves)))


@pytest.mark.parametrize("covariance", ["auto", "chunked", "matrix-free"])
@pytest.mark.parametrize("split", ["contiguous", "random"])
def test_fit_reads_a_source_in_pieces(covariance, split):
    waves = Waves()
    pca = DecentralizedPCA(3, n_nodes=2, split=split, topology="complete", covariance=covariance).fit(waves)
    assert max(waves.reads) == CHUNK_ROWS
    assert sum(waves.reads) % N == 0
    assert angle(pca, waves.whole()) < 1e-6
    assert pca.feature_names_in_.tolist() == list(waves.feature_names)
    assert np.allclose(pca.transform(waves), (waves.whole() - pca.mean_) @ pca.components_.T)


def test_chunked_reads_the_source_once_a_product():
    waves = Waves()
    DecentralizedPCA(3, n_nodes=1, topology="complete", covariance="chunked").fit(waves)
    passes, rest = divmod(sum(waves.reads), N)
    assert rest == 0
    assert passes > 3
    held = Waves()
    DecentralizedPCA(3, n_nodes=1, topology="complete", covariance="matrix-free").fit(held)
    assert sum(held.reads) == 2 * N


def test_sources_by_node_in_lists_and_as_shards():
    waves, array = Waves(), Waves((400, D)).whole() * 2
    sites = np.arange(N) % 3
    by_node = DecentralizedPCA(3, topology="complete").fit(waves, nodes=sites)
    assert angle(by_node, waves.whole()) < 1e-6
    for parts in ([waves, array], Shards.from_list([waves, array])):
        pca = DecentralizedPCA(3, topology="complete").fit(parts)
        assert angle(pca, waves.whole(), array) < 1e-6
        assert pca.feature_names_in_.tolist() == list(waves.feature_names)
    assert max(waves.reads) <= CHUNK_ROWS


def test_a_sparse_source_stays_sparse():
    waves = Waves(sparse=True)
    shards = Shards.from_array(waves, 3)
    assert shards.is_sparse
    pca = DecentralizedPCA(3, topology="complete").fit(shards)
    assert angle(pca, waves.whole()) < 1e-6
    assert np.allclose(pca.transform(waves), (waves.whole() - pca.mean_) @ pca.components_.T)


def test_a_part_of_a_lazy_table_is_read_later():
    waves = Waves()
    part = Table(waves, np.arange(N)).take(slice(100, 130))
    assert (part.n_samples, part.labels.tolist()) == (30, list(range(100, 130)))
    assert waves.reads == []
    assert np.array_equal(part.X, waves.whole()[100:130])
    assert waves.reads == [30]


def test_names_may_be_given_to_a_source():
    block = Block(as_source(np.eye(2)), names=("a", "b"))
    assert Shards.from_list([block]).column_label(1) == "column 1 ('b')"


LARGE = np.where(np.arange(40).reshape(10, 4) == 22, 2**53 + 1, 7)


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (np.asarray, "row 5 of the data, column 2"),
        (lambda X: X.astype(np.uint64), "row 5 of the data, column 2"),
        (scipy.sparse.csr_array, "row 5 of the data, column 2"),
        (torch.asarray, "row 5 of the data, column 2"),
        (lambda X: pd.DataFrame(X).rename(columns=str).assign(more=0.5), r"row 5 of X, column 2 \('2'\)"),
        (lambda X: pd.DataFrame(X).rename(columns=str).astype("Int64"), r"row 5 of X, column 2 \('2'\)"),
        (lambda X: np.ma.array(X, mask=X < 0), "entry 22 of X"),
    ],
    ids=["int64", "uint64", "sparse", "torch", "frame", "nullable", "masked"],
)
def test_whole_numbers_that_float64_does_not_have_are_refused(make, where):
    with pytest.raises(DataError, match=rf"{where},? is 9007199254740993; .* up to 2\^53 = 9007199254740992"):
        Block(as_source(make(LARGE)), np.arange(10)[::-1]).read(slice(2, 8))
    edge = Block(as_source(make(np.minimum(LARGE, 2**53))))
    assert edge.read(slice(5, 6)).max() == 2**53


@pytest.mark.parametrize("method", ["fit", "partial_fit", "transform"])
@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (LARGE, "row 5 of .*, column 2, is 9007199254740993"),
        (np.where(LARGE > 7, 2**70, LARGE.astype(object)), "is 1180591620717411303424; float64"),
        (LARGE * 1j, "Complex data not supported: .* stack its real"),
        (scipy.sparse.csr_array(LARGE * 1j), "Complex data not supported: .* stack its real"),
        (LARGE.view(np.matrix), r"is a numpy\.matrix"),
        (LARGE.astype("M8[s]"), "dates or times"),
        (LARGE.astype(str), "convert it with"),
    ],
    ids=["large", "objects", "complex", "complex sparse", "matrix", "dates", "text"],
)
def test_samples_that_are_not_real_numbers_of_float64_are_refused_with_a_fix(method, samples, message):
    if method == "partial_fit":
        pca = StreamingPCA(1, n_nodes=2)
    else:
        pca = DecentralizedPCA(1, n_nodes=2).fit(np.random.default_rng(0).standard_normal((10, 4)))
    with pytest.raises(DataError, match=message):
        getattr(pca, method)(samples)


class TestErrors:
    def test_a_row_that_is_not_finite_is_named(self):
        @dataclass(frozen=True)
        class Torn(Waves):
            def rows(self, numbers):
                return np.where(numbers == 4000, np.nan, numbers)[:, np.newaxis] * np.ones(D)

        with pytest.raises(DataError, match=r"node 1, row 1500 \(row 4000 of the data\), column 0 \('t0'\) is NaN"):
            DecentralizedPCA(2, n_nodes=2, split="contiguous", topology="complete").fit(Torn())

    def test_a_source_that_gives_other_rows_than_asked_for(self):
        @dataclass(frozen=True)
        class Short(Waves):
            def read(self, rows):
                return super().read(rows)[1:]

        with pytest.raises(DataError, match=r"Short\.read returned shape \(1023, 256\) instead of \(1024, 256\)"):
            DecentralizedPCA(2, topology="complete", n_nodes=1).fit(Short())

    @pytest.mark.parametrize(("shape", "message"), [((3,), "must be 2-D"), ((3, 0), "has no columns")])
    def test_shape(self, shape, message):
        with pytest.raises(DataError, match=message):
            as_source(Waves(shape))

    def test_transform_of_other_columns(self):
        pca = DecentralizedPCA(2, topology="complete").fit(Waves())
        with pytest.raises(DataError, match="the source has 7 columns, but the model has 256; make them equal"):
            pca.transform(as_source(np.ones((3, 7))))
        with pytest.raises(DataError, match="the source lacks column 't255', which the model has"):
            pca.transform(Block(Waves(), names=(*Waves.feature_names[:-1], "other")))
        turned = pca.transform(Block(Waves(), names=Waves.feature_names[::-1]))
        assert np.allclose(turned, pca.transform(as_source(Waves().read(slice(0, N))[:, ::-1])))
        holed = np.ones((3, D))
        holed[1, 2] = np.inf
        with pytest.raises(DataError, match=r"the source: row 1, column 2 \('t2'\) is inf; drop the row"):
            pca.transform(as_source(holed))
        with pytest.raises(InputError, match="supports only fit and transform"):
            pca.score(Waves())


def test_sparse_entries_in_any_order_are_not_copied_and_entries_stored_twice_are_added_up():
    rng = np.random.default_rng(0)
    # More rows than are looked through at a time; the entry that is stored twice is in the last one.
    dense = rng.standard_normal((600, 7)) * (rng.random((600, 7)) < 0.5)
    dense[-1, 3] = 2.0
    ordered = scipy.sparse.csr_array(dense)
    backwards = np.concatenate([np.arange(e - 1, s - 1, -1) for s, e in pairwise(ordered.indptr)])
    shape = {"shape": ordered.shape}
    unsorted = scipy.sparse.csr_array((ordered.data[backwards], ordered.indices[backwards], ordered.indptr), **shape)
    source = as_source(unsorted)
    assert np.shares_memory(source.matrix.data, unsorted.data)
    run = source.read(slice(100, 300))
    assert np.array_equal(run.toarray(), dense[100:300])
    assert all(np.shares_memory(getattr(run, part), getattr(unsorted, part)) for part in ("data", "indices"))
    halves = np.where(np.arange(unsorted.nnz) == unsorted.nnz - 1, 0.5, 1.0) * unsorted.data
    twice = scipy.sparse.csr_array(
        (
            np.append(halves, unsorted.data[-1] - halves[-1]),
            np.append(unsorted.indices, unsorted.indices[-1]),
            np.append(unsorted.indptr[:-1], unsorted.nnz + 1),
        ),
        **shape,
    )
    added = as_source(twice)
    assert twice.nnz == unsorted.nnz + 1 == added.matrix.nnz + 1
    first, second = (DecentralizedPCA(2, n_nodes=3, random_state=0).fit(X).components_ for X in (unsorted, twice))
    np.testing.assert_allclose(first, second, atol=1e-12)
    assert largest_angle(first.T[np.newaxis], np.linalg.svd(dense - dense.mean(axis=0))[2][:2].T) < 1e-6
