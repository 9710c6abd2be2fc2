"""Samples of every dtype, with every averaging: what is certified is true, and reached."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from eigenmesh import DecentralizedPCA, graphs
from eigenmesh.averaging import AVERAGINGS
from eigenmesh.iteration import StopReason

DTYPES = ("float64", "float32", "float16", "int16", "uint8")
GRAPHS = {
    "path": graphs.topologies.path(9),
    "binary tree": graphs.topologies.binary_tree(15),
    "lollipop": nx.lollipop_graph(5, 4),
    "two nodes": graphs.topologies.path(2),
}
K = 2


def parts_of(dtype, n_nodes, seed=0):
    """Samples of unlike nodes; the values of every dtype are spread over its range."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((20 * n_nodes, 6)) * [9, 7, 4, 3, 2, 1] @ np.linalg.qr(rng.standard_normal((6, 6)))[0]
    rows += np.repeat(5 * rng.standard_normal((n_nodes, 6)), 20, axis=0)
    if dtype == "uint8":
        rows = np.clip(rows + 100, 0, 255)
    return np.split((100 * rows if dtype == "int16" else rows).astype(dtype), n_nodes)


def true_components(parts):
    """Leading eigenvectors of the pooled covariance, (6, K), corrected by residuals in extended precision."""
    rows = np.vstack(parts).astype(np.longdouble)
    rows -= rows.mean(axis=0)
    C = rows.T @ rows / (len(rows) - 1)
    values, vectors = np.linalg.eigh(C.astype(np.float64))
    found = []
    for k in range(1, K + 1):
        x = vectors[:, -k].astype(np.longdouble)
        for _ in range(2):
            theta = x @ C @ x / (x @ x)
            along, apart = vectors.T @ (C @ x - theta * x), theta - values.astype(np.longdouble)
            apart[-k] = np.inf
            x = x + vectors @ (along / apart)
        found.append(x / np.sqrt(x @ x))
    return np.stack(found, axis=1)


def sines(pca, parts):
    """Largest sine over the nodes of the angle to each true component, in extended precision: (K,)."""
    X, true = pca.node_components_.astype(np.longdouble), true_components(parts)
    X = X / np.sqrt((X**2).sum(axis=-1, keepdims=True))
    outside = X - np.einsum("nkd,dk->nk", X, true)[..., np.newaxis] * true.T
    return np.sqrt((outside**2).sum(axis=-1)).max(axis=0)


def assert_certified(pca, parts):
    assert pca.stop_reason_ is StopReason.CONVERGED
    assert pca.certificate_.error_bound <= 1e-6
    assert (sines(pca, parts) <= pca.certificate_.error_bounds).all()


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(AVERAGINGS.keys() - {"allreduce"}))
def test_every_averaging_certifies_samples_of_every_dtype(name, dtype, graph):
    parts = parts_of(dtype, len(GRAPHS[graph]))
    pca = DecentralizedPCA(K, topology=GRAPHS[graph], averaging=AVERAGINGS[name]()).fit(parts)
    assert_certified(pca, parts)


@pytest.mark.parametrize("seed", range(5))
def test_polynomial_averages_of_float32_samples_on_a_tree(seed):
    parts = parts_of("float32", 31, seed)
    pca = DecentralizedPCA(K, topology=graphs.topologies.binary_tree(31), averaging="polynomial").fit(parts)
    assert_certified(pca, parts)


@pytest.mark.parametrize("solver", ["one-sum", "block-krylov", "tracked-subspace"])
def test_the_averaging_chosen_for_a_long_path_certifies_float32_samples(solver):
    parts = parts_of("float32", 100)
    assert_certified(DecentralizedPCA(K, topology=graphs.topologies.path(100), solver=solver).fit(parts), parts)
