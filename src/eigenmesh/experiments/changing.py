"""Networks that go one way, change or lose messages: the methods that work there, with automatic settings."""

from __future__ import annotations

from itertools import product

from eigenmesh import solvers
from eigenmesh.experiments.problems import CHANGING
from eigenmesh.experiments.settings import DataSet, Experiment, Method, Panel, Synthetic

# Networks that lose messages; FAST-PCA, as published, does not work on them.
LOSSY = ("10 % lost", "30 % lost")
ROUNDS, QUICK_ROUNDS = 3000, 600


def changing_experiment(rounds: int | None = None, quick: bool = False) -> Experiment:
    """Synthetic nodes, alike and unlike, and MNIST, random and by digit, on ten networks; quick: no MNIST."""
    budget, n_nodes = rounds or (QUICK_ROUNDS if quick else ROUNDS), 10 if quick else 20
    sources: dict[str, tuple[Synthetic | DataSet, int]] = {
        "alike": (Synthetic(0.8, samples_per_node=1000), 5),
        "unlike": (Synthetic(0.8, samples_per_node=1000, unlike=True), 5),
    }
    if not quick:
        sources["MNIST random"] = (DataSet("mnist", "random", unit=True), 10)
        sources["MNIST by digit"] = (DataSet("mnist", "label", unit=True), 10)
    panels = []
    for (words, (data, k)), network in product(sources.items(), CHANGING):
        name = f"changing-{words}-{network}".lower().replace(" ", "-").replace(",", "").replace("%", "percent")
        panels.append(Panel(name, f"{words}, {network}", data, network, k, budget, _methods(network), n_nodes))
    return Experiment("changing", "Networks that change", "", _facts(budget, n_nodes, quick), tuple(panels))


def _methods(network: str) -> tuple[Method, ...]:
    usual = (Method("tracked subspace", solvers.TrackedSubspace()), Method("block Krylov", solvers.BlockKrylov()))
    return usual if network in LOSSY else (*usual, Method("FAST-PCA", solvers.FastPCA()))


def _facts(rounds: int, n_nodes: int, quick: bool) -> dict[str, str]:
    images = "" if quick else "; MNIST, 784 features, K = 10, scaled so that the largest eigenvalue is 1"
    return {
        "data": f"synthetic: 20 features, K = 5, gap 0.8, 1,000 samples per node, alike or unlike{images}",
        "networks": f"{n_nodes} nodes; random graphs have p = 0.5, fresh ones p = 0.2; the weights of each round are "
        "Metropolis, or 1 / (1 + out-degree) where links go one way",
        "budget": f"{rounds:,} rounds per run",
        "settings": "all automatic; checks of the residual are counted; averages are exact over trees where links "
        "stay, push sums to 1e-12 where they do not",
        "FAST-PCA": "push-pull where links go one way; not where messages get lost",
    }
