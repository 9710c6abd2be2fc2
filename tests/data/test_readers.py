"""Readers of text and of workbooks: both parsers of text give the same, and advice works when it is followed."""

from __future__ import annotations

import ast
import datetime
import gzip
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from eigenmesh import DecentralizedPCA
from eigenmesh.cli.app import app
from eigenmesh.cli.messages import GIVEN, field_names, option_names
from eigenmesh.data import read_table
from eigenmesh.data.formats import text
from eigenmesh.data.formats.text_fields import FieldColumns
from eigenmesh.errors import DataError, EigenmeshError, InputError, UnreadableFileError

pytest.importorskip("pyarrow")
openpyxl = pytest.importorskip("openpyxl")
AGE_BMI = [[41, 24.5], [52, 31.25], [38, 22.0]]


@pytest.fixture
def table(tmp_path):
    """Write a file as it is, and give its path."""

    def write(content, name="a.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def write_sheets(path, **sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


@pytest.fixture(params=["fields", "pyarrow"])
def parser(request, monkeypatch):
    """Each of the two parsers of text; small files are read without pyarrow otherwise."""
    monkeypatch.setattr(text, "QUICK_BYTES", 0 if request.param == "pyarrow" else 2**60)
    return request.param


NAN = float("nan")
WRITTEN = {
    "plain": ("age,bmi\n41,24.5\n52,31.25\n38,22.0\n", {}),
    "UTF-16": ("age,bmi\n41,24.5\n52,31.25\n38,22.0\n".encode("utf-16"), {}),
    "UTF-16 of Excel, with tabs": ("age\tbmi\r\n41\t24,5\r\n52\t31,25\r\n38\t22\r\n".encode("utf-16"), {}),
    "UTF-16, big end first": (b"\xfe\xff" + "age,bmi\n41,24.5\n52,31.25\n38,22\n".encode("utf-16-be"), {}),
    "UTF-32": ("age,bmi\n41,24.5\n52,31.25\n38,22.0\n".encode("utf-32"), {}),
    "comments": ("# by hand\nage,bmi\n41,24.5\n# later\n52,31.25\n  # 1,2,3\n38,22.0\n", {"comment": "#"}),
    "comments like rows": ("# by hand\nage,bmi\n41,24.5\n# later\n52,31.25\n  #,2\n38,22.0\n", {"comment": "#"}),
    "comments of two signs": ("//x\nage,bmi\n41,24.5\n52,31.25\n//4,5\n38,22.0\n", {"comment": "//"}),
    "comments of a name": ("n,age,bmi\na,41,24.5\nb,52,31.25\n#c,4,5\nd,38,22.0\n", {"comment": "#", "drop": "n"}),
    "comments of an id": ("n,age,bmi\na,41,24.5\nb,52,31.25\n#c,4,5\nd,38,22\n", {"comment": "#", "id_column": "n"}),
    "lines before": ("Export\nof today, 12:00\n\nage,bmi\n41,24.5\n52,31.25\n38,22.0\n", {"skip_rows": 3}),
    "thousands and point": ("age;bmi;w\n41;24.5;1,234.5\n52;31.25;12,000.25\n38;22;900.5\n", {"drop": "w"}),
    "quoted lines": ('id,age,bmi\n"a\nb",41,24.5\n"c, d",52,31.25\n"e",38,22.0\n', {"drop": "id"}),
    "decimal commas": ("age;bmi\n41;24,5\n52;31,25\n38;22,0\n", {}),
    "signs": ("age,bmi\n+41,24.5e0\n52.,3125E-2\n38,22\n", {}),
}  # fmt: skip


# Numbers that pyarrow leaves to the other parser.
LIKE_ROWS = [name for name in WRITTEN if name.startswith("comments")]
NOT_OF_PYARROW = [WRITTEN[name][0] for name in ("thousands and point", "signs", *LIKE_ROWS)]


@pytest.mark.parametrize(("content", "options"), WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("packed", [False, True], ids=["", "gzip"])
def test_both_parsers_read_the_same(table, parser, content, options, packed, monkeypatch):
    if parser == "pyarrow" and content not in NOT_OF_PYARROW:
        monkeypatch.setattr(FieldColumns, "_numbers", None)
    content = content if isinstance(content, bytes) else content.encode()
    read = read_table(table(gzip.compress(content), "a.csv.gz") if packed else table(content), **options)
    assert read.X.tolist() == AGE_BMI
    assert read.feature_names == ("age", "bmi")


THOUSANDS = {
    "point after commas": ("a;b\n1,234.5;1\n900;2\n", {}, [1234.5, 900]),
    "comma after points": ("a;b\n1.234,5;1\n900;2\n1.500;3\n", {}, [1234.5, 900, 1500]),
    "two groups": ("a;b\n1,234,567;1\n1,500;2\n", {}, [1234567, 1500]),
    "blanks": ("a;b\n1 234,5;1\n900;2\n", {}, [1234.5, 900]),
    "narrow blanks": ("a;b\n1\N{NARROW NO-BREAK SPACE}234;1\n900;2\n", {}, [1234, 900]),
    "Swiss": ("a;b\n1'234.5;1\n900;2\n", {}, [1234.5, 900]),
    "quoted": ('a,b\n"1,234.5",1\n"12,000",2\n', {}, [1234.5, 12000]),
    "said to be thousands": ("a;b\n1,234;1\n900;2\n", {"thousands": ","}, [1234, 900]),
    "said to be decimals": ("a;b\n1,234;1\n900;2\n", {"decimal": ","}, [1.234, 900]),
    "decimals by another number": ("a;b\n1,234;1\n0,5;2\n", {}, [1.234, 0.5]),
    "points said to be thousands": ("a;b\n1.234;1\n900;2\n", {"thousands": "."}, [1234, 900]),
}  # fmt: skip


@pytest.mark.parametrize(("content", "options", "expected"), THOUSANDS.values(), ids=THOUSANDS)
def test_separators_of_thousands_are_told_from_decimal_commas(table, parser, content, options, expected):
    assert read_table(table(content), **options).X[:, 0].tolist() == expected


def test_what_may_be_thousands_or_decimals_is_not_guessed(table):
    with pytest.raises(DataError, match=r'such as 1,234, .* two ways; give decimal="," .* and thousands=","'):
        read_table(table("a;b\n1,234;1\n2,500;2\n"))


def test_values_that_stand_for_missing_ones(table, parser):
    path = table("a,b\n-999,1\n-999.0,2\n.,3\nUnknown,4\nNA,5\n7,6\n")
    read = read_table(path, na_values=[-999, ".", "unknown"])
    assert np.array_equal(read.X[:, 0], [NAN, NAN, NAN, NAN, NAN, 7], equal_nan=True)
    assert read.X[:, 1].tolist() == [1, 2, 3, 4, 5, 6]
    frame = pd.DataFrame({"a": [-999.0, 7]})
    with pytest.raises(InputError, match=r"na_values are for \.csv.* a data frame"):
        read_table(frame, na_values=-999)


def test_ids_and_labels_are_the_same_from_both_parsers(table, parser):
    content = 'id,site,x,y\n 007,1,1,2\n"b, ""c""",2,3,4\nNA,3,5,6\n'
    read = read_table(table(content), id_column="id", label_column="site")
    assert read.ids.tolist() == ["007", 'b, "c"', "NA"]
    assert read.labels.tolist() == [1, 2, 3]


WRONG = {
    "short line": ("a,b\n1,2\n3\n", "line 3 of .* has 1 fields, expected 2; repair the line"),
    "long line": ("a,b\n1,2\n3,4,5\n", "line 3 of .* has 3 fields, expected 2"),
    "word": ("a,b\n1,2\n3,4\n5,x\n", r"column 'b' .* 'x' in line 4; give na_values=\[\"x\"\]"),
    "identifier": ("a,b\n1,2\n3,4\n5,1_2\n", "'1_2' in line 4"),
    "late bytes": (b"a,b\n" + b"1,2\n" * 60 + b"1,\xff\n", r"not UTF-8 text \(byte 0xff\)"),
}


@pytest.mark.parametrize(("content", "message"), WRONG.values(), ids=WRONG)
def test_both_parsers_find_the_same_mistakes(table, parser, content, message):
    with pytest.raises((DataError, UnreadableFileError), match=message):
        read_table(table(content))


FIELD = st.sampled_from(["1", "-2.5", "3e2", "", "NA", " 7 ", "nan", "inf", "+4", "1e400", '"5"', "x", "1_0", "5."])


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(FIELD, min_size=3, max_size=3), min_size=1, max_size=6), ends=st.sampled_from(["\n", "\r\n"])
)
def test_any_table_is_the_same_to_both_parsers(rows, ends, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "a.csv"
    path.write_text(ends.join(["a,b,c", *map(",".join, rows)]) + ends)
    found = []
    for limit in (0, 2**60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text, "QUICK_BYTES", limit)
            try:
                found.append(read_table(path, header="yes").X)
            except EigenmeshError as error:
                found.append(str(error))
    assert type(found[0]) is type(found[1])
    assert found[0] == found[1] if isinstance(found[0], str) else np.array_equal(*found, equal_nan=True)


def test_long_lines_and_many_blocks_are_read_by_pyarrow(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((300, 2000))
    np.savetxt(tmp_path / "a.csv", X, delimiter=",", fmt="%.17g")
    monkeypatch.setattr(text.TextFile, "rows", _not_called_often(text.TextFile.rows, most=3))
    assert np.array_equal(read_table(tmp_path / "a.csv", header="no").X, X)


def _not_called_often(rows, most):
    """Rows of a text file, of which only the first few may be read."""

    def first_rows(self):
        for number, row in enumerate(rows(self)):
            assert number < most
            yield row

    return first_rows


class TestWorkbooks:
    ROWS = (("age", "bmi"), (41, 24.5), (52, 31.25), (38, 22))

    def test_numbers_names_and_the_only_sheet(self, tmp_path):
        read = read_table(write_sheets(tmp_path / "a.xlsx", visits=self.ROWS, empty=()))
        assert read.X.tolist() == AGE_BMI
        assert read.feature_names == ("age", "bmi")
        assert read.name == "a"

    def test_one_of_several_sheets_by_name_or_number(self, tmp_path):
        path = write_sheets(tmp_path / "a.xlsx", lab=[("x", "y"), (1, 2), (3, 5)], visits=self.ROWS)
        for sheet in ("visits", 1):
            assert read_table(path, sheet=sheet).X.tolist() == AGE_BMI
        with pytest.raises(DataError, match="has no sheet 'visit'; it has lab, visits"):
            read_table(path, sheet="visit")
        with pytest.raises(DataError, match=r"has no sheet 2; give one of 0\.\.1"):
            read_table(path, sheet=2)

    def test_cells_of_every_kind(self, tmp_path):
        day = datetime.datetime(2024, 5, 1)
        rows = [("id", "day", "ok", "text", "x"), ("P1", day, True, "1,5", 0.1), ("P2", day, False, "2,25", None)]
        path = write_sheets(tmp_path / "a.xlsx", one=rows)
        read = read_table(path, id_column="id", drop="day")
        assert np.array_equal(read.X, [[1, 1.5, 0.1], [0, 2.25, NAN]], equal_nan=True)
        with pytest.raises(DataError, match=r"sheet 'one' of .* 2 columns .* \('2024-05-01' in row 2\)"):
            read_table(path, drop="x")

    def test_a_workbook_that_is_none_is_refused(self, table):
        with pytest.raises(UnreadableFileError, match=r"cannot be read as \.xlsx"):
            read_table(table("a,b\n1,2\n", "a.xlsx"))

    def test_an_empty_sheet_is_refused(self, tmp_path):
        with pytest.raises(UnreadableFileError, match=r"sheet 'one' of .* is empty"):
            read_table(write_sheets(tmp_path / "a.xlsx", one=()))


# Files that are refused, or of which a warning speaks. Each message says what to do, and that must work.


def _book(**sheets):
    return lambda folder: write_sheets(folder / "a.xlsx", **sheets)


NUMBERED = "\n".join(f"{row},{row % 7 + 0.5},{row % 5 * 1.5},{row % 3 - 0.25}" for row in range(1, 21))
TOWNS = "\n".join(f"P{row},{'fm'[row % 2]},{row % 7},{row / 7:.3f},visit of {row}" for row in range(20))
ADVICE = {
    "columns of words": "id,sex,a,b,note\n" + TOWNS,
    "one column of words": "name,a,b\nx,1,2\nx,2,1\nx,3,5\nx,4,4\n",
    "two ids": "id,key,a,b\nP1,x1,1,2\nP2,x2,2,1\nP3,x3,3,5\n",
    "dates": "day,a,b\n2024-01-02,1,2\n2024-01-03,2,1\n2024-01-04,3,5\n",
    "words among numbers": "a,b\n1,2\nunknown,1\n3,5\n4,4\n<5,3\n9,1\n",
    "names with blanks and signs": "the 'id',a $ b,c\nu v,1,2\nu v,2,1\nw,3,5\nw,4,4\n",
    "names with commas": '"x, y",a,b\nu v,1,2\nu v,2,1\nw,3,5\nw,4,4\n',
    "without names": ("1,x,2\n2,y,1\n3,x,5\n4,y,4\n", ["--table", "header=no"]),
    "comments": "# by hand\n# of 2024\na,b,c\n1,2,1\n3,1,2\n4,5,7\n",
    "lines before": "Export of today\n\na,b,c\n1,2,1\n3,1,2\n4,5,7\n",
    "lines before, with delimiters": "Export;of\ntoday;x\na;b;c\n1;2;1,5\n3;1;2\n4;5;7\n",
    "row names of R": '"a" "b"\n"1" 1 2\n"2" 3 1\n"3" 4 5\n',
    "thousands or decimals": "a;b\n1,234;1\n2,500;2\n1,111;5\n",
    "thousands beside decimal points": "a;b\n1,234;24.5\n2,500;23.1\n1,111;5.5\n",
    "quoted thousands beside decimal points": 'a,b\n"1,234",24.5\n"2,500",23.1\n"1,111",5.5\n',
    "late thousands": "a;b\n" + "1;2\n2;5\n" * 30 + "1,234.5;3\n",
    "late decimal commas": "a;b\n" + "1;2\n2;5\n" * 30 + "1,5;3\n",
    "latin-1": "kjønn,a\n1,2\n2,1\n3,5\n".encode("latin-1"),
    "an id of numbers": "nr,a,b,c\n" + NUMBERED,
    "years": "2001,2002,2003\n0.5,2.25,1.5\n1.5,0.75,2.5\n0,0,0.25\n",
    "one column of variance": "money,a,b\n100000,1,2\n200000,3,5\n500000,2,1\n",
    "two sheets": _book(one=[("a", "b"), (1, 2), (3, 1), (4, 5)], two=[("a", "b"), (1, 2)]),
    "a title above a sheet": _book(one=[("Visits of May",), (), ("a", "b"), (1, 2), (3, 1), (4, 5)]),
    "words in a sheet": _book(one=[("id", "sex", "a"), ("x", "f", 1), ("y", "m", 2), ("z", "f", 4)]),
    "header that is not there": ("a,b\n1,2\n3,1\n4,5\n", ["--table", "header=no"]),
    "something is left out already": ("id,key,a,b\nP1,x1,1,2\nP2,x2,2,1\nP3,x3,3,5\n", ["--table", "drop=id"]),
}  # fmt: skip
FLAG = re.compile(r"--table (?:'[^']*'(?:\"'\"'[^']*')*|[^\s,;]+(?:,[^\s,;]+)*)|--missing mean|--scale")


@pytest.mark.parametrize("content", ADVICE.values(), ids=ADVICE)
@pytest.mark.filterwarnings("ignore")
def test_advice_works_when_it_is_followed(table, tmp_path, content):
    content, words = content if isinstance(content, tuple) else (content, [])
    path = content(tmp_path) if callable(content) else table(content)
    command = ["fit", str(path), "-k", "1", "--nodes", "2", *words]
    done = CliRunner().invoke(app, command)
    said = done.stderr
    assert ("error: " in said and done.exit_code == 2) or "warning: " in said
    assert said.count("error: ") <= 1
    # Where a message gives two things to do, either is enough.
    first = said.splitlines()[0]
    alternatives = re.split(r" and (?=\S+ 'thousands)|, and (?=--table)", first)
    if "warning: " in first:
        alternatives = first.split(", or ")[:1]
    for one in alternatives:
        flags = [word for flag in FLAG.findall(one.rstrip().rstrip(".")) for word in shlex.split(flag)]
        assert flags, said
        again = CliRunner().invoke(app, [*command, *flags])
        assert "error: " not in again.stderr, (flags, again.stderr)
        assert again.exit_code == 0
        assert said.splitlines()[0] not in again.stderr


@pytest.mark.parametrize("name", ["columns of words", "two ids", "dates", "names with commas"])
@pytest.mark.filterwarnings("ignore")
def test_advice_in_python_works_when_it_is_followed(table, name):
    path = table(ADVICE[name])
    with pytest.raises(DataError) as refused:
        read_table(path)
    options = {
        one.partition("=")[0]: ast.literal_eval(one.partition("=")[2]) for one in re.findall(GIVEN, str(refused.value))
    }
    assert read_table(path, **options).X.dtype == float


def test_a_column_to_split_by_is_named_before_it_would_become_features(table):
    path = table("id,site,a,b\n" + "".join(f"P{row},{'xy'[row % 2]},{row % 5},{row % 7}\n" for row in range(20)))
    command = ["fit", str(path), "-k", "1", "--split", "label"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    flags = ["--table", "id_column=id", "--table", "label_column=site"]
    assert f"give {' '.join(flags)}." in refused.stderr
    assert "2 nodes" in CliRunner().invoke(app, [*command, *flags]).stdout
    # Without a split by labels it is a category like any other.
    assert "categories.site=x,y" in CliRunner().invoke(app, command[:-2]).stderr


def test_of_several_columns_of_words_the_one_called_like_a_place_has_the_labels(table):
    rows = [f"{'mf'[row % 2]},{'xyz'[row % 3]},{row % 5},{row % 7}\n" for row in range(20)]
    path = table("sex,hospital,a,b\n" + "".join(rows))
    refused = CliRunner().invoke(app, ["fit", str(path), "-k", "1", "--split", "label"])
    assert "give --table label_column=hospital --table categories.sex=f,m." in refused.stderr


def test_words_that_are_options_already_stay_as_they_are():
    assert option_names("name it with --table label_column=NAME.") == "name it with --table label_column=NAME."
    unknown = "unknown property of tables 'x'; there are: columns, id_column, label_column."
    assert option_names(unknown) == unknown


def test_advice_in_the_words_of_a_site_file():
    said = 'give id_column="the id", categories={"sex": ["f", "m"]}, drop=["note", 3].'
    assert field_names(said) == 'give id_column = "the id", categories.sex = ["f", "m"], drop = ["note", 3].'
    assert option_names(said) == "give --table 'id_column=the id' --table categories.sex=f,m --table drop=note,3."
    assert option_names('give na_values=["x"]') == "give --table na_values=x --missing mean"
    assert option_names('give thousands=" "') == "give --table thousands=space"


def test_a_frame_of_words_says_what_to_give():
    frame = pd.DataFrame(
        {
            "id": list("uvwxyz"),
            "sex": list("fmffmm"),
            "day": pd.to_datetime(["2024-01-02"] * 6),
            "a": range(6),
            "b": [1, 5, 2, 2, 1, 7.5],
        }
    )
    with pytest.raises(DataError) as refused:
        DecentralizedPCA(1).fit(frame)
    assert (
        'id_column="id", categories={"sex": ["f", "m"]}, drop=["day"] to fit or to read_table, or make numbers of dates'
        in str(refused.value)
    )
