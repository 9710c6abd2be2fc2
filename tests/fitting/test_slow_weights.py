"""Fits on networks whose weights hardly mix, W = I - e L."""

import networkx as nx
import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.averaging import Chebyshev, Polynomial
from eigenmesh.data.datasets import geometric_spectrum
from eigenmesh.errors import InputError
from problems import angles, make_problem

M, K = 8, 2
GRAPH = graphs.topologies.erdos_renyi(M, p=0.6, seed=1)
PROBLEM = make_problem(geometric_spectrum(8, K, 0.7), M, unlike=True)


def fit(share, **settings):
    weights = graphs.from_matrix(np.eye(M) - share * nx.laplacian_matrix(GRAPH).toarray(), GRAPH)
    return DecentralizedPCA(K, topology=weights, random_state=0, **settings).fit(PROBLEM.parts)


@pytest.mark.parametrize("averaging", ["auto", "tree", "factored", "integers"])
@pytest.mark.parametrize("share", [1e-3, 1e-5, 1e-6, 1e-8, 1e-9])
def test_what_does_not_depend_on_the_weights_converges(share, averaging):
    pca = fit(share, averaging=averaging, tol=1e-9)
    assert pca.result_.converged
    assert (angles(pca.result_.node_components, PROBLEM.vectors) <= pca.certificate_.error_bounds).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("averaging", [Chebyshev(), Polynomial(), Chebyshev(1e-8), Polynomial(1e-8)], ids=repr)
@pytest.mark.parametrize("share", [1e-3, 1e-5, 3e-6, 1e-6, 1e-7, 1e-8])
def test_the_bounds_of_averages_that_are_accepted_hold(share, averaging):
    try:
        pca = fit(share, averaging=averaging, tol=1e-9)
    except InputError:
        assert share <= 3e-6
        return
    assert (angles(pca.result_.node_components, PROBLEM.vectors) <= pca.certificate_.error_bounds).all()


@pytest.mark.parametrize("averaging", ["chebyshev", "polynomial"])
def test_what_does_not_reach_its_accuracy_is_refused(averaging):
    with pytest.raises(
        InputError, match=rf"{averaging} averages on this network reach an accuracy of .*e-0[78], not 1e-12"
    ):
        fit(1e-9, averaging=averaging)


def test_the_accuracy_that_counts_is_the_one_asked_for():
    assert fit(1e-6, averaging=Chebyshev(1e-8), tol=1e-4).result_.converged


@pytest.mark.parametrize("share", [1e-4, 1e-9])
def test_gossip_obeys_max_rounds(share):
    with pytest.raises(
        InputError, match=r'takes [\d,]+ rounds .*max_rounds = 5,000; use averaging="tree", which takes \d'
    ):
        fit(share, averaging="gossip", max_rounds=5000)
