from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from eigenmesh.data import READERS, ContiguousSplit, LabelSplit, Shards, read_table
from eigenmesh.data import table as files
from eigenmesh.errors import DataError, InputError, UnreadableFileError

X = np.random.default_rng(0).standard_normal((6, 3))
KINDS = rf"eigenmesh reads {re.escape(', '.join(READERS))} files"


def test_npy_is_mapped(tmp_path):
    np.save(tmp_path / "a.npy", X)
    table = read_table(tmp_path / "a.npy")
    assert not table.source.in_memory
    assert np.array_equal(table.X, X)
    assert (table.name, table.labels, table.feature_names) == ("a", None, None)


@pytest.mark.parametrize("samples", ["X", "data", "images", "anything"])
@pytest.mark.parametrize("labels", ["y", "labels", "label", "site", "target"])
def test_npz(tmp_path, samples, labels):
    arrays = {samples: X, labels: np.arange(6), "feature_names": np.array(list("abc")), "other": np.zeros(4)}
    np.savez(tmp_path / "a.npz", **arrays)
    table = read_table(str(tmp_path / "a.npz"))
    assert np.array_equal(table.X, X)
    assert table.labels.tolist() == list(range(6))
    assert table.feature_names == ("a", "b", "c")


def test_npz_labels_must_match_and_may_be_looked_up(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=np.zeros(5), site=[1, 0, 1, 0, 0, 2], site_names=["p", "q", "r"])
    assert read_table(tmp_path / "a.npz").labels.tolist() == ["q", "p", "q", "p", "p", "r"]
    np.savez(tmp_path / "b.npz", X=X, y=np.zeros(5), feature_names=["only one"])
    table = read_table(tmp_path / "b.npz")
    assert table.labels is None
    assert table.feature_names is None


def test_an_array_is_not_a_file():
    with pytest.raises(InputError, match="a data frame or AnnData, not a ndarray in memory; give its matrix to"):
        read_table(X)


@pytest.mark.parametrize("make", [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_matrix])
def test_sparse_npz(tmp_path, make):
    scipy.sparse.save_npz(tmp_path / "a.npz", make(X))
    table = read_table(tmp_path / "a.npz")
    assert isinstance(table.X, scipy.sparse.csr_array)
    assert np.array_equal(table.X.toarray(), X)


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("gap", [None, "", "NA", "nan", "N/A"])
def test_csv(tmp_path, header, gap):
    frame = pd.DataFrame(X, columns=["a", "b, quoted", "c"])
    expected = X.copy()
    if gap is not None:
        frame.iloc[2, 1] = expected[2, 1] = np.nan
    frame.to_csv(tmp_path / "a.csv", index=False, header=header, na_rep=gap or "")
    table = read_table(tmp_path / "a.csv")
    assert np.array_equal(table.X, expected, equal_nan=True)
    assert table.feature_names == (("a", "b, quoted", "c") if header else None)


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("labels", [["u", "v", "u", "w", "w", "w"], [3, 1, 2, 2, 2, 1], [0.5, 1, 1, 1, 2, 2]])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_label_column(tmp_path, suffix, labels, gap):
    frame = pd.DataFrame(X, columns=list("abc"))
    frame.insert(1, "kind", labels)
    expected = X.copy()
    if gap:
        frame.iloc[2, 0] = expected[2, 0] = np.nan
    path = tmp_path / f"a{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    for label_column in ("kind", 1):
        table = read_table(path, label_column=label_column)
        assert np.array_equal(table.X, expected, equal_nan=True)
        assert table.labels.tolist() == labels
        assert table.feature_names == ("a", "b", "c")


def test_csv_oddities(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbf\r\n"a", b\r\n1, 2\r\n\r\n"3",4e-1\r\n')
    table = read_table(path)
    assert table.X.tolist() == [[1, 2], [3, 0.4]]
    assert table.feature_names == ("a", "b")
    path.write_text("1\n2\n")
    assert read_table(path).X.tolist() == [[1], [2]]
    path.write_text("5,6,7")
    assert read_table(path).X.tolist() == [[5, 6, 7]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_parquet(tmp_path, dtype):
    frame = pd.DataFrame((X > 0).astype(dtype), columns=list("abc"), index=np.arange(6) * 2)
    frame.to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert np.array_equal(table.X, X > 0)
    assert table.X.dtype == ("float32" if dtype == "float32" else "float64")
    assert table.feature_names == ("a", "b", "c")


def test_parquet_nulls_are_missing(tmp_path):
    frame = pd.DataFrame(
        {"a": pd.array([1, None, 3], dtype="Int64"), "b": pd.array([True, False, None], dtype="boolean")}
    )
    frame.to_parquet(tmp_path / "a.parquet")
    expected = [[1, 1], [np.nan, 0], [3, np.nan]]
    assert np.array_equal(read_table(tmp_path / "a.parquet").X, expected, equal_nan=True)


class TestErrors:
    def check(self, message, path, error=UnreadableFileError, **options):
        with pytest.raises(error, match=message):
            read_table(path, **options)

    def test_missing_and_unknown(self, tmp_path):
        self.check(rf"none\.npy does not exist; {KINDS}", tmp_path / "none.npy")
        self.check(f"is a folder, not a file; {KINDS}", tmp_path)
        (tmp_path / "a.ods").write_text("")
        self.check(rf"a\.ods has the unknown suffix '\.ods'; {KINDS}", tmp_path / "a.ods")

    @pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
    @pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 nonsense", b"\x93NUMPY\x01\x00 nonsense"])
    def test_broken(self, tmp_path, suffix, content):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(content)
        self.check(rf"a\{suffix} cannot be read as \{suffix} .*{KINDS}", path)

    @pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
    def test_cut_short_or_altered(self, tmp_path, suffix):
        path = tmp_path / f"a{suffix}"
        wide = np.random.default_rng(0).standard_normal((50, 4))
        if suffix == ".npy":
            np.save(path, wide)
        elif suffix == ".npz":
            np.savez_compressed(path, X=wide)
        else:
            pd.DataFrame(wide, columns=list("abcd")).to_parquet(path)
        whole = path.read_bytes()
        rng = np.random.default_rng(1)
        path.write_bytes(whole[: len(whole) // 2])
        self.check("cannot be read", path)
        for _ in range(100):
            altered = bytearray(whole)
            for position in rng.integers(0, len(whole), 8):
                altered[position] = rng.integers(256)
            path.write_bytes(altered)
            try:
                read_table(path)
            except (UnreadableFileError, DataError):
                continue

    def test_pickles_are_not_opened(self, tmp_path):
        np.save(tmp_path / "a.npy", np.array([[{}]]), allow_pickle=True)
        self.check("cannot be read as .npy", tmp_path / "a.npy")
        np.savez(tmp_path / "a.npz", X=np.array([[{}]]))
        self.check("cannot be read as .npz", tmp_path / "a.npz")

    def test_npz_without_samples(self, tmp_path):
        np.savez(tmp_path / "a.npz", p=X, q=X)
        self.check("needs one 2-D array, or one of the names X, data, images; it has p, q", tmp_path / "a.npz")

    def test_csv(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text("a,b\n1,2\n3,word\n")
        self.check(r"column 'b' of .*a\.csv is not numeric: 'word' in line 3; give na_values=", path, DataError)
        path.write_text("1,2\n3,12_34\n")
        self.check("column 1 of .* is not numeric: '12_34' in line 2", path, DataError)
        path.write_text("a,b\n1,2\n3\n")
        self.check(r"line 3 of .*a\.csv has 1 fields, expected 2; repair", path)
        path.write_text("\n\n")
        self.check(r"a\.csv is empty", path)
        path.write_bytes(b"\xff,1\n")
        self.check(r"is not UTF-8 text \(byte 0xff\); save it as UTF-8, or give its encoding", path)

    def test_label_column(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text("a,b\n1,2\n")
        self.check("has no column 'c'; its columns are a, b", path, DataError, label_column="c")
        self.check("no column 2; give one of 0..1", path, DataError, label_column=2)
        path.write_text("1,2\n")
        self.check("has no names of columns, so no column 'a'", path, DataError, label_column="a")
        pd.DataFrame(X, columns=list("abc")).to_parquet(tmp_path / "a.parquet")
        self.check("has no column 'd'", tmp_path / "a.parquet", DataError, label_column="d")
        self.check("no column 3", tmp_path / "a.parquet", DataError, label_column=3)
        np.save(tmp_path / "a.npy", X)
        self.check("has no names of columns, so no column 'y'", tmp_path / "a.npy", InputError, label_column="y")
        assert read_table(tmp_path / "a.npy", label_column=1).labels.tolist() == X[:, 1].tolist()

    def test_parquet_words(self, tmp_path):
        pd.DataFrame({"a": [1.0], "b": ["x"]}).to_parquet(tmp_path / "a.parquet")
        self.check(
            r"a\.parquet has columns that are not numbers: 'b' \(String\); give drop=",
            tmp_path / "a.parquet",
            DataError,
        )


class TestFromFiles:
    def test_one_file_is_split(self, tmp_path):
        frame = pd.DataFrame(X, columns=list("abc")).assign(kind=list("pqpqpp"))
        frame.to_csv(tmp_path / "a.csv", index=False)
        shards = Shards.from_files(tmp_path / "a.csv", 2, LabelSplit(), label_column="kind")
        assert shards.feature_names == ("a", "b", "c")
        assert np.array_equal(shards.blocks[1].read(slice(0, 2)), X[[1, 3]])

    def test_several_files_are_a_node_each(self, tmp_path):
        paths = []
        for name, rows in (("oslo", slice(0, 2)), ("bergen", slice(2, 6))):
            pd.DataFrame(X[rows], columns=list("abc")).to_csv(tmp_path / f"{name}.csv", index=False)
            paths.append(tmp_path / f"{name}.csv")
        np.save(tmp_path / "bodo.npy", X)
        shards = Shards.from_files([*paths, tmp_path / "bodo.npy"])
        assert shards.node_names == ("oslo", "bergen", "bodo")
        assert shards.feature_names == ("a", "b", "c")
        assert np.array_equal(shards.blocks[1].read(slice(0, 4)), X[2:])
        assert [block.in_memory for block in shards.blocks] == [True, True, False]

    def test_names_must_agree(self, tmp_path):
        for name, columns in (("p", "abc"), ("q", "abd")):
            pd.DataFrame(X, columns=list(columns)).to_parquet(tmp_path / f"{name}.parquet")
        paths = [tmp_path / "p.parquet", tmp_path / "q.parquet"]
        with pytest.raises(DataError, match=r"q\.parquet lacks column 'c', which .*p\.parquet has; leave it out, col"):
            Shards.from_files(paths)

    def test_widths_must_agree(self, tmp_path):
        np.save(tmp_path / "p.npy", X)
        np.save(tmp_path / "q.npy", X[:, :2])
        with pytest.raises(DataError, match=r"unequal numbers of columns: node 1 \(q\) has 2, while node 0 \(p\)"):
            Shards.from_files([tmp_path / "p.npy", tmp_path / "q.npy"])

    def test_arguments(self, tmp_path):
        np.save(tmp_path / "a.npy", X)
        with pytest.raises(InputError, match="one file; give the number of nodes"):
            Shards.from_files(tmp_path / "a.npy")
        with pytest.raises(InputError, match=r"2 files make 2 nodes; leave out n_nodes \(got 3\)"):
            Shards.from_files([tmp_path / "a.npy"] * 2, 3)
        with pytest.raises(InputError, match="and split"):
            Shards.from_files([tmp_path / "a.npy"] * 2, split=ContiguousSplit())
        with pytest.raises(InputError, match="no files"):
            Shards.from_files([])


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("n_shares", [1, 3, 7])
def test_shares_are_disjoint_runs_that_make_the_whole(tmp_path, suffix, n_shares):
    X = np.random.default_rng(0).standard_normal((23, 4))
    path = tmp_path / f"data{suffix}"
    match suffix:
        case ".npy":
            np.save(path, X)
        case ".npz":
            np.savez(path, X=X)
        case ".csv":
            np.savetxt(path, X, delimiter=",", fmt="%.17g")
        case _:
            parquet = pytest.importorskip("pyarrow.parquet")
            columns = {f"c{column}": X[:, column] for column in range(4)}
            # Row groups of five, so that shares begin and end inside them.
            parquet.write_table(pytest.importorskip("pyarrow").table(columns), path, row_group_size=5)
    shares = [read_table(path, share=(which, n_shares)).X for which in range(n_shares)]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert (np.vstack(shares) == X).all()


def test_a_share_of_a_parquet_file_reads_its_row_groups_alone(tmp_path, monkeypatch):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"a": np.arange(100.0) / 2}), tmp_path / "a.parquet", row_group_size=10)
    read, original = [], parquet.ParquetFile.read_row_groups
    monkeypatch.setattr(
        parquet.ParquetFile,
        "read_row_groups",
        lambda self, groups, *more, **settings: read.extend(groups) or original(self, groups, *more, **settings),
    )
    assert read_table(tmp_path / "a.parquet", share=(1, 4)).X[:, 0].tolist() == [row / 2 for row in range(25, 50)]
    assert read == [2, 3, 4]


def test_more_shares_than_rows_are_refused(tmp_path):
    np.save(tmp_path / "few.npy", np.ones((3, 2)))
    with pytest.raises(DataError, match="more than the 3 samples"):
        read_table(tmp_path / "few.npy", share=(0, 4))


def test_a_folder_of_parquet_files_is_one_table(tmp_path, monkeypatch):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    samples = np.random.default_rng(0).standard_normal((70, 2))
    folder = tmp_path / "cohort.parquet"
    for name, rows in (("part-0", slice(0, 30)), ("more/part-1", slice(30, 70))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        who = [f"P{row}" for row in range(70)][rows]
        table = arrow.table({"who": who, "a": samples[rows, 0], "b": samples[rows, 1]})
        parquet.write_table(table, folder / f"{name}.parquet", row_group_size=8)
    (folder / "_SUCCESS.parquet").write_text("no table")
    monkeypatch.setattr(files, "HELD_BYTES", 0)
    table = read_table(folder, id_column="who")
    order = [*range(30, 70), *range(30)]
    assert not table.source.in_memory
    assert np.array_equal(table.X, samples[order])
    assert table.ids.tolist() == [f"P{row}" for row in order]
    some = np.array([69, 0, 41, 40, 39])
    assert np.array_equal(table.source.read(some), samples[order][some])
    assert np.array_equal(read_table(folder, id_column="who", share=(1, 2)).X, samples[order][35:])
    parquet.write_table(arrow.table({"a": [1.0], "who": ["x"], "b": [1.0]}), folder / "z.parquet")
    with pytest.raises(DataError, match=r"z\.parquet has other columns, or types of columns, than .*part-1\.parquet"):
        read_table(folder, id_column="who")
    (tmp_path / "empty.parquet").mkdir()
    with pytest.raises(UnreadableFileError, match=r"folder without \.parquet files"):
        read_table(tmp_path / "empty.parquet")
    with pytest.raises(UnreadableFileError, match="is a folder, not a file"):
        read_table(tmp_path)
