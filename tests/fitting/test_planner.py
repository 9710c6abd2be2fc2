"""The planner: a fit does what the plan says, and takes what it forecasts."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits

from eigenmesh import Costs, DecentralizedPCA, graphs
from eigenmesh.averaging import AVERAGINGS, AllReduce, Chebyshev, Factored, Polynomial, Tree, name_of
from eigenmesh.data import RandomSplit, Shards, load
from eigenmesh.data.datasets import gaussian, geometric_spectrum, paper_spectrum, power_law_spectrum
from eigenmesh.errors import DataError, InputError
from eigenmesh.fitting import NodeData, Request, Workload, choose_method, fit, plan, prepare, quick_forecast
from eigenmesh.networks import Stacked
from eigenmesh.solvers import BlockKrylov, DeEPCA, FastPCA, OneSum, TrackedSubspace
from eigenmesh.transports import run_threads

TOPOLOGIES = ["erdos_renyi", "cycle", "path", "star", "complete"]


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


def data_of(X, y=None, topology="erdos_renyi", n_nodes=10):
    shards = Shards.from_array(X, n_nodes, RandomSplit(0)) if y is None else Shards.from_labels(X, y)
    return NodeData(shards, graphs.metropolis(graphs.topology(topology, shards.n_nodes)))


def assert_within(line, traffic, rounds=1.2, sent=1.25):
    assert traffic.rounds / rounds <= line.rounds <= traffic.rounds * rounds, (line, traffic)
    assert traffic.bytes / sent <= line.bytes <= traffic.bytes * sent, (line, traffic)


def assert_done_as_planned(request, data):
    # A forecast is of one start; another may take a product more or less.
    request = replace(request, seed=0)
    best = plan(request, data).best
    fitted = fit(prepare(request, data))
    assert (best.solver, best.averaging) == (fitted.result.solver, fitted.averaging)
    assert_within(best, fitted.result.traffic)


@pytest.mark.parametrize("solver", [None, TrackedSubspace()])
def test_the_chosen_line_alone_is_that_of_the_plan(digits, solver):
    request, data = Request(3, solver=solver), data_of(digits[0])
    assert quick_forecast(request, data) == plan(request, data).best


def test_of_many_samples_half_are_looked_at_where_a_plan_would_take_all():
    wide = np.random.default_rng(0).standard_normal((600, 1800))
    wide[:, :3] *= [20, 14, 10]
    looked_at = []

    class Looked(Shards):
        def thinned(self, n_rows):
            looked_at.append(n_rows)
            return super().thinned(n_rows)

    data = data_of(wide)
    data = replace(data, shards=Looked(**vars(data.shards)))
    request = Request(3, seed=0)
    assert_within(quick_forecast(request, data), fit(prepare(request, data)).result.traffic)
    assert looked_at == [300]


@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.slow), 3, 5, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("by_label", [False, True])
def test_a_fit_of_digits_takes_what_is_forecast(digits, topology, by_label, k):
    X, y = digits
    assert_done_as_planned(Request(k), data_of(X, y if by_label else None, topology))


@pytest.mark.parametrize(
    "spectrum",
    [
        paper_spectrum(60, 5, 0.8),
        paper_spectrum(60, 5, 0.97),
        power_law_spectrum(80, 1.0),
        geometric_spectrum(50, 5, 0.9),
    ],
    ids=["gap-0.8", "gap-0.97", "power-law", "geometric"],
)
@pytest.mark.parametrize("k", [1, 5])
def test_a_fit_of_made_up_spectra_takes_what_is_forecast(spectrum, k):
    assert_done_as_planned(Request(k), data_of(gaussian(spectrum, 5000, seed=0), topology="cycle"))


ASKED_FOR = {
    "scaled": Request(5, scale=True),
    "share of the variance": Request(0.9),
    "all components": Request(None),
    "missing entries": Request(5, missing="mean"),
    "loose": Request(5, tol=1e-3),
    "chebyshev": Request(5, averaging=Chebyshev()),
    "allreduce": Request(5, averaging=AllReduce()),
    "tracked-subspace": Request(3, solver=TrackedSubspace()),
    "fast-pca": Request(3, solver=FastPCA()),
    "deepca": Request(3, solver=DeEPCA()),
    "one-sum": Request(3, solver=OneSum(), averaging=Polynomial()),
    "little memory": Request(5, costs=Costs(memory_bytes=1.0)),
}


@pytest.mark.parametrize("name", ASKED_FOR)
def test_what_is_asked_for_is_planned_and_done(digits, name):
    X = digits[0][:, digits[0].std(axis=0) > 0.5]
    assert_done_as_planned(ASKED_FOR[name], data_of(X))


def test_a_notebook_shows_every_forecast(digits):
    found = plan(Request.parse(n_components=2, random_state=0), data_of(digits[0][:200], n_nodes=4))
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + len(found.forecasts)
    assert f"<td>{found.best.solver}</td><td>{found.best.averaging}</td><td>{found.best.rounds:.3g}</td>" in page


def test_single_precision_and_sparse_data_are_forecast(digits):
    X, y = digits
    for samples in (X.astype(np.float32), sparse.csr_array(X)):
        assert_done_as_planned(Request(3, tol=1e-3), data_of(samples, y))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "hapmap3"])
@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize(
    ("topology", "k", "scale"), [("erdos_renyi", 5, False), ("cycle", 10, True), ("star", 1, False)]
)
def test_a_fit_of_large_data_takes_what_is_forecast(name, by_label, topology, k, scale):
    folder = os.environ.get("EIGENMESH_DATA")
    if folder is None or not (Path(folder) / f"{name}.npz").exists():
        pytest.skip(f"{name}.npz is not in the folder EIGENMESH_DATA")
    table = load(name)
    X = table.X[:, table.X.std(axis=0) > 0] if scale else table.X
    assert_done_as_planned(Request(k, scale=scale), data_of(X, table.labels if by_label else None, topology))


@pytest.mark.parametrize("solver", [TrackedSubspace(), FastPCA(), OneSum()], ids=lambda solver: solver.name)
@pytest.mark.parametrize("topology", ["cycle", "erdos_renyi"])
@pytest.mark.parametrize("by_label", [False, True])
def test_other_solvers_are_forecast_or_said_not_to_converge(digits, solver, topology, by_label):
    X, y = digits
    data = data_of(X, y if by_label else None, topology)
    # A forecast is of one start; from others tracked subspace iteration takes half to twice as many iterations.
    planned = plan(Request(5, seed=0), data)
    line = next(line for line in planned.forecasts if line.solver == solver.name and line.averaging == "tree")
    result = fit(prepare(Request(5, solver=solver, averaging=Tree(), seed=0), data)).result
    assert result.converged == np.isfinite(line.rounds)
    if result.converged:
        assert_within(line, result.traffic, rounds=1.5, sent=1.5)


def test_a_budget_that_does_not_suffice_is_said(digits):
    planned = plan(Request(5, max_rounds=20), data_of(digits[0], topology="path"))
    assert np.isinf(planned.best.rounds)
    assert "does not reach the tolerance within 20 rounds" in planned.reason
    result = fit(prepare(Request(5, max_rounds=20), data_of(digits[0], topology="path"))).result
    assert not result.converged


@pytest.mark.parametrize(
    "costs", [Costs(), Costs(latency_s=0, bandwidth_bytes_s=1e4), Costs(1.0, 1e9, 1e9, 1e4)], ids=str
)
@pytest.mark.parametrize(
    ("solver", "averaging"), [(None, None), (FastPCA(), None), (None, Chebyshev()), (TrackedSubspace(), Tree())]
)
@pytest.mark.parametrize("topology", ["cycle", "complete"])
def test_every_node_of_a_transport_plans_what_the_fit_does(digits, topology, solver, averaging, costs):
    X = digits[0][:200, 20:40]
    shards, weights = Shards.from_array(X, 4, RandomSplit(0)), graphs.metropolis(graphs.topology(topology, 4))
    request = Request(2, solver=solver, averaging=averaging, costs=costs, tol=1e-3)

    def node(transport):
        data = NodeData(shards.take([transport.rank]), weights, transport)
        return plan(request, data), fit(prepare(request, data))

    simulated = plan(request, NodeData(shards, weights)).best
    for planned, fitted in run_threads(4, node):
        method = (fitted.result.solver, fitted.averaging)
        assert (planned.best.solver, planned.best.averaging) == (simulated.solver, simulated.averaging) == method
        assert planned.rehearsed_on == "50 samples of this node only"


def test_a_node_with_too_few_samples_plans_on_made_up_ones(digits):
    X = digits[0][:100, 20:40]
    shards, weights = Shards.from_list([X, X[:2] + 1.0]), graphs.metropolis(graphs.topologies.path(2))

    def node(transport):
        return plan(Request(4), NodeData(shards.take([transport.rank]), weights, transport))

    first, second = run_threads(2, node)
    assert first.rehearsed_on == "100 samples of this node only"
    assert "made-up" in second.rehearsed_on
    assert (first.best.solver, first.best.averaging) == (second.best.solver, second.best.averaging)
    assert np.isfinite(second.best.rounds)


def test_an_all_reduce_is_a_candidate_where_the_engine_has_one():
    for topology in TOPOLOGIES:
        for n_nodes in (2, 3, 20):
            workload = Workload(graphs.metropolis(graphs.topology(topology, n_nodes)), 20, 5, has_all_reduce=True)
            assert choose_method(workload, Costs()) == (BlockKrylov(), AllReduce())
            assert not isinstance(choose_method(workload._replace(has_all_reduce=False), Costs())[1], AllReduce)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_no_averaging_sends_fewer_bytes_than_the_one_that_is_taken(topology):
    weights = graphs.metropolis(graphs.topology(topology, 20))
    sent = {}
    for name, kind in AVERAGINGS.items():
        network = Stacked(weights, kind())
        network.common_mean_and_maximum(np.ones((20, 50, 8)), np.ones((20, 8)))
        network.maximum(np.ones((20, 8)))
        sent[name] = network.traffic.bytes
    del sent["allreduce"]  # not over links
    assert sent[name_of(choose_method(Workload(weights, 50, 3), Costs())[1])] == min(sent.values())


def test_a_plan_forecasts_the_bytes_of_a_lean_run():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 400)) * np.arange(1, 401.0) ** -0.7
    settings = {"n_nodes": 6, "topology": "path", "random_state": 0}
    sent = {}
    for lean in (True, False):
        pca = DecentralizedPCA(4, solver=BlockKrylov(lean=lean), **settings)
        sent[lean] = pca.fit(X).result_.traffic.bytes
        assert pca.plan(X).best.bytes == pytest.approx(sent[lean], rel=0.35)
    assert sent[True] < 0.6 * sent[False]


def test_what_shows_covariances_is_listed_but_never_taken(digits):
    # Twenty features: the packed covariance is by far the least to send.
    planned = DecentralizedPCA(5, n_nodes=10).plan(digits[0][:, 20:40])
    cheapest = planned.forecasts[0]
    assert cheapest.solver == "one-sum"
    assert cheapest.shows_covariances
    assert not planned.best.shows_covariances
    assert "One sum of the covariance is not considered: it would show more." in planned.reason


def test_what_the_weights_do_not_suit_is_left_out(digits):
    data = replace(data_of(digits[0]), weights=graphs.pull(graphs.topologies.random_out(10, seed=0)))
    planned = plan(Request(2, seed=0), data)
    assert planned.best.solver == "block-krylov"
    assert "tracked-subspace" not in {line.solver for line in planned.forecasts}


def test_seconds_follow_the_costs(digits):
    data = data_of(digits[0], topology="cycle", n_nodes=20)
    far = plan(Request(5, costs=Costs(latency_s=1.0, bandwidth_bytes_s=1e12, flops_s=1e15)), data).best
    assert far.averaging == "tree"
    assert far.seconds == pytest.approx(far.rounds, rel=1e-3)
    thin = plan(Request(5, costs=Costs(latency_s=0.0, bandwidth_bytes_s=1e4, flops_s=1e15)), data).best
    # On a cycle a tree is two paths, which send at the same time: of 2 x 19 messages 20 follow each other.
    assert thin.seconds == pytest.approx(thin.bytes * 20 / 38 / 1e4, rel=0.15)


def test_little_memory_makes_the_basis_narrow_and_too_little_is_said(digits):
    shards = data_of(digits[0])
    workload = Workload(shards.weights, 64, 5)
    whole = 8 * BlockKrylov().kept_numbers(5, 64)
    assert choose_method(workload, Costs(memory_bytes=whole))[0] == BlockKrylov()
    narrow, _ = choose_method(workload, Costs(memory_bytes=whole / 2))
    assert 8 * narrow.kept_numbers(5, 64) <= whole / 2
    planned = plan(Request(5, costs=Costs(memory_bytes=1)), shards)
    assert "more than the 1 allowed" in planned.reason


def test_unless_asked_nodes_average_in_ways_that_give_all_the_same_bits():
    for graph in (graphs.topologies.cycle(20), graphs.topologies.erdos_renyi(20)):
        workload = Workload(graphs.metropolis(graph), 20, 5)
        assert choose_method(workload, Costs())[1] == Tree()
        assert choose_method(workload._replace(has_all_reduce=True), Costs())[1] == AllReduce()


def test_a_round_lasts_as_long_as_its_busiest_node_sends():
    weights = graphs.metropolis(graphs.topologies.erdos_renyi(20))
    tree, factored = (kind().prepare(weights) for kind in (Tree, Factored))
    degree = max(degree for _, degree in weights.graph.degree)
    assert factored.in_turn == factored.rounds * degree
    assert tree.rounds <= tree.in_turn < tree.rounds * degree / 2


@pytest.mark.parametrize("name", ["bandwidth_bytes_s", "flops_s", "memory_bytes", "latency_s"])
def test_costs_are_checked(name):
    for value in (-1.0, "a", None, True, np.nan):
        with pytest.raises(InputError, match=f"{name} = {value!r} must be a number above 0"):
            Costs(**{name: value})


def test_planning_fits_nothing_and_says_what_it_does(digits):
    estimator, told = DecentralizedPCA(5), []
    estimator.plan(digits[0])
    assert not hasattr(estimator, "components_")
    plan(Request(5), data_of(digits[0]), report=told.append)
    assert told[0] == "rehearsing block-krylov"
    assert "rehearsing fast-pca" in told


def test_planning_takes_what_fitting_takes(digits):
    X = digits[0][:, 1:].astype(float).copy()
    X[:100] = 3.0  # the first node's samples are all equal
    X[700, 5] = np.nan
    for settings in ({"missing": "mean"}, {"missing": "mean", "split": "contiguous"}):
        planned = DecentralizedPCA(3, n_nodes=10, **settings).plan(X)
        assert planned.best.solver == "block-krylov"
    with pytest.raises(DataError, match="is NaN"):
        DecentralizedPCA(3, n_nodes=10).plan(X)
    planned = DecentralizedPCA(3, n_nodes=1).plan(digits[0])
    assert planned.best.averaging == "tree"


def test_columns_that_are_constant_in_the_copy_alone_are_no_error(digits, monkeypatch):
    monkeypatch.setattr("eigenmesh.fitting.planner.USUAL_NUMBERS", 1)
    monkeypatch.setattr("eigenmesh.fitting.planner.USUAL_ROWS", 300)
    X = digits[0][:, digits[0].std(axis=0) > 0.5].copy()
    X[:, 0] = 0.0
    X[::97, 0] = 1.0
    assert_done_as_planned(Request(2, scale=True), data_of(X, digits[1]))
    X[:, 0] = 0.0
    with pytest.raises(DataError, match="divide by zero in constant"):
        plan(Request(2, scale=True), data_of(X, digits[1]))
