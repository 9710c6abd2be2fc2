"""Nodes whose data differ: the distributed methods at their best settings from a grid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from eigenmesh import solvers
from eigenmesh.experiments.settings import DataSet, Experiment, Method, Panel

# Steps for data scaled to l_1 = 1.
FAST_PCA_STEPS = (0.03, 0.1, 0.3, 1.0)
DSA_STEPS = (0.03, 0.1, 0.3)
DEEPCA_MIXES = (5, 10, 20)
INNER_MIXES = (10, 50)
SPLITS = {"label": "by label", "dirichlet:0.1": "Dirichlet 0.1", "dirichlet:1": "Dirichlet 1"}
GRAPHS = {"erdos_renyi": "Erdős–Rényi", "cycle": "cycle", "path": "path"}
# A budget with which one trial of everything takes about twenty minutes on two cores.
ROUNDS, QUICK_ROUNDS = 600, 300


def unlike_experiment(rounds: int | None = None, quick: bool = False) -> Experiment:
    """MNIST and CIFAR-10 by label and by Dirichlet shares on three graphs; quick: digits on ten nodes."""
    budget = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    n_nodes = 10 if quick else 20
    sources = (("digits", "digits", 5),) if quick else (("mnist", "MNIST", 10), ("cifar10", "CIFAR-10", 5))
    panels = []
    for (name, title, k), (split, words), (topology, graph) in product(sources, SPLITS.items(), GRAPHS.items()):
        panel_name = f"unlike-{name}-{split.replace(':', '')}-{topology}"
        problem = (DataSet(name, split, unit=True), topology, k, budget, _methods(k, budget), n_nodes)
        panels.append(Panel(panel_name, f"{title} {words}, {graph}", *problem))
    return Experiment("unlike", "Nodes whose data differ", "", _facts(budget, n_nodes, quick), tuple(panels))


def _methods(k: int, rounds: int) -> tuple[Method, ...]:
    inner = [(max(1, rounds // (mixes * k)), mixes) for mixes in INNER_MIXES]
    return (
        *(Method("FAST-PCA", solvers.FastPCA(step_size=step)) for step in FAST_PCA_STEPS),
        *(Method("DSA", solvers.DSA(step_size=step)) for step in DSA_STEPS),
        *(Method("DeEPCA", solvers.DeEPCA(mixes=mixes)) for mixes in DEEPCA_MIXES),
        *(Method("S-DOT", solvers.SDOT(mixes=mixes)) for mixes in INNER_MIXES),
        *(Method("SA-DOT", solvers.SADOT(cap=cap)) for cap in INNER_MIXES),
        *(Method("SeqDistPM", solvers.SequentialDistributedPower(iterations=n, mixes=m)) for n, m in inner),
        Method("block Krylov", solvers.BlockKrylov()),
        Method("tracked subspace", solvers.TrackedSubspace()),
    )


def _facts(rounds: int, n_nodes: int, quick: bool) -> dict[str, str]:
    images = "1,797 handwritten digits, K = 5" if quick else "MNIST, K = 10, and CIFAR-10 in grey, K = 5"
    return {
        "data": f"{images}; scaled so that the largest eigenvalue is 1, pooled mean removed",
        "splits": "by label: as few labels per node as possible; Dirichlet 0.1 and 1: each label split in shares "
        "drawn from that distribution",
        "network": f"{n_nodes} nodes, Metropolis weights; Erdős–Rényi with p = 0.5, cycle and path",
        "budget": f"{rounds:,} rounds per run",
        "grids": f"step of FAST-PCA {_listed(FAST_PCA_STEPS)}; step of DSA {_listed(DSA_STEPS)}; m of DeEPCA "
        f"{_listed(DEEPCA_MIXES)}; mixes of S-DOT and SeqDistPM, and cap of SA-DOT, {_listed(INNER_MIXES)}",
        "the best of a grid": "the setting that reaches the most targets, then the cheapest, then the one with the "
        "lowest floor",
        "block Krylov and tracked subspace": "automatic settings; their checks of the residual are counted; exact "
        "averages by a tree or a polynomial, whichever takes fewer rounds",
    }


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
