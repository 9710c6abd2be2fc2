"""The planner: what it forecasts is what runs take, and it never picks what shows covariances."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from eigenmesh import Costs, DecentralizedPCA, graphs
from eigenmesh.averaging import Polynomial, Tree
from eigenmesh.data import Shards, paper_spectrum
from eigenmesh.errors import InputError
from eigenmesh.fitting import NodeData, Request, Workload, choose_method, plan
from problems import make_problem


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


@pytest.mark.parametrize("topology", ["erdos_renyi", "cycle", "path", "star", "complete"])
@pytest.mark.parametrize("split", ["random", "label"])
def test_forecast_rounds_and_bytes_are_within_twice_of_a_run(digits, topology, split):
    X, y = digits
    estimator = DecentralizedPCA(5, topology=topology, n_nodes=10, split=split)
    best = estimator.plan(X, y).best
    estimator.fit(X, y)
    assert best.solver == estimator.result_.solver == "block-krylov"
    assert best.rounds / 2 <= estimator.traffic_.rounds <= 2 * best.rounds
    assert best.bytes / 2 <= estimator.traffic_.bytes <= 2 * best.bytes


@pytest.mark.parametrize("averaging", ["tree", "polynomial", "chebyshev"])
def test_every_averaging_is_forecast(digits, averaging):
    X, _ = digits
    estimator = DecentralizedPCA(5, topology="grid", n_nodes=12, averaging=averaging, solver="block-krylov")
    line = next(
        line for line in estimator.plan(X).forecasts if (line.solver, line.averaging) == ("block-krylov", averaging)
    )
    estimator.fit(X)
    assert line.rounds / 2 <= estimator.traffic_.rounds <= 2 * line.rounds


def test_tracked_subspace_is_forecast(digits):
    X, _ = digits
    estimator = DecentralizedPCA(5, topology="cycle", n_nodes=10, averaging="polynomial", solver="tracked-subspace")
    lines = estimator.plan(X).forecasts
    line = next(line for line in lines if (line.solver, line.averaging) == ("tracked-subspace", "polynomial"))
    estimator.fit(X)
    assert line.rounds / 2.5 <= estimator.traffic_.rounds <= 2.5 * line.rounds


def test_what_shows_covariances_is_listed_but_never_taken(digits):
    X, _ = digits
    # Ten features: the packed covariance is by far the least to send.
    planned = DecentralizedPCA(5, n_nodes=10).plan(X[:, 20:30])
    cheapest = planned.forecasts[0]
    assert cheapest.solver == "tree-covariance"
    assert cheapest.shows_covariances
    assert not planned.best.shows_covariances
    assert "send covariances as such are not considered" in planned.reason


def test_latency_asks_for_few_rounds_and_bandwidth_for_few_bytes(digits):
    shards = Shards.from_array(digits[0], 20)
    weights = graphs.metropolis(graphs.cycle(20))
    data = NodeData(shards, weights)
    far = plan(Request(5, costs=Costs(latency_s=1.0, bandwidth_bytes_s=1e9)), data).best
    thin = plan(Request(5, costs=Costs(latency_s=0.0, bandwidth_bytes_s=1e4)), data).best
    assert far.averaging == "polynomial"
    assert thin.bytes <= far.bytes


def test_memory_that_does_not_suffice_is_said(digits):
    planned = DecentralizedPCA(5, n_nodes=10).plan(digits[0], costs=Costs(memory_bytes=1))
    assert "still more than" in planned.reason
    assert planned.best.memory_bytes == min(
        line.memory_bytes for line in planned.forecasts if not line.shows_covariances
    )


def test_the_quickest_averaging_of_a_graph():
    for graph, kernel in ((graphs.cycle(20), Polynomial), (graphs.erdos_renyi(20), Tree)):
        _, averaging = choose_method(Workload(graphs.metropolis(graph), 20, 5), Costs())
        assert isinstance(averaging, kernel)


def test_without_rehearsal_the_usual_number_is_assumed():
    problem = make_problem(paper_spectrum(20, 5, 0.8), n_nodes=8)
    shards = Shards.from_list(problem.parts)
    planned = plan(Request(5), NodeData(shards, problem.network.weights), rehearse=False)
    assert planned.best.solver == "block-krylov"
    assert not any(line.solver == "fast-pca" for line in planned.forecasts)


@pytest.mark.parametrize("name", ["bandwidth_bytes_s", "flops_s", "memory_bytes", "latency_s"])
def test_costs_are_checked(name):
    with pytest.raises(InputError, match=name):
        Costs(**{name: -1.0})


def test_planning_fits_nothing(digits):
    estimator = DecentralizedPCA(5)
    estimator.plan(digits[0])
    assert not hasattr(estimator, "components_")
    assert np.isfinite([line.seconds for line in estimator.plan(digits[0]).forecasts]).all()


def test_planning_takes_what_fitting_takes(digits):
    X = digits[0][:, 1:].astype(float).copy()
    X[:100] = 3.0  # the first node's samples are all equal
    X[700, 5] = np.nan
    for settings in ({"missing": "mean"}, {"missing": "mean", "split": "contiguous"}):
        planned = DecentralizedPCA(3, n_nodes=10, **settings).plan(X)
        assert planned.best.solver == "block-krylov"
    planned = DecentralizedPCA(3, n_nodes=1).plan(digits[0])
    assert planned.best.averaging == "tree"
