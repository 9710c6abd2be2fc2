"""Rounds from start to certified result on real data, and the part of them that is the solver's products.

Run it with ``make bench-rounds``; MNIST, CIFAR-10 and HapMap3 are read from the folder EIGENMESH_DATA.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import networkx as nx
import numpy as np
from parts import run_parts
from rich.console import Console
from rich.table import Table
from truth import leading

from eigenmesh import graphs
from eigenmesh.averaging import Averaging, Factored, Tree
from eigenmesh.data import LabelSplit, RandomSplit, Shards, load
from eigenmesh.errors import UnreadableFileError
from eigenmesh.fitting import NodeData, Request, fit, prepare
from eigenmesh.iteration import Result
from eigenmesh.metrics import largest_angle
from eigenmesh.solvers import BlockKrylov

console = Console(width=130)
# Targets: all rounds relative to those of the products, and products on a random graph of diameter 2.
MOST_RATIO, MOST_ROUNDS, STARTS = 1.3, 18, 5


def read(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Samples and labels; exits if the data are missing."""
    try:
        data = load(name)
    except UnreadableFileError as error:
        raise SystemExit(f"{name} was not found: {error}") from error
    return data.X, data.labels


def certified(shards: Shards, graph: nx.Graph, k: int, averaging: Averaging | None = None) -> tuple[list[Result], str]:
    """Fits to 1e-6 from several starts, and the averaging that they used."""
    prepared = prepare(Request(k, averaging=averaging, seed=0), NodeData(shards, graphs.metropolis(graph)))
    fits = [fit(replace(prepared, seed=seed)) for seed in range(STARTS)]
    return [each.result for each in fits], fits[0].averaging


def largest_sine(runs: list[Result], true: np.ndarray) -> float:
    return max(largest_angle(np.swapaxes(run.node_components, -1, -2), true) for run in runs)


def table_of(*headings: str, title: str) -> Table:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def start_to_certificate() -> bool:
    """One line per data set, split and graph; true if all converged and no median is above the target."""
    title = f"From start to certified result (bound 1e-6), and the solver's products alone: medians of {STARTS} starts"
    headings = ("data", "split", "graph", "averaging", "rounds", "products", "ratio", "largest", "bytes", "true sin")
    table, ratios, converged, label = table_of(*headings, title=title), [], True, LabelSplit()
    cases = [
        ("mnist", 10, (RandomSplit(0), label), ("erdos_renyi", "cycle", "path")),
        ("cifar10", 5, (RandomSplit(0), label), ("erdos_renyi", "cycle")),
        ("hapmap3", 5, (None,), ("path", "cycle")),
    ]
    for name, k, splits, topologies in cases:
        X, labels = read(name)
        true = leading(X, k)
        for split, topology in product(splits, topologies):
            words = "by site" if split is None else "by label" if split is label else "random"
            shards = Shards.from_labels(X, labels) if split is None else Shards.from_array(X, 20, split, labels)
            runs, averaging = certified(shards, graphs.topology(topology, shards.n_nodes, seed=0), k)
            counts = np.array([(run.traffic.rounds, run.traffic_by_phase["iterations"].rounds) for run in runs])
            each = counts[:, 0] / counts[:, 1]
            (rounds, products), sent = np.median(counts, axis=0), np.median([run.traffic.bytes for run in runs])
            cells = (f"{rounds:.0f}", f"{products:.0f}", f"{np.median(each):.2f}", f"{each.max():.2f}")
            table.add_row(
                name, words, topology, averaging, *cells, f"{sent / 1e6:,.1f} MB", f"{largest_sine(runs, true):.1e}"
            )
            ratios.append(float(np.median(each)))
            converged = converged and all(run.converged for run in runs)
    console.print(table)
    console.print(f"Largest median ratio: {max(ratios):.2f} (target {MOST_RATIO}).")
    return converged and max(ratios) <= MOST_RATIO


def random_graph_of_diameter_2() -> bool:
    """MNIST by digit with factored averages, over starts and graphs; true if the rounds are within the target."""
    X, labels = read("mnist")
    shards, true, most = Shards.from_array(X, 20, LabelSplit(), labels), leading(X, 10), 0
    title = f"MNIST by digit, K = 10, random graphs (p = 0.5) of diameter 2, factored averages: most of {STARTS} starts"
    table = table_of("graph", "products", "their rounds", "all rounds", "bound", "true sin", title=title)
    drawn = ((seed, graphs.topologies.erdos_renyi(20, seed=seed)) for seed in range(10))
    for seed, graph in [pair for pair in drawn if nx.diameter(pair[1]) == 2][:3]:
        runs, _ = certified(shards, graph, 10, Factored())
        rounds = max(run.traffic_by_phase["iterations"].rounds for run in runs)
        cells = (max(run.iterations for run in runs), rounds, max(run.traffic.rounds for run in runs))
        bound = max(run.certificate.error_bound for run in runs)
        table.add_row(f"seed {seed}", *map(str, cells), f"{bound:.1e}", f"{largest_sine(runs, true):.1e}")
        most = max(most, rounds) if all(run.converged for run in runs) else 10**6
    console.print(table)
    console.print(f"Most rounds of products: {most} (target {MOST_ROUNDS}).")
    return most <= MOST_ROUNDS


def fewer_bytes() -> bool:
    """Bytes of lean runs and of others over a tree, from the same start; true if they are within the targets."""
    cases = (("hapmap3", 5, "path", 0.4), ("hapmap3", 10, "path", 0.4), ("mnist", 10, "erdos_renyi", 0.5))
    table, kept = table_of("data", "K", "lean", "products", "bytes", "bound", "chance", title="Bytes to 1e-6"), True
    for name, k, topology, most in cases:
        X, labels = read(name)
        shards = Shards.from_labels(X, labels)
        graph, sent = graphs.topology(topology, shards.n_nodes, seed=0), dict[bool, int]()
        for lean in (False, True):
            request = Request(k, averaging=Tree(), solver=BlockKrylov(lean=lean), seed=0)
            result = fit(prepare(request, NodeData(shards, graphs.metropolis(graph)))).result
            sent[lean], kept = result.traffic.bytes, kept and result.converged
            words = (f"{sent[lean] / 1e6:,.1f} MB", f"{result.certificate.error_bound:.1e}")
            chance = f"{result.certificate.chance:.0e}"
            table.add_row(name, str(k), "yes" if lean else "no", str(result.iterations), *words, chance)
        kept = kept and sent[True] <= most * sent[False]
    console.print(table)
    return kept


def main() -> None:
    parts = {"certified": start_to_certificate, "factored": random_graph_of_diameter_2, "lean": fewer_bytes}
    run_parts(parts)


if __name__ == "__main__":
    main()
