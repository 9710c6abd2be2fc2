"""Names in every spelling, for every table that people name things from."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.averaging import AVERAGINGS, Tree
from eigenmesh.data import DATASETS, RandomSplit, is_dataset, load, missing_policy, split_by_name
from eigenmesh.data.datasets import SPECTRA, gaussian, geometric_spectrum, synthetic
from eigenmesh.data.moments import MISSING
from eigenmesh.data.split import SPLITS
from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.settings import Request
from eigenmesh.sites.fields import Fields
from eigenmesh.sites.site import RunSettings
from eigenmesh.solvers import SOLVERS, FastPCA
from eigenmesh.transports import TRANSPORTS, transport_kind
from eigenmesh.transports.threads import ThreadTransport
from eigenmesh.words import canonical_name, find_name, lookup

SPELLINGS = {
    "as it is": str,
    "hyphens": lambda name: name.replace("_", "-"),
    "underscores": lambda name: name.replace("-", "_"),
    "spaces": lambda name: f" {name.replace('-', ' ').replace('_', ' ')} ",
    "capitals": str.upper,
    "titles": str.title,
    "run together": lambda name: name.replace("-", "").replace("_", ""),
}
ARGUMENTS = {"dirichlet": ":0.5", "sizes": ":2,3"}

# Kind of a name -> the names, and a function of a name whose answer does not depend on the spelling.
TABLES = {
    "solver": (SOLVERS, lambda name: Request.parse(solver=name).solver),
    "averaging": (AVERAGINGS, lambda name: lookup("averaging", name, AVERAGINGS)),
    "topology": (graphs.TOPOLOGIES, lambda name: sorted(graphs.topology(name, 16).edges)),
    "weights": (graphs.WEIGHTS, lambda name: graphs.weighting(name, graphs.topologies.cycle(5)).matrix.tolist()),
    "split": (SPLITS, lambda name: split_by_name(with_argument(name))),
    "policy for missing entries": (MISSING, missing_policy),
    "transport": ([name for name, kind in TRANSPORTS.items() if kind.starts_by_name], transport_kind),
    "data set": (DATASETS, is_dataset),
    "kind of synthetic data": (SPECTRA, lambda name: synthetic(f"kind={name},n=3").X.tolist()),
}
EVERY_NAME = [(kind, name) for kind, (names, _) in TABLES.items() for name in names]
# What takes a name in Python, for what is no name at all.
TAKERS = {**{kind: take for kind, (_, take) in TABLES.items()}, "data set": load, "split": split_by_name}
del TAKERS["kind of synthetic data"]


def with_argument(name):
    return name + ARGUMENTS.get(find_name(name, SPLITS), "")


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(("kind", "name"), EVERY_NAME)
def test_every_spelling_of_a_name_means_the_same(kind, name, spelling):
    take = TABLES[kind][1]
    assert take(SPELLINGS[spelling](name)) == take(name)


@pytest.mark.parametrize(("kind", "names"), [(kind, names) for kind, (names, _) in TABLES.items()])
def test_no_two_names_of_a_table_are_spellings_of_each_other(kind, names):
    for name in names:
        for spell in SPELLINGS.values():
            assert canonical_name(kind, spell(name), names) == name


@pytest.mark.parametrize("bad", [3, None, True, 2.5, ["tree"], b"tree", Tree, Tree()], ids=str)
@pytest.mark.parametrize("kind", TAKERS)
def test_what_is_no_name_is_refused_with_what_there_is(kind, bad):
    with pytest.raises(InputError, match=f"{kind} = "):
        TAKERS[kind](bad)


@pytest.mark.parametrize("kind", TAKERS)
def test_an_unknown_name_is_refused_with_those_that_there_are(kind):
    with pytest.raises(UnknownNameError, match=f"unknown {kind} 'nonsense'; there are: "):
        TAKERS[kind]("nonsense")


def test_the_nearest_name_is_suggested_whatever_its_case():
    with pytest.raises(UnknownNameError, match="Did you mean 'fast-pca'"):
        Request.parse(solver="FAST-PAC")
    with pytest.raises(UnknownNameError, match="Did you mean 'erdos_renyi'"):
        graphs.topology("Erdos-Reny", 5)


def test_a_class_in_place_of_an_object_is_told_from_a_name():
    with pytest.raises(InputError, match=r"averaging = Tree is a class; give an object of it, such as Tree\(\)"):
        lookup("averaging", Tree, AVERAGINGS, also="an Averaging object")
    with pytest.raises(InputError, match=r"averaging = 3 must be an Averaging object or a name: allreduce, "):
        lookup("averaging", 3, AVERAGINGS, also="an Averaging object")


def test_data_sets_are_called_by_the_name_of_the_library():
    assert load("DIGITS").name == "digits"
    assert load("Synthetic:KIND=Power,D=4,N=10").X.shape == (10, 4)
    assert not is_dataset("digits.csv")


def test_topologies_that_are_drawn_at_random_keep_their_seed():
    ours, theirs = (graphs.topology(name, 20, seed=5) for name in ("Erdos-Renyi", "erdos_renyi"))
    assert nx.utils.graphs_equal(ours, theirs)


ASKED = {
    "solver": ("block-krylov", "Block_Krylov"),
    "topology": ("erdos_renyi", "Erdos-Renyi"),
    "weights": ("max_degree", "MAX-DEGREE"),
    "averaging": ("polynomial", "Polynomial"),
    "split": ("contiguous", "Contiguous"),
    "missing": ("mean", "MEAN"),
    "covariance": ("matrix-free", "Matrix_Free"),
}


@pytest.fixture(scope="module")
def samples():
    return gaussian(geometric_spectrum(6, 2, 0.5, 0.6), 240, seed=3)


def fitted(X, **settings):
    return DecentralizedPCA(2, n_nodes=5, random_state=0, **settings).fit(X)


@pytest.mark.parametrize("transport", [None, "Threads"])
def test_the_estimator_takes_every_spelling(samples, transport):
    ours, theirs = (fitted(samples, **{key: names[which] for key, names in ASKED.items()}) for which in (0, 1))
    assert (ours.components_ == theirs.components_).all()
    assert ours.traffic_ == theirs.traffic_
    threads = fitted(samples, **{key: names[1] for key, names in ASKED.items()}, transport=transport)
    assert np.allclose(threads.components_, ours.components_, rtol=0, atol=1e-9)


def test_missing_entries_are_filled_in_every_spelling(samples):
    holes = np.array(samples)
    holes[3, 2] = np.nan
    ours, theirs = (fitted(holes, missing=missing) for missing in ("mean", "Mean"))
    assert (ours.transform(holes) == theirs.transform(holes)).all()
    with pytest.raises(ValueError, match="NaN"):
        theirs.set_params(missing="ERROR").transform(holes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": FastPCA}, r"solver = FastPCA is a class; give an object of it, such as FastPCA\(\)"),
        ({"solver": 3}, "solver = 3 must be a Solver object or a name: auto, block-krylov, "),
        ({"solver": None}, "solver = None must be a Solver object or a name"),
        ({"averaging": 3}, "averaging = 3 must be an Averaging object or a name: allreduce, auto, "),
        ({"averaging": Tree}, "averaging = Tree is a class"),
        ({"topology": None}, "topology = None must be a networkx graph, Weights, .* or a name: binary_tree, "),
        ({"topology": 3}, "topology = 3 must be a networkx graph"),
        ({"topology": [[1, 2], [3]]}, "topology = .* must be a networkx graph"),
        ({"weights": 3}, "weights = 3 must be a name: auto, balanced, best_constant, max_degree, metropolis"),
        ({"split": 3}, "split = 3 must be a Split object or a name: contiguous, "),
        ({"split": RandomSplit}, "split = RandomSplit is a class"),
        ({"missing": None}, "missing = None must be a name: error, mean"),
        ({"covariance": 3}, "covariance = 3 must be a name: auto, chunked, "),
        ({"transport": 3}, "transport = 3 must be a Transport object, None or a name: mpi, threads, torch"),
        ({"transport": ThreadTransport}, "transport = ThreadTransport is a class"),
    ],
)
def test_the_estimator_refuses_what_is_neither_a_name_nor_an_object(samples, settings, message):
    with pytest.raises(InputError, match=message):
        fitted(samples, **settings)


def test_objects_are_taken_as_they_are(samples):
    pca = fitted(
        samples, solver=FastPCA(), averaging=Tree(), split=RandomSplit(seed=4), topology=graphs.topologies.cycle(5)
    )
    assert pca.result_.solver == "fast-pca"


def test_settings_of_a_site_are_kept_as_the_library_writes_them():
    written = {"solver": "FAST_PCA", "missing": "MEAN", "on_loss": "Abort"}
    words = RunSettings.from_fields(Fields(Path("network.toml"), "", written)).words
    kept = {key: words[key] for key in written}
    assert kept == {"solver": "fast-pca", "missing": "mean", "on_loss": "abort"}
