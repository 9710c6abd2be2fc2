"""Your own network: a networkx graph with names, your own weight matrix, and progress during the run.

The graph shows the marriages between fifteen families of Renaissance Florence; it is part of networkx. Each family
holds some of the wines of scikit-learn. Weights only have to be symmetric, with rows that sum to 1 and zeros
where there is no link; eigenmesh checks that, and that repeated mixing leads to agreement.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
from sklearn.datasets import load_wine

from eigenmesh import DecentralizedPCA, Record, graphs
from eigenmesh.events import on_record


def own_weights(graph: nx.Graph) -> graphs.Weights:
    """0.9 times the smaller of 1/deg_i and 1/deg_j on each link, and the rest of each row on the diagonal."""
    W = np.zeros((len(graph), len(graph)))
    for i, j in graph.edges:
        W[i, j] = W[j, i] = 0.9 / max(graph.degree[i], graph.degree[j])
    return graphs.from_matrix(W + np.diag(1 - W.sum(axis=1)), graph)


class Show:
    """Called with a record at every check; prints every eighth."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, record: Record) -> None:
        self.calls += 1
        if self.calls % 8 == 0:
            print(f"{record.rounds:>8,} rounds  {record.bytes / 1e6:6.1f} MB  residual {record.residual:.1e}")


def main() -> None:
    X = load_wine().data
    graph = graphs.from_networkx(nx.florentine_families_graph())
    busiest = max(graph, key=graph.degree)
    print(f"{len(graph)} families; {graph.nodes[busiest]['name']} has the most links, {graph.degree[busiest]}")

    print("\nwith weights of our own:")
    choices = {"own": own_weights(graph), "metropolis": graphs.metropolis(graph), "best": graphs.best_constant(graph)}
    usual = {"n_components": 2, "solver": "fast-pca", "scale": True, "random_state": 0}
    fits = {
        name: DecentralizedPCA(**usual, topology=weights, on_event=on_record(Show()) if name == "own" else None).fit(X)
        for name, weights in choices.items()
    }

    print(f"\n{'weights':<12}{'beta':>7}{'rounds':>8}{'sin(angle) at most':>20}")
    for name, pca in fits.items():
        bound = pca.certificate_.error_bound
        print(f"{name:<12}{choices[name].spectrum.beta:>7.4f}{pca.traffic_.rounds:>8,}{bound:>20.1e}")


if __name__ == "__main__":
    main()
