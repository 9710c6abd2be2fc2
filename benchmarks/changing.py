"""Rounds on networks that go one way, change or lose messages: ``python benchmarks/changing.py [synthetic] [mnist]``.

Nothing is set by hand. MNIST is looked for in the folder EIGENMESH_DATA.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from eigenmesh import DecentralizedPCA, graphs, run
from eigenmesh.data import Shards, build_covariance, gaussian, load, paper_spectrum, pooled_moments, unlike_nodes
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.metrics import largest_angle
from eigenmesh.networks import Changing, Network, Stacked
from eigenmesh.solvers import TrackedSubspace

console = Console(width=130)
M, SEEDS, MOST_ROUNDS = 20, 3, 20_000


def erdos_renyi(seed: int) -> Weights:
    return graphs.metropolis(graphs.erdos_renyi(M, seed=seed))


NETWORKS: dict[str, Callable[[int], Weights | NetworkSequence]] = {
    "random graph": erdos_renyi,
    "out-degree 3": lambda seed: graphs.push(graphs.random_out(M, seed=seed)),
    "one-way ring with chords": lambda seed: graphs.balanced(graphs.directed_chords(M, seed=seed)),
    "fresh graph each round": lambda seed: graphs.fresh_graphs(M, 0.2, seed),
    "links up 70 %": lambda seed: graphs.links_up(erdos_renyi(seed), 0.7, seed),
    "links up 30 %": lambda seed: graphs.links_up(erdos_renyi(seed), 0.3, seed),
    "connected over 5 rounds": lambda seed: graphs.dealt_out(graphs.erdos_renyi(M, seed=seed), 5, seed),
    "matchings": lambda seed: graphs.matchings(erdos_renyi(seed), seed),
    "loss 0.1": lambda seed: graphs.lossy(erdos_renyi(seed), 0.1, seed=seed),
    "loss 0.3": lambda seed: graphs.lossy(erdos_renyi(seed), 0.3, seed=seed),
}


def network_of(weights: Weights | NetworkSequence) -> Network:
    return Changing(weights) if isinstance(weights, NetworkSequence) else Stacked(weights)


def rounds_to_error(name: str, unlike: bool, seed: int) -> tuple[int, int, bool]:
    """Rounds of iterations until the mean sin^2 is 1e-6 and 1e-10, and whether the certificate held."""
    spectrum = paper_spectrum(20, 5, 0.8)
    parts = unlike_nodes(spectrum, [1000] * M, seed) if unlike else np.split(gaussian(spectrum, 1000 * M, seed), M)
    vectors = np.linalg.eigh(np.cov(np.vstack(parts), rowvar=False))[1][:, :-6:-1]
    shards, network = Shards.from_list(parts), network_of(NETWORKS[name](seed))
    covariance = build_covariance(shards, pooled_moments(shards, network))
    result = run(TrackedSubspace(), covariance, network, 5, seed=seed, reference=vectors, max_rounds=MOST_ROUNDS)
    rounds = [next(record.rounds for record in result.history if record.error <= goal) for goal in (1e-6, 1e-10)]
    true = largest_angle(np.swapaxes(result.node_components, -1, -2), vectors)
    return rounds[0], rounds[1], result.converged and true <= result.certificate.error_bound


def synthetic() -> bool:
    table = Table(title=f"Tracked subspace iteration, {M} nodes: rounds to a mean sin^2 of 1e-6 / 1e-10, {SEEDS} seeds")
    for heading in ("network", "alike", "unlike", "certified"):
        table.add_column(heading, justify="right")
    held = True
    for name in NETWORKS:
        runs = [[rounds_to_error(name, unlike, seed) for seed in range(SEEDS)] for unlike in (False, True)]
        cells = [", ".join(f"{first} / {second}" for first, second, _ in each) for each in runs]
        certified = all(sound for each in runs for *_, sound in each)
        table.add_row(name, *cells, "all" if certified else "NOT ALL")
        held = held and certified
    console.print(table)
    return held


def mnist() -> bool:
    data, held = load("mnist"), True
    vectors = np.linalg.eigh(np.cov(data.X.astype(float), rowvar=False))[1][:, :-11:-1]
    table = Table(title=f"MNIST, {M} nodes, 10 components to 1e-5: rounds of iterations / from start to certificate")
    for heading in ("network", "split", "solver", "rounds", "bytes", "bound", "true sin"):
        table.add_column(heading, justify="right")
    for name in ("out-degree 3", "fresh graph each round", "links up 30 %", "loss 0.3"):
        for split in ("label", "random"):
            for solver in ("tracked-subspace", "block-krylov"):
                settings = {"tol": 1e-5, "max_rounds": MOST_ROUNDS, "random_state": 0, "split": split, "n_nodes": M}
                pca = DecentralizedPCA(10, solver=solver, topology=NETWORKS[name](0), **settings)
                result = pca.fit(data.X, data.labels if split == "label" else None).result_
                true = largest_angle(np.swapaxes(result.node_components, -1, -2), vectors)
                bound, rounds = result.certificate.error_bound, result.traffic_by_phase["iterations"].rounds
                cells = (f"{rounds:,} / {result.traffic.rounds:,}", f"{result.traffic.bytes / 1e6:,.0f} MB")
                table.add_row(name, split, solver, *cells, f"{bound:.1e}", f"{true:.1e}")
                held = held and result.converged and true <= bound
    console.print(table)
    return held


def main() -> None:
    warnings.simplefilter("ignore")
    parts = {"synthetic": synthetic, "mnist": mnist}
    held = [parts[name]() for name in sys.argv[1:] or parts]
    raise SystemExit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
