"""DecentralizedPCA: scikit-learn's contract, scikit-learn's answers."""

import pickle
import subprocess
import sys
import textwrap
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigenmesh import DecentralizedPCA, StopReason, StreamingPCA, graphs
from eigenmesh.averaging import Chebyshev
from eigenmesh.data import Shards
from eigenmesh.data.datasets import gaussian, geometric_spectrum
from eigenmesh.errors import DataError, GraphError, InputError, UnknownNameError
from eigenmesh.events import on_record
from eigenmesh.solvers import FastPCA
from problems import angles, truth


@parametrize_with_checks(
    [
        DecentralizedPCA(n_nodes=3, max_rounds=300),
        DecentralizedPCA(n_components=1),
        StreamingPCA(n_components=1, n_nodes=3, max_rounds=300),
    ]
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        # The checks fit random data with all components, on which the small budget may end first.
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


def sample(n=400, d=12, seed=0):
    rng = np.random.default_rng(seed)
    return gaussian(geometric_spectrum(d, 3, 0.5, ratio=0.7), n, seed) + rng.normal(scale=5, size=d)


@pytest.mark.parametrize("solver", ["auto", "fast-pca", "tracked-subspace", "one-sum", "oi"])
def test_equals_scikit_learn_on_unequal_nodes_with_a_mean(solver):
    X = sample()
    parts = np.split(X, [20, 50, 200, 210])
    ours = DecentralizedPCA(3, tol=1e-9, solver=solver).fit(parts)
    theirs = PCA(3).fit(X)
    along = np.sum(ours.components_ * theirs.components_, axis=1, keepdims=True)
    sines = np.linalg.norm(ours.components_ - along * theirs.components_, axis=1)
    assert sines.max() < 1e-8
    assert (along > 0).all()  # the same signs too
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_"):
        assert np.allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-8, atol=0), name
    assert (ours.n_components_, ours.n_samples_, ours.n_features_in_) == (3, 400, 12)
    assert np.allclose(ours.transform(X), theirs.transform(X), rtol=0, atol=1e-6)
    assert np.allclose(ours.get_covariance(), theirs.get_covariance(), rtol=0, atol=1e-6)
    assert np.allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-8)
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-8)
    assert ours.node_components_.shape == (5, 3, 12)
    assert ours.stop_reason_ is StopReason.CONVERGED
    assert ours.certificate_.error_bound < 1e-9
    assert ours.traffic_ == ours.result_.traffic
    assert ours.history_[-1][1:5] == tuple(vars(ours.traffic_).values())
    assert ours.result_.traffic_by_phase["set-up"].rounds > 0
    assert len(ours.history_) > 0


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_scaling_and_whitening(whiten, scale):
    X = sample() * np.geomspace(1, 100, 12)
    theirs = PCA(3, whiten=whiten)
    theirs = make_pipeline(StandardScaler(), theirs) if scale else theirs
    expected = theirs.fit_transform(X)
    ours = DecentralizedPCA(3, whiten=whiten, scale=scale, tol=1e-9)
    scores = ours.fit_transform(X)
    assert np.allclose(np.abs(scores), np.abs(expected), rtol=0, atol=1e-6 * np.abs(expected).max())
    assert np.allclose(ours.inverse_transform(scores), theirs.inverse_transform(expected), rtol=0, atol=1e-4)
    if scale:
        assert np.allclose(ours.scale_, X.std(axis=0))


def test_all_components_rebuild_the_data_and_score():
    X = sample(d=5)
    ours = DecentralizedPCA(tol=1e-8, n_nodes=4, max_rounds=30_000).fit(X)
    assert ours.n_components_ == 5
    assert np.allclose(ours.inverse_transform(ours.transform(X)), X, rtol=0, atol=1e-5)
    assert ours.noise_variance_ == 0
    assert ours.score(X) == pytest.approx(PCA().fit(X).score(X), rel=1e-6)


def test_a_share_of_the_variance(digits):
    X, _ = digits
    for share in (0.1, 0.5):
        ours = DecentralizedPCA(share).fit(X)
        theirs = PCA(share).fit(X)
        assert ours.n_components_ == theirs.n_components_
        assert np.allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-8)
        assert ours.node_components_.shape[1] == len(ours.certificate_.values) == ours.n_components_
        assert ours.certificate_.error_bound < 1e-6
        iterations = [record.iteration for record in ours.history_]
        assert iterations == sorted(iterations)


@pytest.mark.parametrize("split", ["random", "contiguous", "label", "dirichlet:0.5"])
def test_the_answer_does_not_depend_on_who_holds_what(digits, split):
    X, y = digits
    ours = DecentralizedPCA(2, n_nodes=10, split=split, topology="complete", max_rounds=20_000).fit(X, y)
    _, vectors = truth(X)
    assert ours.stop_reason_ is StopReason.CONVERGED
    assert angles(ours.node_components_, vectors).max() < 1e-6


def test_nodes_by_name_and_the_ways_to_give_a_network(digits):
    X, y = digits
    _, vectors = truth(X)
    graph = nx.relabel_nodes(nx.cycle_graph(10), {i: f"site {i}" for i in range(10)})
    weights = graphs.metropolis(graphs.topologies.star(10))
    for topology in (graph, weights, weights.matrix, sparse.csr_array(weights.matrix), "path"):
        ours = DecentralizedPCA(1, topology=topology, averaging=Chebyshev(), solver=FastPCA(), max_rounds=20_000)
        ours.fit(X, nodes=y)
        assert ours.n_nodes_ == 10
        assert angles(ours.node_components_, vectors).max() < 1e-6


def test_sparse_data_frames_lists_and_shards_give_the_same():
    X = sample(d=6)
    X[X.mean() > X] = 0
    expected = DecentralizedPCA(2, n_nodes=4).fit(X)
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(6)])
    assert list(DecentralizedPCA(2).fit(frame).feature_names_in_) == list(frame.columns)
    for other in (sparse.csr_matrix(X), sparse.coo_array(X), frame, X.tolist()):
        ours = DecentralizedPCA(2, n_nodes=4).fit(other)
        assert np.allclose(ours.components_, expected.components_, rtol=0, atol=1e-9)
        assert np.allclose(ours.transform(other), expected.transform(X), rtol=0, atol=1e-8)
    shards = Shards.from_array(X, 4)
    assert np.allclose(DecentralizedPCA(2).fit(shards).components_, expected.components_, rtol=0, atol=1e-9)


def test_missing_entries_take_the_pooled_mean():
    X = sample(d=6)
    holes = X.copy()
    holes[3, 2] = np.nan
    holes[100, 5] = np.inf
    filled = holes.copy()
    for row, column in ((3, 2), (100, 5)):
        seen = holes[np.isfinite(holes[:, column]), column]
        filled[row, column] = seen.mean()
    ours = DecentralizedPCA(2, missing="mean", tol=1e-9).fit(holes)
    _, vectors = truth(filled)
    assert angles(ours.components_, vectors).max() < 1e-8
    assert np.allclose(ours.transform(holes), ours.transform(filled), rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_what_is_fitted_is_float64_for_samples_of_any_dtype(dtype):
    samples = (10 * sample()).astype(dtype)
    ours = DecentralizedPCA(2).fit(samples)
    assert {ours.components_.dtype, ours.node_components_.dtype, ours.mean_.dtype} == {np.dtype(np.float64)}
    assert ours.stop_reason_ is StopReason.CONVERGED
    assert ours.transform(samples).dtype == (np.float32 if dtype == "float32" else np.float64)


@pytest.mark.parametrize("routed", [False, True], ids=["by name", "metadata routing"])
def test_searches_pass_the_nodes_of_each_fold_on(routed):
    X, nodes = sample(), np.arange(len(sample())) % 3
    with sklearn.config_context(enable_metadata_routing=routed):
        step = DecentralizedPCA(2, tol=1e-3, random_state=0)
        step = step.set_fit_request(nodes=True) if routed else step
        pipeline = make_pipeline(StandardScaler(), step, LogisticRegression())
        given = {"nodes": nodes} if routed else {"decentralizedpca__nodes": nodes}
        search = GridSearchCV(pipeline, {"decentralizedpca__n_components": [1, 3]}, cv=2).fit(X, X[:, 0] > 0, **given)
    assert search.best_estimator_[1].node_names_ == ("0", "1", "2")


def test_pipeline_grid_search_clone_pickle_and_set_output(digits):
    X, _ = digits
    pipeline = make_pipeline(StandardScaler(), DecentralizedPCA(2, tol=1e-3, n_nodes=3))
    search = GridSearchCV(pipeline, {"decentralizedpca__n_components": [1, 3]}, cv=2).fit(sample())
    assert search.best_params_["decentralizedpca__n_components"] == 3
    assert search.best_score_ == pytest.approx(
        GridSearchCV(make_pipeline(StandardScaler(), PCA()), {"pca__n_components": [1, 3]}, cv=2)
        .fit(sample())
        .best_score_
    )
    estimator = clone(DecentralizedPCA(3, tol=1e-4, topology="cycle", n_nodes=5)).fit(X)
    again = pickle.loads(pickle.dumps(estimator))
    assert (again.transform(X) == estimator.transform(X)).all()
    frame = estimator.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == ["decentralizedpca0", "decentralizedpca1", "decentralizedpca2"]


def test_the_same_seed_gives_the_same_bits(digits):
    X, _ = digits
    first, again, other = (DecentralizedPCA(2, random_state=seed, tol=1e-4).fit(X) for seed in (3, 3, 4))
    assert (first.node_components_ == again.node_components_).all()
    assert (first.node_components_ != other.node_components_).any()
    generator = DecentralizedPCA(2, random_state=np.random.RandomState(0), tol=1e-4).fit(X)
    assert generator.stop_reason_ is StopReason.CONVERGED


def test_verbose_and_a_listener(digits, capfd):
    seen = []
    DecentralizedPCA(2, verbose=True, on_event=on_record(seen.append)).fit(digits[0])
    assert seen[-1].residual < seen[0].residual
    assert capfd.readouterr().out == ""


def test_a_budget_that_ends_first_warns_and_keeps_the_result(digits):
    with pytest.warns(
        ConvergenceWarning, match=r"max_rounds\): the sines of the angles .* bounded by .*tol = 1e-06.*Raise max_rounds"
    ):
        ours = DecentralizedPCA(3, max_rounds=5).fit(digits[0])
    assert ours.stop_reason_ is StopReason.MAX_ROUNDS
    assert np.isfinite(ours.components_).all()


X = sample(60, 4)
CONSTANT = np.column_stack([X, np.ones(60)])
HOLES = X.copy()
HOLES[7, 3] = np.nan


@pytest.mark.parametrize(
    ("settings", "data", "error", "message"),
    [
        ({"n_components": 0}, X, InputError, "n_components = 0 must be a whole number of at least 1"),
        ({"n_components": 5}, X, InputError, "n_components = 5 must be at most 4, the number of features"),
        ({"n_components": 4, "n_nodes": 2}, X[:4], InputError, "at most 3, the number of samples less one"),
        ({"n_components": 1.5}, X, InputError, "n_components = 1.5 must be .* a number strictly between 0 and 1"),
        ({"n_components": 2, "n_nodes": 61}, X, DataError, "n_nodes = 61 is more than the 60 samples"),
        ({"n_components": 2}, [X, X[:0]], DataError, "node 1 has no rows"),
        ({"n_components": 2}, [X, X[:, :3]], DataError, "unequal numbers of columns: node 1 has 3"),
        ({"n_components": 2, "split": "contiguous", "n_nodes": 6}, HOLES, DataError, r"node 0.*row 7.*column 3"),
        ({"n_components": 2}, np.ones((30, 3)), DataError, "total variance is zero"),
        ({"n_components": 2, "scale": True}, CONSTANT, DataError, "column 4"),
        ({"topology": "moebius"}, X, UnknownNameError, "unknown topology 'moebius'; there are: .*cycle"),
        ({"solver": "oja"}, X, UnknownNameError, "unknown solver 'oja'; there are: .*fast-pca"),
        ({"averaging": "magic"}, X, UnknownNameError, "unknown averaging 'magic'"),
        ({"split": "odd"}, X, UnknownNameError, "unknown split 'odd'"),
        ({"covariance": "dense"}, X, UnknownNameError, "unknown covariance 'dense'; there are: auto, chunked"),
        ({"weights": "heavy"}, X, UnknownNameError, "unknown .*'heavy'.*metropolis"),
        ({"missing": "median"}, X, UnknownNameError, "'median'"),
        ({"topology": nx.Graph([(0, 1), (2, 3)])}, X, GraphError, "connected|components"),
        ({"topology": np.array([[0.5, 0.4], [0.4, 0.5]])}, X, GraphError, "sum"),
        ({"topology": nx.path_graph(3)}, [X, X], InputError, "network has 3 nodes but the data have 2 parts"),
        ({"tol": -1}, X, InputError, "tol = -1"),
        ({"random_state": "x"}, X, InputError, "random_state = 'x'"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_with_value_bound_and_fix(settings, data, error, message):
    with pytest.raises(error, match=message):
        DecentralizedPCA(**{"n_components": 2, **settings}).fit(data)


def test_a_missing_entry_is_named_by_its_row_in_the_data_too():
    with pytest.raises(DataError, match=r"node \d, row \d+ \(row 7 of the data\), column 3 is NaN"):
        DecentralizedPCA(2, n_nodes=5).fit(HOLES)


def test_planning_leaves_a_fitted_estimator_alone_and_refitting_leaves_nothing_stale():
    estimator = DecentralizedPCA(2, n_nodes=3).fit(pd.DataFrame(X, columns=list("abcd")))
    estimator.plan(X[:, :3])
    assert estimator.transform(pd.DataFrame(X, columns=list("abcd"))).shape == (60, 2)
    estimator.set_params(n_nodes=2).fit([X[:30], X[30:]])
    assert not hasattr(estimator, "feature_names_in_")


def test_data_out_of_range_and_loose_averages_are_refused():
    with pytest.raises(DataError, match=r"total variance .* must be in 1e-100\.\.1e"):
        DecentralizedPCA(2).fit(X * 1e80)
    DecentralizedPCA(2).fit((X * 1e-12).astype(np.float32))
    with pytest.raises(InputError, match="too low for exact moments"):
        DecentralizedPCA(2, topology="cycle", averaging=Chebyshev(1e-3)).fit(X)


def test_labels_are_asked_for_when_a_split_needs_them():
    with pytest.raises(InputError, match="needs labels"):
        DecentralizedPCA(2, split="label").fit(X)
    with pytest.raises(InputError, match="already in parts"):
        DecentralizedPCA(2).fit([X, X], nodes=np.zeros(120))


def test_no_likelihood_without_noise_is_said():
    few = sample(4, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator = DecentralizedPCA(3, n_nodes=1).fit(few)
    estimator.noise_variance_ = 0.0
    with pytest.raises(InputError, match="leaves no variance for noise"):
        estimator.score(few)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="resource limits are POSIX")
def test_a_memory_map_larger_than_the_memory_cap_is_fitted(tmp_path):
    path = tmp_path / "large.npy"
    n, d = 200_000, 100  # 160 MB
    values = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n, d))
    rng = np.random.default_rng(0)
    spread = np.array([10.0, 5.0, *[1.0] * (d - 2)])
    for start in range(0, n, 20_000):
        values[start : start + 20_000] = rng.standard_normal((20_000, d)) * spread + 1
    values.flush()
    del values
    code = f"""
        import resource
        import numpy as np
        from eigenmesh import DecentralizedPCA
        X = np.load({str(path)!r}, mmap_mode="r")
        held = int(open("/proc/self/status").read().split("VmData:")[1].split()[0]) * 1024
        cap = held + 100 * 2**20
        resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
        try:
            np.array(X)
        except MemoryError:
            print("too large to read whole")
        for covariance in ("auto", "chunked"):
            pca = DecentralizedPCA(2, n_nodes=4, split="contiguous", covariance=covariance, tol=1e-3)
            pca.set_params(topology="complete").fit(X)
            print(pca.stop_reason_.label, np.abs(pca.components_).argmax(axis=1).tolist())
    """
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["too large to read whole", "converged [0, 1]", "converged [0, 1]"]
