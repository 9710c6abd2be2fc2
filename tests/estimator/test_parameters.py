"""Every parameter, with values that cannot be worked with: refused by name before the data are looked at."""

import inspect
import pickle
from typing import ClassVar

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA

from eigenmesh import Costs, DecentralizedPCA, StreamingPCA, load_model
from eigenmesh.averaging import Tree
from eigenmesh.data import RandomSplit
from eigenmesh.errors import EigenmeshError, InputError, UnknownNameError
from eigenmesh.settings import A_STREAM, ONE_FIT, Setting, named
from eigenmesh.solvers import BlockKrylov
from eigenmesh.transports.threads import ThreadTransport

BAD = {
    "n_components": [0, -3, 1.0, 1.5, 0.0, np.nan, "mle", "all", True, [2], {}],
    "solver": ["oja", None, 3, BlockKrylov, Tree(), ["auto"], True],
    "topology": [None, "moebius", 3, 2.5, {}, [1, 2], [[1], [1, 2]], [["a", "b"], ["c", "d"]], np.eye, True],
    "n_nodes": [0, -1, 2.5, "3", np.inf, True, [3]],
    "weights": ["heavy", None, 3, np.eye(3)],
    "averaging": ["magic", None, 3, Tree, BlockKrylov(), True],
    "privacy": ["mask", None, True, 2],
    "split": ["odd", "dirichlet:x", "sizes:", "random:3", None, 3, RandomSplit, True],
    "partition": ["rows", "", None, 3, True],
    "tol": ["a", 0, -1, 1, 2.0, np.nan, None, "1e-3", True, [1e-3]],
    "max_rounds": [0, -5, 10.5, "many", None, np.inf, True],
    "scale": ["no", "yes", 0, 1, None, 2.0],
    "whiten": ["no", "yes", 0, 1, None, [True]],
    "missing": ["median", None, True, np.nan],
    "covariance": ["dense", None, 3, True],
    "device": ["abacus", 3, True, ["cpu"]],
    "transport": ["carrier-pigeon", "tls", 3, ThreadTransport, True],
    "random_state": ["x", -1, 1.5, True, [0]],
    "costs": [3, "cheap", Costs, {"latency_s": 1.0}, True],
    "on_event": [3, "events.jsonl", True, [print]],
    "verbose": ["loud", 2, None],
}
OF_STREAMS = {
    "forgetting": [0.0, 1.5, "half", None],
    "window": [0, 2.5, "day"],
    "store": [3, True],
    "averages_per_batch": [1, 2.5, "two"],
    "on_alarm": [3, "mail"],
}
# Nothing allows a bare object.
BAD_OF = {
    kind: {name: {**BAD, **OF_STREAMS}.get(name, [object()]) for name in kind._rows}
    for kind in (DecentralizedPCA, StreamingPCA)
}


class NeverRead:
    """Data that fail the test where anything is asked of them."""

    def __getattribute__(self, name):
        raise AssertionError(f"the data were looked at: {name}")

    def __len__(self):
        raise AssertionError("the data were looked at")


@pytest.mark.parametrize("kind", BAD_OF)
def test_every_parameter_is_in_the_table_and_has_constraints(kind):
    assert list(kind._rows) == list(inspect.signature(kind).parameters)
    assert {*BAD, *OF_STREAMS} <= {*ONE_FIT, *A_STREAM}


@pytest.mark.parametrize(
    ("kind", "name", "value", "call"),
    [
        # Numbered, since workers must collect the same names and objects print their addresses.
        pytest.param(kind, name, value, call, id=f"{kind.__name__}-{call}-{name}-{number}")
        for kind, call in [
            (DecentralizedPCA, "fit"),
            (DecentralizedPCA, "fit_transform"),
            (DecentralizedPCA, "plan"),
            (StreamingPCA, "fit"),
            (StreamingPCA, "partial_fit"),
        ]
        for name, values in BAD_OF[kind].items()
        for number, value in enumerate(values)
    ],
)
def test_bad_values_are_refused_by_name_before_the_data_are_looked_at(kind, name, value, call):
    if name == "device" and isinstance(value, str):
        pytest.importorskip("torch")
    estimator = kind(**{name: value})
    given = dict(vars(estimator))
    with pytest.raises(InputError) as caught:
        getattr(estimator, call)(NeverRead())
    message = str(caught.value)
    assert isinstance(caught.value, EigenmeshError)
    assert name in message
    assert any(
        words in message for words in ("must be", "there are", "available", "is not supported", "is a class", "split")
    )
    assert len(message) < 500
    # Nothing was set on it.
    assert vars(estimator) == given


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"n_components": "mle"}, InputError, "'mle' is not supported: .* Use a whole number, a share"),
        ({"n_components": 0}, InputError, "n_components = 0 must be a whole number of at least 1, .* or None"),
        ({"whiten": "no"}, InputError, "whiten = 'no' must be True or False"),
        ({"n_nodes": 2.5}, InputError, "n_nodes = 2.5 must be a whole number of at least 1 or None"),
        ({"tol": "a"}, InputError, "tol = 'a' must be a number strictly between 0 and 1"),
        ({"solver": "blok-krylov"}, UnknownNameError, "there are: auto, .* Did you mean 'block-krylov'"),
        ({"solver": BlockKrylov}, InputError, r"solver = BlockKrylov is a class; give an object of it, such as BlockK"),
        ({"averaging": 3}, InputError, "averaging = 3 must be an Averaging object or a name: .*tree"),
        ({"topology": None}, InputError, "topology = None must be a networkx graph, Weights, .* or a name: "),
        ({"topology": np.zeros((40, 40, 2))}, InputError, r"topology = array\(.{40,60}\.\.\. must be"),
    ],
)
def test_the_message_has_the_value_what_is_allowed_and_the_fix(settings, error, message):
    with pytest.raises(error, match=message):
        DecentralizedPCA(**settings).fit(NeverRead())


@pytest.mark.parametrize(
    "settings",
    [
        {"n_components": np.int64(2), "n_nodes": np.int32(3), "max_rounds": np.int64(900), "tol": np.float32(1e-3)},
        {"n_components": np.float32(0.5), "scale": np.True_, "whiten": np.False_, "verbose": np.False_},
        {"topology": [[0.5, 0.5], [0.5, 0.5]], "random_state": np.random.default_rng(0), "costs": Costs(latency_s=1.0)},
        {"solver": BlockKrylov(), "averaging": Tree(), "split": RandomSplit(3), "on_event": lambda entry: None},
        {"split": "sizes:10,20,30", "topology": "cycle", "n_nodes": 3},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_good_values_of_every_kind_are_taken(settings):
    X = np.random.default_rng(0).standard_normal((60, 4)) * [4, 2, 1, 0.5]
    assert DecentralizedPCA(**{"n_components": 2, **settings}).fit(X).n_components_ >= 1


def test_parameters_are_those_of_scikit_learn_where_both_have_them():
    theirs, ours = PCA().get_params(), DecentralizedPCA().get_params()
    assert list(ours) == sorted(ONE_FIT)
    # To scikit-learn tol is a setting of one solver; 0 there is machine precision.
    for name in set(theirs) & set(ours) - {"tol"}:
        assert ours[name] == theirs[name], name
    settings = {"n_components": 3, "tol": 1e-3, "solver": BlockKrylov(), "whiten": True}
    for copy in (clone(DecentralizedPCA(**settings)), pickle.loads(pickle.dumps(DecentralizedPCA(**settings)))):
        assert copy.get_params() == {**ours, **settings}


def test_a_saved_model_checks_its_settings(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 4)) * [4, 2, 1, 0.5]
    DecentralizedPCA(2, n_nodes=2).fit(X).save(tmp_path / "model.npz")
    for whiten in ("no", 1, [True]):
        with pytest.raises(InputError, match=r"whiten = .* must be True or False"):
            load_model(tmp_path / "model.npz", whiten=whiten)
    with pytest.raises(UnknownNameError, match="'median'"):
        load_model(tmp_path / "model.npz", missing="median")


class WithMore(DecentralizedPCA):
    """An estimator of a user, with a parameter of its own and fewer of ours."""

    def __init__(self, n_components=None, *, colour, n_nodes=None):
        super().__init__(n_components, n_nodes=n_nodes)
        self.colour = colour


def test_a_subclass_may_have_parameters_of_its_own():
    X = np.random.default_rng(0).standard_normal((40, 4)) * [4, 3, 2, 1]
    expected = DecentralizedPCA(2, n_nodes=2).fit(X).explained_variance_
    mine = clone(WithMore(2, colour="red", n_nodes=2)).fit(X)
    assert mine.colour == "red"
    assert np.allclose(mine.explained_variance_, expected)
    with pytest.raises(InputError, match="n_components = 0 must be"):
        WithMore(0, colour="red").fit(X)
    blocks = da.from_array(X, chunks=(20, 4))
    lazy = WithMore(2, colour="red").fit(blocks)
    assert np.allclose(lazy.explained_variance_, expected)
    assert np.allclose(np.abs(lazy.transform(blocks).compute()), np.abs(mine.transform(X)), atol=1e-5)


def test_a_subclass_may_have_its_parameters_checked():
    class Checked(WithMore):
        _rows: ClassVar = {**WithMore._rows, "colour": Setting("red", [named("colour", ["red", "blue"])], "Colour.")}

        def __init__(self, *, colour):
            super().__init__(2, colour=colour)

    with pytest.raises(InputError, match="colour = 5 must be"):
        Checked(colour=5).fit(np.eye(4))
