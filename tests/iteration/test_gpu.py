"""Runs on PyTorch tensors, on the CPU and on a GPU where there is one, have the answers and the traffic of NumPy."""

import numpy as np
import pytest
import torch

from eigenmesh import graphs, run
from eigenmesh.data import Block, Centring, Formed, MatrixFree, Place, as_source
from eigenmesh.networks import Stacked
from eigenmesh.networks.stacked import DENSE_ON_GPU
from eigenmesh.solvers import DSA, SDOT, BlockKrylov, DeEPCA, FastPCA, OrthogonalIteration, Sanger
from problems import with_spectrum

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is seen by PyTorch")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
VALUES = [5.0, 3.0, 1.8, 1.0, 0.5, 0.25, 0.2, 0.1]
SOLVERS = (FastPCA(), DSA(), Sanger(), DeEPCA(), SDOT(mixes=8), OrthogonalIteration(), BlockKrylov())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
def test_a_run_on_tensors_gives_the_components_of_numpy(solver, device):
    here, _ = with_spectrum(VALUES, n_nodes=5, unlike=0.02)
    there = Formed(torch.asarray(here.matrices, device=device))
    weights = graphs.metropolis(graphs.topologies.cycle(5))
    result, expected = (run(solver, C, Stacked(weights), 3, tol=1e-6, max_rounds=300) for C in (there, here))
    assert (result.iterations, result.traffic) == (expected.iterations, expected.traffic)
    assert np.allclose(result.node_components, expected.node_components, rtol=0, atol=1e-12)


def blocks(parts):
    return tuple(Block(as_source(part)) for part in parts)


@needs_gpu
@pytest.mark.parametrize("n_nodes", [300, DENSE_ON_GPU + 88], ids=["dense", "sparse"])
def test_many_nodes_with_factors_on_the_gpu(n_nodes):
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((30, 8)) * np.sqrt(VALUES) for _ in range(n_nodes)]
    network = Stacked(graphs.metropolis(graphs.topologies.regular(n_nodes, degree=6, seed=0)))
    centring = Centring(np.zeros(8))
    expected = run(FastPCA(), MatrixFree(blocks(rows), centring), Stacked(network.weights), 3, max_rounds=100)
    on_card = [torch.asarray(part, device="cuda") for part in rows]
    there = MatrixFree(blocks(on_card), centring, Place.named("cuda"))
    result = run(FastPCA(), there, network, 3, max_rounds=100)
    assert np.allclose(result.node_components, expected.node_components, rtol=0, atol=1e-10)
    assert result.traffic == expected.traffic
