"""What nodes do under torchrun beside the contract of all transports: tensors, groups that exist, signals."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import torch
import torch.distributed as dist

from eigenmesh import run
from eigenmesh.arrays import namespace_for
from eigenmesh.averaging import Tree
from eigenmesh.averaging.tree import AllReduce
from eigenmesh.data import Shards, build_covariance, pooled_moments
from eigenmesh.data.datasets import geometric_spectrum
from eigenmesh.networks import Peers, Stacked
from eigenmesh.solvers import DSA, SDOT, BlockKrylov, DeEPCA, FastPCA, OneSum, TrackedSubspace
from eigenmesh.transports import Transport
from eigenmesh.transports.torch import TorchTransport
from problems import angles, make_problem
from transports.failures import CULPRIT, FOR_EVER_S, rounds_without_end

SOLVERS = {
    solver.name: solver
    for solver in (FastPCA(), DeEPCA(mixes=8), DSA(), SDOT(mixes=20), BlockKrylov(), TrackedSubspace(), OneSum())
}
AVERAGINGS = {"all-reduce": AllReduce(), "tree": Tree()}
DTYPES = ("float64", "float32")
K = 3


def ring(transport: Transport):
    beside = sorted({(transport.rank - 1) % transport.size, (transport.rank + 1) % transport.size} - {transport.rank})
    return transport.links(beside, beside)


def tensors(transport: Transport):
    """Tensors and NumPy arrays in one message; each comes back in its own library."""
    rank = transport.rank
    grid = torch.arange(6.0, dtype=torch.float32).reshape(2, 3).T + rank  # not contiguous
    fixed = np.broadcast_to(np.float64(rank), (2, 2))  # not writable
    sent = (grid, np.arange(3)[::-1] + rank, fixed, torch.tensor(rank % 2 == 0), torch.zeros(0))
    outcome = {}
    for sender, (first, second, third, fourth, fifth) in transport.exchange(sent, ring(transport)).items():
        outcome[f"{sender}.right"] = (
            isinstance(first, torch.Tensor)
            and first.dtype == torch.float32
            and torch.equal(first, grid - rank + sender)
            and isinstance(second, np.ndarray)
            and (second == np.arange(3)[::-1] + sender).all()
            and third.tolist() == [[sender] * 2] * 2
            and bool(fourth) == (sender % 2 == 0)
            and fifth.shape == (0,)
        )
    return outcome


def reduced(transport: Transport):
    """The sum over all nodes, in the library of the argument, which stays as it is."""
    own = torch.tensor([1.0, float(transport.rank)], dtype=torch.float64)
    total = transport.all_reduce(own, "sum")
    largest = transport.all_reduce(own.numpy(), "max")
    return {"own": own.numpy(), "total": total.numpy(), "largest": largest, "tensor": isinstance(total, torch.Tensor)}


def existing_group(transport: Transport):
    """A second transport takes the group that is there, and leaves it when it closes."""
    with TorchTransport(timeout_s=20) as second:
        (heard, *_) = second.exchange((np.array([7.0 + second.rank]),), ring(second)).values()
    after = transport.all_reduce(np.ones(1), "sum")
    return {"heard": heard[0], "there": dist.is_initialized(), "after": after}


def solve(name: str, dtype: str, averaging_name: str):
    """Run a solver on tensors at the peers, and on NumPy arrays stacked."""
    averaging, solver = AVERAGINGS[averaging_name], SOLVERS[name]
    settings = {"tol": 1e-6, "max_rounds": 200, "seed": 5}

    def scenario(transport: Transport):
        problem = make_problem(geometric_spectrum(12, K, 0.6), transport.size, "cycle", seed=1, averaging=averaging)
        shards, weights = Shards.from_list([part.astype(dtype) for part in problem.parts]), problem.network.weights
        xp, device = namespace_for(transport.device)

        def fit(network, held, **place):
            return run(solver, build_covariance(held, pooled_moments(held, network), **place), network, K, **settings)

        stacked = fit(Stacked(weights, averaging), shards)
        own = fit(Peers(weights, transport, averaging), shards.take([transport.rank]), xp=xp, device=device)
        return {
            "angle": angles(own.node_components[0], stacked.node_components[transport.rank].T).max(),
            "same traffic": own.traffic == stacked.traffic,
            "same end": (own.stop_reason, own.iterations) == (stacked.stop_reason, stacked.iterations),
            "same signs": (np.sum(own.components * stacked.components, axis=1) > 0).all(),
            "components": own.components,
            "values": own.certificate.values,
        }

    return scenario


def on_gpu(transport: Transport):
    """Tensors of a GPU, one rank a GPU over NCCL or several on one over gloo."""
    with TorchTransport(device="cuda", timeout_s=30) as second:
        own = torch.full((2, 3), float(second.rank), device=second.device)
        heard = second.exchange((own, own[:1]), ring(second))
        total = second.all_reduce(own + 1, "sum")
        right = [message[0].equal(own * 0 + sender) and message[1].shape == (1, 3) for sender, message in heard.items()]
        stayed = all(tensor.is_cuda for message in heard.values() for tensor in (*message, total))
        return {
            "backend": second.backend,
            "right": all(right) and stayed and len(heard) == min(2, second.size - 1),
            "total": total.cpu().numpy(),
            **solve("fast-pca", "float64", "all-reduce")(second),
        }


def terminated(transport: Transport):
    """One node is sent SIGTERM while the others wait for it."""

    def wait_for_the_signal():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(FOR_EVER_S)

    return rounds_without_end(transport, wait_for_the_signal)


def wait_behind(transport: Transport):
    """Node 0 waits for the culprit, which is stuck; node 2 waits for node 0, and began later."""
    partner = {0: CULPRIT, 2: 0}.get(transport.rank)
    if partner is None:
        time.sleep(5)
        return {}
    if transport.rank == 2:
        time.sleep(1)
    transport.exchange((np.ones(3),), transport.links([partner], [partner]))
    return {}


def reduce_until_one_dies(transport: Transport):
    """One node is killed while all reduce."""
    for turn in range(100_000):
        if turn == 20 and transport.rank == CULPRIT:
            os.kill(os.getpid(), signal.SIGKILL)
        transport.all_reduce(np.ones(1000), "sum")
    return {}


# Every solver on samples of either dtype and with either averaging, but not in all four ways.
SOLVED = {
    f"{name}-{dtype}-{averaging}": solve(name, dtype, averaging)
    for name in SOLVERS
    for dtype, averaging in zip(DTYPES, AVERAGINGS, strict=True)
}
SCENARIOS = {
    "tensors": tensors,
    "reduced": reduced,
    "existing-group": existing_group,
    "on-gpu": on_gpu,
    "terminated": terminated,
    "wait-behind": wait_behind,
    "reduce-until-one-dies": reduce_until_one_dies,
    **SOLVED,
}
