"""``eigenmesh compare``: right numbers in table, files and picture, and plain words for bad input."""

from __future__ import annotations

import csv
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest

from eigenmesh.cli.compare import parse_methods
from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.solvers import SADOT, BlockKrylov, DeEPCA, FastPCA, OrthogonalIteration

SMALL = ("data.npy", "-k", 2, "--nodes", 5, "--topology", "cycle", "--max-rounds", 400)


@pytest.fixture
def data(tmp_path, samples):
    np.save(tmp_path / "data.npy", samples)


def costs(path) -> dict[tuple[str, str, str], str]:
    with open(path, newline="") as file:
        units = ("rounds", "matrices", "bytes", "iterations")
        return {(row["solver"], unit, row["error"]): row[unit] for row in csv.DictReader(file) for unit in units}


def test_solvers_are_read_with_their_settings():
    methods = parse_methods("fast-pca:step_size=0.1, deepca:mixes=5,sa-dot:start=2,cap=30,growth=0.5,oi,block-krylov")
    assert [method.solver for method in methods] == [
        FastPCA(step_size=0.1),
        DeEPCA(mixes=5),
        SADOT(start=2, cap=30, growth=0.5),
        OrthogonalIteration(),
        BlockKrylov(),
    ]
    assert [method.label for method in methods] == ["fast-pca", "deepca", "sa-dot", "oi", "block-krylov"]
    twice = parse_methods("fast-pca:step_size=auto,fast-pca:step_size=0.2")
    assert [method.label for method in twice] == ["fast-pca (step_size=auto)", "fast-pca (step_size=0.2)"]
    assert parse_methods("block-krylov:max_width=none")[0].solver == BlockKrylov(max_width=None)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("fats-pca", UnknownNameError, "unknown solver 'fats-pca'; there are: .*deepca.*Did you mean 'fast-pca'"),
        ("", UnknownNameError, "unknown solver"),
        ("oi,,deepca", UnknownNameError, "unknown solver ''"),
        ("step_size=0.1", UnknownNameError, "unknown solver 'step_size=0.1'"),
        ("deepca:mixs=5", UnknownNameError, "unknown setting of deepca 'mixs'; there are: mixes"),
        ("oi:mixes=5", UnknownNameError, "unknown setting of oi 'mixes'"),
        ("deepca:name=x", UnknownNameError, "unknown setting of deepca 'name'"),
        ("deepca:mixes", InputError, "written deepca:field=value; got 'mixes'"),
        ("deepca:", InputError, "written deepca:field=value"),
        ("deepca:mixes=", InputError, "written deepca:field=value"),
        (
            "deepca:mixes=many",
            InputError,
            "mixes of deepca must be a number, or auto where the solver allows it; got 'many'",
        ),
        ("deepca:mixes=0", InputError, "mixes = 0 must be a whole number of at least 1"),
        ("deepca:mixes=2.5", InputError, "mixes = 2.5 must be a whole number"),
        ("fast-pca:step_size=-1", InputError, "step_size = -1 must be"),
        ("oi,oi", InputError, "names a solver twice with the same settings"),
    ],
)
def test_bad_solvers_are_told_what_there_is(text, kind, words):
    with pytest.raises(kind, match=words):
        parse_methods(text)


def test_table_csv_and_pictures_say_the_same(call, data, tmp_path):
    solvers = "fast-pca:step_size=0.5,deepca:mixes=6,block-krylov,oi,dsa:step_size=0.2"
    done = call("compare", *SMALL, "--solvers", solvers, "--out", "results")
    assert done.exit_code == 0, done.output
    found = costs(tmp_path / "results" / "costs.csv")
    for name in ("fast-pca", "deepca", "block-krylov", "oi"):
        (line,) = [line for line in done.stdout.splitlines() if line.strip().startswith(name)]
        for target in ("0.01", "0.0001", "1e-06"):
            assert f"{float(found[name, 'rounds', target]):,.0f}" in line.split()
    (dsa,) = [line for line in done.stdout.splitlines() if line.strip().startswith("dsa")]
    assert found["dsa", "rounds", "1e-10"] == ""
    assert dsa.split()[-2] == "-"
    assert float(dsa.split()[-1]) > 1e-10
    assert int(found["fast-pca", "matrices", "1e-06"]) == 2 * int(found["fast-pca", "rounds", "1e-06"])
    assert found["oi", "rounds", "0.01"] == found["oi", "iterations", "0.01"]
    assert "On the pooled data at a single node: oi; one unit per iteration" in " ".join(done.stdout.split())
    assert "1 of 5: fast-pca" in done.stderr
    pixels = matplotlib.image.imread(tmp_path / "results" / "compare.png")
    assert np.mean(pixels[..., :3].min(axis=-1) < 0.95) > 0.005
    svg = ElementTree.parse(tmp_path / "results" / "compare.svg").getroot()
    text = " ".join("".join(element.itertext()) for element in svg.iter() if element.tag.endswith("text"))
    for words in ("fast-pca", "deepca", "block-krylov", "oi (centralised)", "dsa", "rounds of neighbour exchange"):
        assert words in text
    with open(tmp_path / "results" / "errors.csv", newline="") as file:
        assert {row["solver"] for row in csv.DictReader(file)} == {"fast-pca", "deepca", "block-krylov", "oi", "dsa"}


@pytest.mark.parametrize("unit", ["matrices", "bytes", "iterations"])
def test_cost_can_be_counted_otherwise(call, data, tmp_path, unit):
    words = ["--solvers", "fast-pca:step_size=0.5,oi", "--cost", unit, "--out", "r", "--quiet"]
    done = call("compare", *SMALL, *words)
    assert (done.exit_code, done.stdout) == (0, "")
    assert costs("r/costs.csv")["fast-pca", unit, "1e-06"]
    drawn = (tmp_path / "r" / "compare.svg").read_text()
    # What sends nothing is not drawn against bytes.
    assert ("oi (centralised)" in drawn) is (unit != "bytes")


def test_the_same_seed_gives_the_same_numbers(call, data):
    words = ["--solvers", "fast-pca,tracked-subspace", "--seed", 4, "--quiet"]
    for name in ("a", "b"):
        assert call("compare", *SMALL, *words, "--out", name).exit_code == 0
    assert costs("a/costs.csv") == costs("b/costs.csv")


def test_nodes_of_their_own_and_scaled_columns(call, write_csv, tmp_path, samples):
    write_csv("data.csv", samples, np.repeat(["a", "b", "c"], 80))
    words = ["--table", "label_column=site", "--split", "label", "--scale", "--averaging", "tree"]
    done = call("compare", "data.csv", *words, "-k", 2, "--solvers", "block-krylov,oi", "--out", "r")
    assert done.exit_code == 0, done.output
    assert "3 nodes" in done.stdout
    assert float(costs("r/costs.csv")["block-krylov", "rounds", "1e-10"]) < 100


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--solvers", "magic"], "unknown solver 'magic'; there are: "),
        (["--cost", "money"], "unknown unit of cost 'money'; there are: bytes, iterations, matrices, rounds"),
        (["--averaging", "guess"], "unknown averaging 'guess'"),
        (["--weights", "guess"], "unknown weights 'guess'"),
        (["-k", "0.9"], "valid integer"),
        (["-k", "7"], "--components = 7 must be at most 6"),
        (["--out", "data.npy/x"], "cannot create the folder data.npy/x"),
        (["--solvers", "krasulina"], "--components = 5 must be 1 for the solver krasulina"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(call, data, tmp_path, words, message):
    done = call("compare", "data.npy", *words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output
    made = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert made == {"data.npy"}


def test_input_is_not_overwritten(call, write_csv, samples):
    write_csv("costs.csv", samples)
    done = call("compare", "costs.csv", "--out", ".")
    assert done.exit_code == 2
    assert "costs.csv is an input already" in done.stderr


def test_help_teaches(call):
    done = call("compare", "--help")
    assert done.exit_code == 0
    for words in ("Examples:", "--solvers", "--cost", "Network"):
        assert words in done.stdout
