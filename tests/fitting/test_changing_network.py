"""Fits on networks that change or lose messages, from the estimator down."""

import re
import warnings

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.averaging import PushSum, Tree
from eigenmesh.data import Shards
from eigenmesh.data.datasets import geometric_spectrum
from eigenmesh.errors import InputError
from eigenmesh.fitting import NodeData, Request, plan
from eigenmesh.solvers import SOLVERS
from problems import angles, make_problem

M, K = 8, 3
ER = graphs.topologies.erdos_renyi(M, seed=1)
CHANGING = graphs.changing.links_up(ER, 0.6, seed=1)
PROBLEM = make_problem(geometric_spectrum(12, K, 0.7), M, unlike=True)


@pytest.mark.parametrize("solver", ["auto", "tracked-subspace"])
@pytest.mark.parametrize("network", [CHANGING, graphs.changing.lossy(ER, 0.2, delay=1)], ids=["links up", "lossy"])
def test_a_fit_is_that_of_the_pooled_data(network, solver):
    pca = DecentralizedPCA(K, topology=network, solver=solver, random_state=0).fit(PROBLEM.parts)
    true = angles(pca.result_.node_components, PROBLEM.vectors).max(axis=0)
    assert pca.result_.converged
    assert (pca.certificate_.error_bounds >= true).all()
    assert np.allclose(pca.mean_, PROBLEM.pooled.mean(axis=0), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("topology", "words"), [(CHANGING, "a network that changes"), (graphs.metropolis(ER), "this topology")]
)
def test_weights_by_name_are_refused_where_they_would_not_count(topology, words):
    with pytest.raises(InputError, match=f"{words} has its own weights, so weights = 'max_degree' would have"):
        DecentralizedPCA(K, topology=topology, weights="max_degree").fit(PROBLEM.parts)


def test_a_share_of_the_variance_and_a_looser_push_sum():
    settings = {"topology": CHANGING, "averaging": PushSum(1e-10), "random_state": 0}
    pca = DecentralizedPCA(0.8, **settings).fit(PROBLEM.parts)
    assert pca.explained_variance_ratio_.sum() > 0.8
    assert pca.result_.converged
    assert DecentralizedPCA(**settings).fit(PROBLEM.parts).n_components_ == 12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"averaging": Tree()}, r"tree averaging needs a network that stays the same; leave it out, or use PushSum"),
        ({"privacy": "masked"}, r"masks need a tree or an all-reduce"),
        ({"solver": "deepca"}, r"use the solver tracked-subspace"),
    ],
)
def test_what_needs_a_network_that_stays_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        DecentralizedPCA(K, topology=CHANGING, **settings).fit(PROBLEM.parts)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (CHANGING, r"sent again until they arrive block-krylov would take about \d+ rounds.*which is less"),
        (graphs.changing.lossy(graphs.changing.fresh_graphs(M, 0.2), 0.3), r"would take about \d+ rounds"),
    ],
    ids=["links up", "lossy"],
)
def test_a_plan_forecasts_what_a_fit_takes_and_speaks_of_the_tree(network, words):
    data = NodeData(Shards.from_list(PROBLEM.parts), network)
    planned = plan(Request(K, seed=0), data)
    assert re.search(words, planned.reason)
    assert planned.best.solver == "block-krylov"
    lines = {line.solver: line for line in planned.forecasts}
    assert ("fast-pca" in lines) == network.reliable
    for name in ("block-krylov", "tracked-subspace"):
        settings = {"topology": network, "solver": name, "random_state": 0}
        spent = DecentralizedPCA(K, **settings).fit(PROBLEM.parts).traffic_
        assert lines[name].rounds == pytest.approx(spent.rounds, rel=0.5)
        assert lines[name].bytes == pytest.approx(spent.bytes, rel=0.5)


# Solvers that mix with fixed weights; and those that mix at all, where messages get lost.
NEEDS_FIXED_WEIGHTS = {"deepca", "s-dot", "sa-dot", "seq-dist-pm"}
NEEDS_ALL_MESSAGES = NEEDS_FIXED_WEIGHTS | {"dsa", "fast-pca"}


@pytest.mark.parametrize(
    ("network", "refused"),
    [(CHANGING, NEEDS_FIXED_WEIGHTS), (graphs.changing.lossy(ER, 0.2), NEEDS_ALL_MESSAGES)],
    ids=["links up", "lossy"],
)
@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver_is_right_or_refused_with_the_one_to_use(solver, network, refused):
    pca = DecentralizedPCA(1, topology=network, solver=solver, random_state=0, tol=1e-2, max_rounds=300)
    if solver in refused:
        with pytest.raises(InputError, match="use the solver tracked-subspace"):
            pca.fit(PROBLEM.parts)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pca.fit(PROBLEM.parts)
    assert angles(pca.result_.node_components, PROBLEM.vectors).max() <= pca.certificate_.error_bound
