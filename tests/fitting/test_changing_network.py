"""Fits on networks that change or lose messages, from the estimator down."""

import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.averaging import PushSum, Tree
from eigenmesh.data import Shards, geometric_spectrum
from eigenmesh.errors import InputError
from eigenmesh.fitting import NodeData, Request, plan
from problems import angles, make_problem

M, K = 8, 3
ER = graphs.erdos_renyi(M, seed=1)
CHANGING = graphs.links_up(ER, 0.6, seed=1)
PROBLEM = make_problem(geometric_spectrum(12, K, 0.7), M, unlike=True)


@pytest.mark.parametrize("solver", ["auto", "tracked-subspace"])
@pytest.mark.parametrize("network", [CHANGING, graphs.lossy(ER, 0.2, delay=1)], ids=["links up", "lossy"])
def test_a_fit_is_that_of_the_pooled_data(network, solver):
    pca = DecentralizedPCA(K, topology=network, solver=solver, random_state=0).fit(PROBLEM.parts)
    true = angles(pca.result_.node_components, PROBLEM.vectors).max(axis=0)
    assert pca.result_.converged
    assert (pca.certificate_.error_bounds >= true).all()
    assert np.allclose(pca.mean_, PROBLEM.pooled.mean(axis=0), rtol=0, atol=1e-10)


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
        ({"transport": "threads"}, r"needs a network that stays the same, but this one changes"),
        ({"solver": "deepca"}, r"use the solver tracked-subspace"),
    ],
)
def test_what_needs_a_network_that_stays_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        DecentralizedPCA(K, topology=CHANGING, **settings).fit(PROBLEM.parts)


def test_a_plan_needs_a_network_that_stays():
    with pytest.raises(InputError, match="a plan needs a network that stays the same"):
        plan(Request(K), NodeData(Shards.from_list(PROBLEM.parts), CHANGING))
