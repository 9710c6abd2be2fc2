from __future__ import annotations

import array_api_strict
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from eigenmesh.data import Block, ContiguousSplit, LabelSplit, RandomSplit, Shards, as_source
from eigenmesh.errors import DataError, InputError

X = np.arange(60.0).reshape(12, 5)


def pooled(shards):
    return [np.asarray(block.read(slice(None))) for block in shards.blocks]


@given(
    rows=st.one_of(
        st.slices(12), st.lists(st.integers(0, 11), max_size=15).map(lambda rows: np.array(rows, dtype=int))
    ),
    start=st.integers(0, 15),
    length=st.integers(0, 15),
    chunk=st.integers(1, 6),
    sparse=st.booleans(),
)
def test_a_block_reads_as_the_indexed_matrix_does(rows, start, length, chunk, sparse):
    block = Block(as_source(scipy.sparse.csr_array(X) if sparse else X), rows)
    expected = X[rows]
    dense = (lambda piece: piece.toarray()) if sparse else (lambda piece: piece)
    assert block.n_rows == len(expected)
    assert block.shape == expected.shape
    # The rows of a sparse source count as equally full.
    assert block.n_stored == (round(np.count_nonzero(X) * len(expected) / len(X)) if sparse else None)
    piece = slice(start, start + length)
    assert np.array_equal(dense(block.read(piece)), expected[piece])
    assert np.array_equal(dense(Block(block, piece).read(slice(None, None, -1))), expected[piece][::-1])
    # A piece is valid until the next one is read.
    pieces = [(first, dense(piece).copy()) for first, piece in block.chunks(8 * X.shape[1] * chunk)]
    assert [first for first, _ in pieces] == list(range(0, len(expected), chunk))
    if pieces:
        assert np.array_equal(np.concatenate([piece for _, piece in pieces]), expected)


def test_a_split_copies_nothing(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for source in (X, mapped):
        shards = Shards.from_array(source, 3, RandomSplit(0))
        assert all(np.shares_memory(block.source.matrix, source) for block in shards.blocks)
        assert np.array_equal(np.sort(np.concatenate(pooled(shards)), axis=0), X)
    assert not any(block.in_memory for block in shards.blocks)
    assert not as_source(np.asarray(mapped)[2:]).in_memory
    assert as_source(X).in_memory


def test_from_array_by_label():
    labels = np.array(["b", "a", "a"] * 4)
    a, b = pooled(Shards.from_array(X, 2, LabelSplit(), labels))
    assert np.array_equal(a, X[labels == "a"])
    assert np.array_equal(b, X[labels == "b"])


def test_from_labels_takes_one_node_a_value_in_sorted_order():
    sites = pd.Series(["YRI", "CEU", "TSI"] * 4)
    shards = Shards.from_labels(X, sites)
    assert shards.node_names == ("CEU", "TSI", "YRI")
    assert shards.node_label(1) == "node 1 (TSI)"
    for name, rows in zip(shards.node_names, pooled(shards), strict=True):
        assert np.array_equal(rows, X[sites == name])


def test_from_list_at_a_peer_and_take():
    whole = Shards.from_list([X[:3], X[3:], X[::2]])
    assert whole.ids == (0, 1, 2)
    assert whole.n_nodes == 3
    part = whole.take([2])
    peer = Shards.from_list([X[::2]], ids=[2], n_nodes=3)
    for shards in (part, peer):
        assert (shards.ids, shards.n_nodes) == ((2,), 3)
        assert np.array_equal(pooled(shards)[0], X[::2])
    with pytest.raises(InputError, match=r"nodes \[5\] are not in this process"):
        whole.take([5])


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "bool", "float16"])
def test_samples_stay_as_they_are(dtype):
    shards = Shards.from_array(X.astype(dtype), 2)
    assert sum(block.n_bytes for block in shards.blocks) == X.size * np.dtype(dtype).itemsize


def test_data_frames_bring_their_names():
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["e"] = frame["e"].astype("Int64").mask(frame["e"] == 4)
    shards = Shards.from_array(frame, 2, ContiguousSplit())
    assert shards.feature_names == tuple("abcde")
    assert shards.column_label(4) == "column 4 ('e')"
    expected = X.copy()
    expected[0, 4] = np.nan
    assert np.array_equal(np.concatenate(pooled(shards)), expected, equal_nan=True)
    with pytest.raises(DataError, match=r"not numbers: 'word' \(String\); give drop="):
        Shards.from_array(frame.assign(word="x"), 2)


def test_lists_tensors_and_masked_arrays_are_taken():
    for values in (X.tolist(), torch.asarray(X), array_api_strict.asarray(X)):
        assert np.array_equal(np.concatenate(pooled(Shards.from_array(values, 2, ContiguousSplit()))), X)
    masked = np.ma.masked_equal(X, 7.0)
    assert np.isnan(pooled(Shards.from_list([masked]))[0][1, 2])


def test_sparse_of_any_format_becomes_csr_with_entries_stored_once():
    doubled = scipy.sparse.csr_matrix(([1.0, 2.0], [1, 1], [0, 2]), shape=(1, 3))
    block = Shards.from_list([doubled]).blocks[0]
    assert block.n_stored == 1
    assert block.source.matrix.toarray().tolist() == [[0, 3, 0]]
    assert doubled.nnz == 2
    shards = Shards.from_array(scipy.sparse.coo_array(X), 2, ContiguousSplit())
    assert shards.is_sparse
    assert np.array_equal(shards.blocks[1].read(slice(0, 6)).toarray(), X[6:])


class TestErrors:
    def check(self, message, make, error=DataError):
        with pytest.raises(error, match=message):
            make()

    def test_shape(self):
        self.check(r"X must be 2-D .* got shape \(12,\)", lambda: Shards.from_array(X[:, 0], 2))
        self.check(r"X must be 2-D", lambda: Shards.from_array(scipy.sparse.coo_array(X[0]), 2))
        self.check(r"X at node 1 must be 2-D", lambda: Shards.from_list([X, X[0]]))
        self.check("has no columns", lambda: Shards.from_array(X[:, :0], 2))
        self.check("give all rows the same length", lambda: Shards.from_array([[1, 2], [3]], 1))

    def test_no_rows(self):
        self.check("node 1 has no rows", lambda: Shards.from_list([X, X[:0]]))
        self.check("there are no nodes", lambda: Shards.from_list([]))

    def test_widths(self):
        self.check(
            "unequal numbers of columns: node 1 has 3, while node 0 has 5", lambda: Shards.from_list([X, X[:, :3], X])
        )

    def test_counts(self):
        self.check("n_nodes = 13 is more than the 12 samples", lambda: Shards.from_array(X, 13))
        self.check(r"one entry for each of 12 samples; got \(3,\)", lambda: Shards.from_labels(X, [1, 2, 3]))

    def test_dtypes(self):
        self.check("X is complex", lambda: Shards.from_array(X * 1j, 2))
        self.check("dtype <U.*not numeric", lambda: Shards.from_array(X.astype(str), 2))
        self.check("dtype object.*not numeric", lambda: Shards.from_array(X.astype(object), 2))
        self.check(r"dates or times \(datetime64\[s\]\); convert them", lambda: Shards.from_array(X.astype("M8[s]"), 2))

    def test_wide_floats_and_matrices(self):
        if np.dtype(np.longdouble).itemsize > 8:
            self.check(r"X is float\d+, .*round it with", lambda: Shards.from_array(X.astype(np.longdouble), 2))
        self.check(r"numpy\.matrix, .*convert it with np\.asarray", lambda: Shards.from_array(X.view(np.matrix), 2))

    def test_mixtures(self):
        self.check(r"some nodes are sparse \(node 1\)", lambda: Shards.from_list([X, scipy.sparse.csr_array(X)]))
        frames = [pd.DataFrame(X, columns=list(names)) for names in ("abcde", "abdcf")]
        self.check("node 1 lacks column 'e', which node 0 has", lambda: Shards.from_list(frames))

    def test_ids(self):
        self.check("2 matrices but 1 node ids", lambda: Shards.from_list([X, X], ids=[0]), InputError)
        self.check(r"be distinct and in 0..1; got \[2\]", lambda: Shards.from_list([X], ids=[2], n_nodes=2), InputError)
        self.check("distinct", lambda: Shards.from_list([X, X], ids=[0, 0]), InputError)
        self.check("1 node names for 2 nodes", lambda: Shards.from_list([X, X], node_names=["a"]), InputError)

    def test_rows_of_a_block(self):
        self.check("1-D integer array; got bool", lambda: Block(as_source(X), np.ones(12, dtype=bool)), InputError)
        self.check(r"rows must be in 0..11; got 3..12", lambda: Block(as_source(X), np.array([3, 12])), InputError)
