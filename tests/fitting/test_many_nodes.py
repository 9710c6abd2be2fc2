"""Thousands of simulated nodes: time and memory go with their number, not with its square."""

import tracemalloc

import numpy as np

from eigenmesh import DecentralizedPCA
from problems import angles, truth

N_NODES = 5000


def test_no_array_has_an_entry_for_each_pair_of_nodes():
    X = np.random.default_rng(0).standard_normal((2 * N_NODES, 10)) * np.geomspace(3, 0.5, 10)
    tracemalloc.start()
    try:
        pca = DecentralizedPCA(3, n_nodes=N_NODES, topology="regular").fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert pca.result_.converged
    assert angles(pca.components_, truth(X)[1]).max() <= pca.certificate_.error_bound < 1e-6
    # 5.2 kB per node; one byte for each pair of nodes would be 5 kB more.
    assert peak < 8000 * N_NODES
