"""Tables as people have them: each is read, or refused by a message that names the cure."""

from __future__ import annotations

import gzip
import warnings

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.pipeline import make_pipeline

from eigenmesh import DecentralizedPCA
from eigenmesh.data import Shards, TableOptions, read_table
from eigenmesh.data.source import MatrixSource
from eigenmesh.errors import DataError, DataWarning, InputError, UnknownNameError, UnreadableFileError

AGE_BMI = [[41, 24.5], [52, 31.25], [38, 22.0]]


@pytest.fixture
def table(tmp_path):
    """Write a text file as it is, and give its path."""

    def write(text: str | bytes, name: str = "a.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


PLAIN = "age,bmi\n41,24.5\n52,31.25\n38,22.0\n"
LATIN = {"encoding": "latin-1"}
MESSY = {
    "plain": (PLAIN, {}),
    "id of text": ("id,age,bmi\nP1,41,24.5\nP2,52,31.25\nP3,38,22.0\n", {"id_column": "id"}),
    "id that is dropped": ("age,id,bmi\n41,P1,24.5\n52,P2,31.25\n38,P3,22.0\n", {"drop": "id"}),
    "index without a name": (",age,bmi\n0,41,24.5\n1,52,31.25\n2,38,22.0\n", {"drop": 0}),
    "chosen in another order": ("bmi,name,age\n24.5,x,41\n31.25,y,52\n22.0,z,38\n", {"columns": ["age", "bmi"]}),
    "semicolon": (PLAIN.replace(",", ";"), {}),
    "semicolon and decimal comma": ("age;bmi\n41;24,5\n52;31,25\n38;22,0\n", {}),
    "decimal comma that is said": ("age;bmi\n41;24,5\n52;31,25\n38;22\n", {"decimal": ","}),
    "tab and decimal comma": ("age\tbmi\n41\t24,5\n52\t31,25\n38\t22\n", {}),
    "quoted decimal comma": ('age,bmi\n"41","24,5"\n"52","31,25"\n"38","22,0"\n', {}),
    "bar": (PLAIN.replace(",", "|"), {}),
    "blank": (PLAIN.replace(",", " "), {}),
    "blanks that align columns": (" age   bmi \n  41 24.5  \n  52 31.25\n   38  22.0\n", {}),
    "blanks and quotes": ('"id" "age" "bmi"\n"P 1" 41 24.5\n"P 2" 52 31.25\n"P 3" 38 22\n', {"id_column": "id"}),
    "blanks and decimal comma": (PLAIN.replace(",", " ").replace(".", ","), {}),
    "blanks in names": ("age,the bmi,a note\n41,24.5,x y\n52,31.25,x y\n38,22,x y\n", {"drop": "a note"}),
    "odd delimiter that is said": (PLAIN.replace(",", ":"), {"delimiter": ":"}),
    "byte-order mark": (b"\xef\xbb\xbf" + PLAIN.encode(), {}),
    "byte-order mark and semicolon": (b"\xef\xbb\xbf" + PLAIN.replace(",", ";").encode(), {}),
    "latin-1": ("age,bmi,kjønn\n41,24.5,m\n52,31.25,f\n38,22,f\n".encode("latin-1"), LATIN | {"drop": "kjønn"}),
    "lines of Windows": (PLAIN.replace("\n", "\r\n"), {}),
    "no end of line": (PLAIN.rstrip("\n"), {}),
    "blank lines": (PLAIN.replace("\n", "\n\n"), {}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "options"), MESSY.values(), ids=MESSY)
@pytest.mark.parametrize("packed", [False, True], ids=["", "gzip"])
def test_messy_files_are_read(table, text, options, packed):
    content = text if isinstance(text, bytes) else text.encode()
    path = table(gzip.compress(content), "a.csv.gz") if packed else table(content)
    read = read_table(path, **options)
    assert read.X.tolist() == AGE_BMI
    assert read.feature_names[1].endswith("bmi")
    assert read.name == "a"


def test_a_name_of_two_words_does_not_cut_a_single_column(table):
    read = read_table(table("the age\n41\n52\n38\n"))
    assert read.feature_names == ("the age",)
    assert read.X.tolist() == [[41], [52], [38]]


def test_a_header_alone_is_a_table_without_samples_and_nothing_else_is_said(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = read_table(table("age,bmi\n"))
    assert read.X.shape == (0, 2)
    assert read.feature_names == ("age", "bmi")


VALUES = "0.5,2.25,1.5\n1.5,0.75,2.5\n0,0,0.25\n"
LIKE_NAMES = {
    "years": "2001,2002,2003\n" + VALUES,
    "years above whole numbers": "2001,2002,2003\n5,6,8\n7,3,1\n0,0,0\n",
    "0, 1, 2": "0,1,2\n5,6,8\n7,3,1\n",
    "index of pandas": ",0,1,2\n0,5.5,6,8\n1,7,3.5,1\n",
    "falling": "30,20,10\n" + VALUES,
    "uneven wavelengths": "400.1,401.3,402.2,403.7,405.1,406,407.2,409\n" + 2 * "1.5,1,2,1,2.5,1,3,3\n",
    "numbers of probes": "1053,117,121\n" + VALUES,
    "decimal commas": "400,1;400,2;400,3\n1,5;2,5;1\n2,25;2,5;1,5\n",
}


@pytest.mark.parametrize("text", LIKE_NAMES.values(), ids=LIKE_NAMES)
def test_a_first_line_that_looks_like_names_is_a_sample_and_that_is_said(table, text):
    path, lines = table(text), text.count("\n")
    with pytest.warns(
        DataWarning, match=r'line 1 of .*a\.csv has the numbers .* counts as a sample; give header="yes"'
    ):
        assert read_table(path).n_samples == lines
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table(path, header="no").n_samples == lines
        first = text.splitlines()[0].split(";" if ";" in text else ",")
        named = read_table(path, header="yes", drop=first[0])
    assert named.n_samples == lines - 1
    assert list(named.feature_names) == first[1:]


SAMPLES = {
    "whole": "5,6,8\n7,3,1\n",
    "in order, as others are": "1.5,2.5,4\n1,2.5,7\n2,4,8\n",
    "few, in order by chance": "1.5,2.5,4\n1,0.5,7\n",
    "equal numbers": "0,0,0\n1.5,2.5,1\n",
    "two columns": "1,2\n1.5,2.5\n",
}


@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
def test_samples_are_not_taken_for_names(table, text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table(table(text)).feature_names is None


def test_a_sample_with_words_that_counts_as_a_header_is_a_warning(table):
    path = table("5.1,3.5,1.4,setosa\n4.9,3,1.2,setosa\n6.3,3.3,6,virginica\n")
    said = r"line 1 .* numbers 5\.1, 3\.5, 1\.4, but counts as a header, because 'setosa' .*; give header=\"no\" if"
    with pytest.warns(DataWarning, match=said):
        assert read_table(path, label_column=3).n_samples == 2
    read = read_table(path, label_column=3, header="no")
    assert read.labels.tolist() == ["setosa", "setosa", "virginica"]
    assert read.X[0].tolist() == [5.1, 3.5, 1.4]


def test_a_header_of_years_beside_names_of_samples_is_a_header(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = read_table(table("town,2001,2002,2003\noslo,1.5,2,3\nbodo,2,3.5,1\n"), id_column="town")
    assert read.feature_names == ("2001", "2002", "2003")


def test_columns_whose_names_are_numbers_are_found_by_them(table):
    years = table("2001,2002,2003\n" + VALUES)
    assert read_table(years, header="yes", drop=2002).feature_names == ("2001", "2003")
    assert read_table(years, header="yes", columns=["2003", 0]).feature_names == ("2003", "2001")
    with pytest.raises(DataError, match=r"has no column 2009; give one of 0\.\.2"):
        read_table(years, header="yes", drop=2009)
    with pytest.raises(DataError, match=r"has column 2 \('3'\), but also a column called 2; give names that are not"):
        read_table(table("1,2,3\n" + VALUES), header="yes", drop=2)


WITH_SEX = "id;sex;bmi\nP1;f;24,5\nP2;m;31,25\nP3;;22\n"
REFUSED = {
    "id": ("id,age\nP1,41\nP2,52\n", {}, DataError, r"column 'id' .* 'P1' in line 2; give id_column=\"id\""),
    "unknown level": (WITH_SEX, {"drop": "id", "categories": {"sex": ["f", "x"]}}, DataError,
                      r"line 3 of .*a\.csv, column 1 \('sex'\), is 'm', not one of f, x; add the level at all sites"),
    "id twice": ("id,a\nP1,1\nP2,2\nP1,3\n", {"id_column": "id"}, DataError,
                 r"line 4 of .*a\.csv, column 0 \('id'\), is 'P1', as line 2 .* is; give every sample its own id"),
    "no such column": (PLAIN, {"drop": "ages"}, DataError, r"has no column 'ages'; its columns are age, bmi"),
    "comma late": ("a;b\n" + "1;2\n" * 60 + "1;2,5\n", {}, DataError, r"'2,5' in line 62; .* give decimal=','"),
    "point beside commas": ("a;b\n1,5;2\n1.234;2\n", {"decimal": ","}, DataError, r"'1\.234' in line 3; .*='\.'"),
    "latin-1": ("kjønn,a\n1,2\n".encode("latin-1"), {}, UnreadableFileError, r"not UTF-8 .*encoding=.latin-1."),
    "all lines short": ("a,b\n1\n2\n", {}, UnreadableFileError, r"line 2 of .* has 1 fields, expected 2"),
    "short line after a blank": ("a,b\n\n1,2\n3\n", {}, UnreadableFileError, r"line 4 of .* has 1 fields, expected 2"),
    "names twice": ("a,a,b\n1,2,3\n", {"drop": "a"}, DataError, r"has 2 columns 'a' \(0, 1\); rename all but one"),
    "nothing left": (PLAIN, {"drop": ["age", "bmi"]}, DataError, "no columns left"),
    "option": (PLAIN, {"id_colum": "age"}, UnknownNameError, "Did you mean 'id_column'"),
    "one level": (PLAIN, {"categories": {"age": ["41"]}}, InputError, "two levels or more"),
    "both commas": (PLAIN, {"delimiter": ",", "decimal": ","}, InputError, "both ','"),
    "header": (PLAIN, {"header": True}, InputError, "header = True must be one of 'auto', 'yes', 'no'"),
    "header that is not there": (PLAIN, {"header": "no"}, DataError,
                                r"2 columns .* 0 \('age' in line 1\).*header=.yes."),
    "encoding": (PLAIN, {"encoding": "utf-9"}, InputError, "'utf-9' is not known"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "options", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_with_the_cure(table, text, options, kind, message):
    with pytest.raises(kind, match=message):
        read_table(table(text), **options)


def _dask_frame(frame, folder):
    renamed = dd.from_pandas(frame.set_axis(["a", "b", "x"], axis=1), npartitions=2)
    renamed.columns = list(frame.columns)
    return renamed


def _arrow(frame):
    return pa.Table.from_arrays([pa.array(column) for column in frame.to_numpy().T], names=list(frame.columns))


def _file(write):
    """A function that writes a frame to a file, and gives a list with its path."""

    def written(frame, folder):
        write(frame, folder / "t")
        return [next(folder.glob("t*")), next(folder.glob("t*"))]

    return written


SAME_NAMES = {
    "csv": _file(lambda frame, path: frame.to_csv(path.with_suffix(".csv"), index=False)),
    "parquet": _file(lambda frame, path: pq.write_table(_arrow(frame), path.with_suffix(".parquet"))),
    "npz": _file(lambda frame, path: np.savez(path, X=frame.to_numpy(), feature_names=list(frame.columns))),
    "pandas": lambda frame, folder: frame,
    "parts of pandas": lambda frame, folder: [frame, frame],
    "pyarrow": lambda frame, folder: _arrow(frame),
    "dask": _dask_frame,
    "source": lambda frame, folder: MatrixSource(frame.to_numpy(), tuple(frame.columns)),
}


@pytest.mark.filterwarnings("ignore:.*is a copy of|.*are the same file")
@pytest.mark.parametrize("make", SAME_NAMES.values(), ids=SAME_NAMES)
def test_two_columns_of_one_name_are_refused_in_every_format(make, tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(12, 3)), columns=["a", "b", "b"])
    with pytest.raises(DataError, match=r"(?s)column.*'b'.*rename all but one|rename all but one.*'b' 2 times"):
        DecentralizedPCA(1).fit(make(frame, tmp_path))


def test_one_of_two_columns_of_one_name_can_be_left_out_by_its_number(table):
    read = read_table(table("a,b,b\n1,2,3\n4,5,6\n"), drop=1)
    assert read.feature_names == ("a", "b")
    assert read.X.tolist() == [[1, 3], [4, 6]]


def test_a_column_that_is_asked_for_twice_is_refused(table):
    with pytest.raises(DataError, match="column 'age' more than once; rename all but one"):
        read_table(table(PLAIN), columns=["age", "age"])


def test_nodes_with_different_columns_must_not_share_a_name(tmp_path):
    parts = {"lab": pd.DataFrame({"age": [1.0, 2, 4], "bmi": [3.0, 1, 2]}), "ward": pd.DataFrame({"age": [1.0, 2, 4]})}
    said = r"node 0 \(lab\) and node 1 \(ward\) both have a column 'age'; rename it at one of them"
    with pytest.raises(DataError, match=said):
        DecentralizedPCA(1, partition="features").fit(parts)


def test_categories_become_columns_of_0_and_1_and_missing_ones_stay_missing(table):
    options = {"id_column": "id", "categories": {"sex": ["m", "f"]}}
    expected = [[0, 1, 24.5], [1, 0, 31.25], [np.nan, np.nan, 22]]
    frame = pd.DataFrame({"id": ["P1", "P2", "P3"], "sex": ["f", "m", None], "bmi": [24.5, 31.25, 22]})
    arrow = pa.Table.from_pandas(frame)
    frames = [frame, arrow, pl.from_arrow(arrow)]
    for given in (table(WITH_SEX), *frames):
        read = read_table(given, **options)
        assert np.array_equal(read.X, expected, equal_nan=True)
        assert read.feature_names == ("sex=m", "sex=f", "bmi")
        assert read.ids.tolist() == ["P1", "P2", "P3"]


def test_a_missing_entry_is_named_by_line_and_column_of_its_file(table):
    table("id,age,bmi\nP1,41,24.5\n\nP2,52,\n", "a.csv")
    path = table("id,age,bmi\nP3,41,24.5\nP4,33,20.5\n", "b.csv")
    shards = Shards.from_files(sorted(path.parent.glob("*.csv")), drop="id")
    with pytest.raises(DataError, match=r"node 0 \(a\), line 4 of .*a\.csv, column 2 \('bmi'\), is NaN; .*missing"):
        DecentralizedPCA(1).fit(shards)


def test_ids_keep_their_zeros_and_labels_are_numbers_where_they_can_be(table):
    read = read_table(table("id,group,x\n007,1,0.5\n012,2,1.5\n"), id_column="id", label_column="group")
    assert read.ids.tolist() == ["007", "012"]
    assert read.labels.tolist() == [1, 2]


class TestSeveralFiles:
    def test_columns_are_aligned_by_name(self, table):
        paths = [table("a,b,c\n1,2,3\n4,5,7\n", "p.csv"), table("c;a;b\n30,5;10;20\n", "q.csv")]
        shards = Shards.from_files(paths)
        assert shards.feature_names == ("a", "b", "c")
        assert shards.blocks[1].read(slice(0, 1)).tolist() == [[10, 20, 30.5]]

    def test_a_missing_and_an_additional_column_are_named(self, table):
        paths = [table("a,b,c\n1,2,3\n", "p.csv"), table("c,a\n3,1\n", "q.csv")]
        with pytest.raises(
            DataError, match=r"q\.csv lacks column 'b', which .*p\.csv has; leave it out, columns=\[\"a\", \"c\"\]"
        ):
            Shards.from_files(paths)
        with pytest.raises(
            DataError, match=r"p\.csv has column 'b', which .*q\.csv lacks; leave it out, columns=\[\"c\", \"a\"\]"
        ):
            Shards.from_files(paths[::-1])
        assert Shards.from_files(paths, drop=["b"][:0], columns=["a", "c"]).feature_names == ("a", "c")

    def test_a_pattern_is_one_node_per_file(self, table):
        for number in (2, 10, 1):
            path = table(f"a,b\n{number},2.5\n", f"site-{number}.csv")
        shards = Shards.from_files(path.parent / "site-*.csv")
        assert shards.node_names == ("site-1", "site-10", "site-2")
        with pytest.raises(UnreadableFileError, match=r"no file is called .*none-\*\.csv"):
            Shards.from_files(path.parent / "none-*.csv")

    def test_the_same_file_twice_is_a_warning(self, table):
        path, copy = table(PLAIN), table(PLAIN, "b.csv")
        with pytest.warns(DataWarning, match="are the same file: its samples count twice"):
            Shards.from_files([path, path])
        with pytest.warns(DataWarning, match=r"b\.csv is a copy of .*a\.csv"):
            Shards.from_files([path, copy])

    def test_one_row_is_enough_for_a_node(self, table):
        paths = [table("a,b\n1,2.5\n", "p.csv"), table("a,b\n3,0.5\n", "q.csv")]
        assert DecentralizedPCA(1).fit(Shards.from_files(paths)).n_samples_ == 2


@pytest.mark.parametrize(
    ("column", "values"),
    [("record", range(100, 120)), ("index", range(20)), ("patient_id", np.random.default_rng(0).permutation(20))],
)
def test_what_looks_like_an_id_is_a_warning(table, column, values):
    lines = [f"{value},{value % 7},{value / 7}" for value in values]
    path = table("\n".join([f"{column},a,b", *lines]))
    with pytest.warns(DataWarning, match=f"column '{column}' of .* looks like an id .*drop=.*id_column="):
        read_table(path)
    read_table(path, id_column=column)


def with_code(code, times=4, rest=None, n=60):
    """A column of plausible values, with a code several times among them."""
    rest = np.random.default_rng(0).normal(120, 15, n).round(1) if rest is None else np.asarray(rest, dtype=float)
    column = rest.copy()
    column[:times] = code
    return pd.DataFrame({"bp": column, "other": np.random.default_rng(1).normal(0, 1, len(column))})


SKEWED = np.random.default_rng(3).lognormal(3, 1.5, 60).round()
AGES = np.random.default_rng(2).integers(18, 105, 60)


@pytest.mark.parametrize(
    ("code", "rest"),
    [
        (-9, None),
        (-99, None),
        (-999, None),
        (999, None),
        (9999, None),
        (-9, np.arange(60) % 5),
        (99, np.arange(60) % 2),
    ],
)
def test_a_number_that_looks_like_a_code_for_missing_is_a_warning_whose_advice_works(table, code, rest):
    path = table(with_code(code, rest=rest).to_csv(index=False))
    words = rf"a.csv has {code} in 'bp' \(4 times\), far from all .* give na_values=\[\"{code}\"\]"
    with pytest.warns(DataWarning, match=words):
        read_table(path)
    read = read_table(path, na_values=[str(code)])
    assert np.isnan(read.X).sum(axis=0).tolist() == [4, 0]


def test_two_codes_of_a_column_and_codes_of_several_are_one_warning(table):
    frame = with_code(-99)
    frame.loc[10:14, "bp"] = -999
    frame["weight"] = frame["bp"].where(frame["bp"] > -999, 81.5)
    with pytest.warns(DataWarning) as told:
        read_table(table(frame.to_csv(index=False)))
    (said,) = [str(one.message) for one in told]
    assert "has -999 in 'bp' (5 times), -99 in 'bp' (4 times), 'weight' (4 times), far" in said
    assert 'na_values=["-999", "-99"]' in said


def test_where_no_text_is_read_the_advice_is_nan(tmp_path):
    with_code(-99).to_parquet(tmp_path / "a.parquet")
    with pytest.warns(DataWarning, match="-99 in 'bp' .*; if that stands for a missing entry, write it as NaN"):
        read_table(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("code", "times", "rest"),
    [
        pytest.param(-999, 2, None, id="too rare"),
        pytest.param(99, 4, AGES, id="an age"),
        pytest.param(-9, 4, np.arange(60) - 30, id="in the middle"),
        pytest.param(-9, 4, np.arange(60) - 8, id="at the end"),
        pytest.param(99, 4, SKEWED, id="within a long tail"),
        pytest.param(999, 30, np.arange(60) * 16, id="a limit of the instrument"),
        pytest.param(-99, 60, None, id="nothing else"),
        pytest.param(-50, 4, None, id="no code"),
        pytest.param(-9, 4, np.tile([0.0, 9.0], 30), id="a step like the others"),
    ],
)
def test_numbers_that_may_be_what_they_are_are_no_warning(table, code, times, rest):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        read_table(table(with_code(code, times, rest).to_csv(index=False)))


def test_one_column_with_almost_all_variance_and_constant_ones_are_warnings(table):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.normal(0, 1e5, 50), "age": rng.normal(40, 9, 50), "site": 1})
    path = table(frame.to_csv(index=False))
    with pytest.warns(DataWarning) as told:
        DecentralizedPCA(1).fit(Shards.from_files(path, 2))
    said = [str(warning.message) for warning in told]
    assert "column 0 ('income') has 100.0% of the variance" in said[0]
    assert "scale=True" in said[0]
    assert said[1] == "column 'site' is constant: it adds nothing."
    DecentralizedPCA(1, scale=True).fit(Shards.from_files(path, 2, drop="site"))


@pytest.mark.parametrize(
    "call",
    [
        lambda path, frame: read_table(path),
        lambda path, frame: Shards.from_files([path, path]),
        lambda path, frame: DecentralizedPCA(1).fit(frame),
        lambda path, frame: DecentralizedPCA(1).fit_transform(frame),
        lambda path, frame: make_pipeline(DecentralizedPCA(1, solver="fast-pca", max_rounds=1)).fit(frame),
    ],
    ids=["read_table", "from_files", "fit", "fit_transform", "pipeline"],
)
def test_a_warning_points_to_the_line_that_called(table, call):
    frame = pd.DataFrame({"nr": range(20), "a": np.arange(20) % 7 / 7, "b": np.arange(20) % 3 / 3})
    with pytest.warns() as told:
        call(table(frame.to_csv(index=False)), frame)
    assert {warning.filename for warning in told} == {__file__}


def test_options_are_compared_by_value():
    assert TableOptions.of(drop="a", categories={"b": [1, 2]}) == TableOptions(
        drop=("a",), categories={"b": ("1", "2")}
    )
