"""Messy tables on the command line: options, warnings and scores with ids."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from sklearn.decomposition import PCA

from eigenmesh import DecentralizedPCA, load_model
from eigenmesh.data.formats.plink import Variant
from eigenmesh.errors import InputError
from genotypes import write_bed

X = np.random.default_rng(0).standard_normal((40, 3)) * [3, 2, 1]


@pytest.fixture
def files(call, tmp_path):
    """Two sites with an id, a category and another order of columns; call works in their folder."""
    sex = np.where(X[:, 2] > 0, "f", "m")
    north = [f"P{row:02};{sex[row]};" + ";".join(f"{x:.9f}".replace(".", ",") for x in X[row]) for row in range(25)]
    (tmp_path / "north.csv").write_text("\n".join(["patient;sex;a;b;c", *north]))
    south = [f"{X[row, 1]:.9f},{X[row, 0]:.9f},P{row:02},{X[row, 2]:.9f},{sex[row]}" for row in range(25, 40)]
    (tmp_path / "south.csv").write_text("\n".join(["b,a,patient,c,sex", *south]))
    return tmp_path


def test_fit_and_scores_of_messy_files_are_those_of_the_clean_matrix(call, files):
    words = ("--table", "id_column=patient", "--table", "categories.sex=f,m")
    done = call("fit", "*.csv", *words, "-k", "2", "--out", "pca.npz", "--json", "-")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["n_features"] == 5
    female = (X[:, 2:] > 0).astype(float)
    clean = np.hstack([female, 1 - female, X])
    done = call("transform", "south.csv", *words, "--model", "pca.npz", "--out", "scores.csv")
    assert done.exit_code == 0, done.stderr
    with (files / "scores.csv").open() as lines:
        head, *rows = list(csv.reader(lines))
    assert head == ["patient", "pc1", "pc2"]
    assert [row[0] for row in rows] == [f"P{row:02}" for row in range(25, 40)]
    expected = PCA(2).fit(clean).transform(clean[25:])
    assert np.allclose(np.abs(np.array(rows)[:, 1:].astype(float)), np.abs(expected), atol=1e-6)


def test_transform_reads_as_the_fit_did(call, files):
    words = ("--table", "id_column=patient", "--table", "categories.sex=f,m", "--missing", "mean")
    done = call("fit", "*.csv", *words, "-k", "2", "--out", "pca")
    assert done.exit_code == 0, done.stderr
    assert "wrote pca.eigenmesh.npz" in done.stdout
    scores = []
    for said in (words, ()):
        done = call("transform", "south.csv", *said, "--model", "pca", "--out", "scores.csv")
        assert done.exit_code == 0, done.stderr
        scores.append((files / "scores.csv").read_text())
    assert scores[0] == scores[1]
    assert scores[0].startswith("patient,pc1,pc2\nP25,")
    # Another file may lack what is no feature, have other columns, and have missing entries.
    (files / "new.csv").write_text("note;c;sex;b;a\nx;1,5;f;2;\ny;2,5;m;1;0,5\n")
    done = call("transform", "new.csv", "--model", "pca", "--out", "new.csv.npz")
    assert done.exit_code == 0, done.stderr
    assert np.load(files / "new.csv.npz")["scores"].shape == (2, 2)
    done = call("transform", "new.csv", "--model", "pca", "--out", "new.csv.npz", "--missing", "error")
    assert "line 2 of new.csv, column 4 ('a'), is nan" in done.stderr
    # What is said to transform itself must be there, and counts.
    done = call("transform", "new.csv", "--model", "pca", "--out", "s.csv", "--table", "id_column=patient")
    assert "has no column 'patient'" in done.stderr
    done = call("transform", "new.csv", "--model", "pca", "--out", "s.csv", "--table", "id_column=note")
    assert (files / "s.csv").read_text().startswith("note,pc1,pc2\nx,")


def test_columns_by_number_missing_words_and_units_are_remembered(call, tmp_path):
    lines = [f"{a:.6f},P{row},{-999 if row == 3 else round(b, 6)},{c:.6f}" for row, (a, b, c) in enumerate(X)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    words = ("--table", "header=no", "--table", "id_column=1", "--table", "na_values=-999", "--missing", "mean")
    assert call("fit", "a.csv", *words, "-k", "1", "--out", "pca.npz").exit_code == 0
    done = call("transform", "a.csv", "--model", "pca.npz", "--out", "s.csv", "--table", "header=no")
    assert done.exit_code == 0, done.stderr
    assert "P3," in (tmp_path / "s.csv").read_text()
    DecentralizedPCA(1, n_nodes=2, whiten=True).fit(X).save(tmp_path / "w.npz")
    np.save(tmp_path / "x.npy", X)
    assert call("transform", "x.npy", "--model", "w.npz", "--out", "w.npy").exit_code == 0
    assert np.load(tmp_path / "w.npy").std(ddof=1) == pytest.approx(1)


def test_a_model_has_a_suffix(call, files):
    done = call("fit", "north.csv", "--table", "columns=a,b,c", "-k", "1", "--out", "model.csv")
    assert done.exit_code == 2
    assert "model.csv must end in .npz, as a model does; call it model.csv.eigenmesh.npz" in done.stderr
    with pytest.raises(InputError, match="must end in"):
        DecentralizedPCA(1, n_nodes=2).fit(X).save(files / "model.pkl")
    written = DecentralizedPCA(1, n_nodes=2).fit(X).save(files / "plain")
    assert written == files / "plain.eigenmesh.npz"
    assert load_model(files / "plain").n_components_ == 1


def test_a_model_shows_itself_in_a_notebook(call, files):
    words = ("--table", "id_column=patient", "--table", "categories.sex=f,m")
    assert call("fit", "*.csv", *words, "-k", "2", "--out", "pca.npz").exit_code == 0
    shown = load_model(files / "pca.npz")._repr_mimebundle_()["text/html"]
    for words in ("2 components of 5 features of 40 samples", "<td>a +", "id_column = patient", "at most"):
        assert words in shown.replace("<td>a -", "<td>a +")


def test_columns_and_drop_are_two_ways_to_say_the_same(call, files):
    found = []
    for words in (("--table", "drop=patient,sex"), ("--table", "columns=a,b,c")):
        done = call("fit", "north.csv", "south.csv", *words, "-k", "2", "--seed", "0", "--json", "-")
        assert done.exit_code == 0, done.stderr
        found.append(json.loads(done.stdout)["explained_variance"])
    assert np.allclose(found[0], found[1])
    assert np.allclose(found[0], PCA(2).fit(X).explained_variance_)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            (),
            (
                "north.csv has 2 columns that are not numeric: 'patient' ('P00' in line 2), 'sex' (",
                "give --table id_column=patient --table categories.sex=f,m.",
            ),
        ),
        (("--table", "drop=patient"), ("column 'sex' of north.csv", "in line 2")),
        (("--table", "drop=patient", "--table", "categories.sex"), ("--table categories.sex", "sex=f,m")),
        (
            ("--table", "drop=patient", "--table", "categories.sex=f,x"),
            ("north.csv, column 1 ('sex'), is 'm'", "at all sites"),
        ),
        (("--table", "drop=name"), ("has no column 'name'", "patient, sex")),
        (("--table", "columns=a", "--table", "decimal=;"), ("decimal = ';'",)),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_command_line(call, files, words, said):
    done = call("fit", "north.csv", *words)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    for fragment in said:
        assert fragment in done.stderr


def test_warnings_are_shown_once_and_the_fit_goes_on(call, files):
    lines = [f"{row + 1000},{row % 7},{row / 7}" for row in range(40)]
    (files / "ids.csv").write_text("\n".join(["nr,a,b", *lines]))
    done = call("fit", "ids.csv", "--nodes", "3", "-k", "1")
    assert done.exit_code == 0
    assert "warning: column 'nr' of ids.csv looks like an id" in done.stderr
    assert "leave it out, --table drop=nr, or say that it is one, --table id_column=nr" in done.stderr
    assert "warning: column 0 ('nr') has 9" in done.stderr
    assert "--scale" in done.stderr
    assert done.stderr.count("warning: ") == 2


def test_a_code_for_missing_is_a_warning_and_filled_entries_are_counted(call, files):
    lines = [f"{-99 if row % 10 == 0 else 100 + row % 13},{row % 7},{row / 7}" for row in range(40)]
    (files / "codes.csv").write_text("\n".join(["bp,a,b", *lines]))
    done = call("fit", "codes.csv", "--nodes", "3", "-k", "1")
    assert "warning: codes.csv has -99 in 'bp' (4 times), far from all other values there" in done.stderr
    advice = "--table na_values=-99 --missing mean"
    assert f"give {advice}." in done.stderr
    assert "missing entries" not in done.stdout
    cured = call("fit", "codes.csv", "--nodes", "3", "-k", "1", *advice.split(), "--json", "numbers.json")
    assert "-99" not in cured.stderr
    assert "4 missing entries (3.33%) count as the mean of their column." in cured.stdout
    assert json.loads((files / "numbers.json").read_text())["n_missing"] == 4


def test_a_model_remembers_the_encoding_unless_the_next_file_says_its_own(call, files):
    lines = [f"P{row};{170 + row % 13};{row % 7};{row / 7}" for row in range(40)]
    text = "\n".join(["nr;größe;alter;übung", *lines])
    (files / "latin.csv").write_text(text, encoding="latin-1")
    words = ("--table", "encoding=latin-1", "--table", "id_column=nr")
    done = call("fit", "latin.csv", *words, "--nodes", "3", "-k", "1", "--out", "pca")
    assert done.exit_code == 0, done.output
    for encoding in ("utf-16", "utf-8-sig", "latin-1"):
        (files / "next.csv").write_text(text, encoding=encoding)
        done = call("transform", "next.csv", "--model", "pca", "--out", f"{encoding}.csv")
        assert done.exit_code == 0, done.output
        assert (files / f"{encoding}.csv").read_text() == (files / "utf-16.csv").read_text()
    # Without a mark, UTF-8 has to be said.
    (files / "next.csv").write_text(text, encoding="utf-8")
    assert call("transform", "next.csv", "--model", "pca", "--out", "s.csv").exit_code == 2
    said = ("--table", "encoding=utf-8", "--out", "s.csv")
    assert call("transform", "next.csv", "--model", "pca", *said).exit_code == 0


def test_a_header_of_years_is_a_warning_until_the_command_says_what_it_is(call, tmp_path):
    years = ["2001,2002,2003", *(",".join(map(str, row)) for row in X)]
    (tmp_path / "years.csv").write_text("\n".join(years))
    done = call("fit", "years.csv", "-k", "2", "--json", "-")
    assert "--table header=yes" in done.stderr
    assert json.loads(done.stdout)["n_samples"] == 41
    done = call(
        "fit",
        "years.csv",
        "-k",
        "2",
        "--table",
        "header=yes",
        "--table",
        "drop=2002",
        "--out",
        "pca.npz",
        "--json",
        "-",
    )
    assert "header=" not in done.stderr
    found = json.loads(done.stdout)
    assert found["n_samples"] == 40
    assert set(found["loadings"][0]) == {"2001", "2003"}
    assert np.allclose(found["explained_variance"], PCA(2).fit(X[:, [0, 2]]).explained_variance_)
    done = call("transform", "years.csv", "--table", "header=yes", "--model", "pca.npz", "--out", "scores.npy")
    assert done.exit_code == 0, done.stderr
    assert np.load(tmp_path / "scores.npy").shape == (40, 2)


def test_loadings_are_shown_and_in_the_numbers(call, files):
    done = call("fit", "north.csv", "south.csv", "--table", "columns=a,b,c", "-k", "2", "--json", "r.json")
    assert done.exit_code == 0, done.stderr
    assert "largest loadings" in done.stdout
    loadings = json.loads((files / "r.json").read_text())["loadings"]
    truth = PCA(2).fit(X).components_
    for component, found in zip(truth, loadings, strict=True):
        values = np.abs([found[name] for name in "abc"])
        assert np.allclose(values, np.abs(component), atol=1e-6)
        assert list(found) == ["abc"[feature] for feature in np.argsort(-np.abs(component))]
    first, value = next(iter(loadings[0].items()))
    assert f"{first} {value:+.3f}" in done.stdout
    (files / "plain.csv").write_text("\n".join(",".join(map(str, row)) for row in X))
    assert "loadings" not in call("fit", "plain.csv", "-k", "1").stdout


def test_genotypes_from_bed_files_to_the_files_of_plink(call, tmp_path):
    rng = np.random.default_rng(0)
    variants = [Variant("1", f"rs{number}", str(number), ("A", "G")) for number in range(30)]
    copies = rng.binomial(2, rng.beta(1, 1, (3, 30))[np.arange(60) % 3]).astype(float)
    for name, rows in (("oslo", slice(0, 40)), ("bergen", slice(40, 60))):
        write_bed(tmp_path / name, copies[rows], [f"s{row}" for row in range(60)][rows], variants)
    done = call("fit", "oslo.bed", "bergen.bed", "--binomial", "-k", "2", "--out", "pca.npz")
    assert done.exit_code == 0, done.stderr
    done = call("transform", "bergen.bed", "--model", "pca.npz", "--out", "b.eigenvec")
    assert done.exit_code == 0, done.stderr
    assert "b.eigenvec, b.eigenval, b.eigenvec.allele, b.afreq: 20 samples" in done.stdout
    assert (tmp_path / "b.eigenvec").read_text().startswith("#IID\tPC1\tPC2\ns40\t")
    done = call("transform", "bergen.bed", "--model", "pca.npz", "--out", "c.eigenvec", "--whiten")
    assert done.exit_code == 2
    assert "without --whiten" in done.stderr


def test_weights_of_a_column_are_repeated_rows(call, tmp_path):
    counts = np.arange(40) % 4
    lines = [f"{count},{a!r},{b!r},{c!r}" for count, (a, b, c) in zip(counts, X.tolist(), strict=True)]
    (tmp_path / "north.csv").write_text("\n".join(["count,a,b,c", *lines[:25]]))
    (tmp_path / "south.csv").write_text("\n".join(["count,a,b,c", *lines[25:]]))
    (tmp_path / "all.csv").write_text("\n".join(["count,a,b,c", *lines]))
    expected = PCA(2).fit(np.repeat(X, counts, axis=0)).explained_variance_
    for data in (("north.csv", "south.csv"), ("all.csv", "--nodes", "3"), ("all.csv", "--split", "contiguous")):
        done = call("fit", *data, "--table", "weight_column=count", "-k", "2", "--json", "-")
        assert done.exit_code == 0, done.stderr
        found = json.loads(done.stdout)
        assert np.allclose(found["explained_variance"], expected)
        assert found["n_samples"] == counts.sum()
    for entry in ("-1", "many", ""):
        (tmp_path / "south.csv").write_text("\n".join(["count,a,b,c", *lines[25:30], f"{entry},1,2,3"]))
        done = call("fit", "north.csv", "south.csv", "--table", "weight_column=count", "-k", "2")
        assert done.exit_code == 2
        assert "line 7 of south.csv, column 0 ('count'), is" in done.stderr
        assert "a weight must be a number" in done.stderr


def test_monitoring_writes_t2_and_spe_and_says_what_is_beyond_the_limits(call, tmp_path):
    rng = np.random.default_rng(2)
    quiet = rng.standard_normal((400, 6)) * [5, 4, 1, 1, 1, 1]
    odd = quiet[:50] + np.where(np.arange(50)[:, np.newaxis] < 10, 20, 0) * (np.arange(6) == 5)
    for name, rows in (("fitted", quiet[:200]), ("quiet", quiet[200:]), ("today", odd)):
        lines = [f"P{row}," + ",".join(map(repr, values)) for row, values in enumerate(rows.tolist())]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,a,b,c,d,e,f", *lines]))
    words = ("--table", "id_column=id")
    assert call("fit", "fitted.csv", *words, "-k", 2, "--nodes", 3, "--out", "pca.npz").exit_code == 0
    transform = ("transform", "today.csv", *words, "--model", "pca.npz", "--monitor", "--out")
    done = call(*transform, "out.csv", "--quiet-samples", "quiet.csv")
    assert done.exit_code == 0, done.stderr
    assert "SPE is above its limit of" in done.output
    assert "in 20.0% of the samples" in done.output
    with (tmp_path / "out.csv").open() as lines:
        head, *rows = list(csv.reader(lines))
    assert head == ["id", "pc1", "pc2", "t2", "spe"]
    spe = np.array(rows)[:, 4].astype(float)
    assert spe[:10].min() > 300 > 30 > spe[10:].max()
    done = call(*transform, "out.npz")
    assert "SPE has no limit with this model" in done.output
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["spe"], spe)
    assert call(*transform, "out.npy").exit_code == 2
    without = ("transform", "today.csv", "--model", "pca.npz", "--quiet-samples", "quiet.csv", "--out", "x.csv")
    assert "needs --monitor" in call(*without).stderr


def test_new_samples_are_corrected_and_else_their_shrinkage_is_named(call, tmp_path):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 90)) + 6 * rng.standard_normal((60, 1)) * (np.arange(90) < 3)
    np.save(tmp_path / "fitted.npy", X[:40])
    np.save(tmp_path / "new.npy", X[40:])
    assert call("fit", "fitted.npy", "-k", 1, "--nodes", 2, "--out", "pca.npz").exit_code == 0
    transform = ("transform", "new.npy", "--model", "pca.npz", "--out", "s.npy")
    done = call(*transform)
    assert (
        "40 samples of 90 features: scores of other samples are too small; correct them with --new-samples"
        in done.output
    )
    plain = np.load(tmp_path / "s.npy")
    done = call(*transform, "--new-samples")
    assert "too small" not in done.output
    assert (np.abs(np.load(tmp_path / "s.npy")) > np.abs(plain)).all()
