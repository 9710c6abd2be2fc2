"""Networks of experiments by name: topologies, and networks that go one way, change or lose messages."""

from collections.abc import Callable
from typing import TypeAlias

from eigenmesh import graphs
from eigenmesh.graphs import NetworkSequence, Weights

MakeNetwork: TypeAlias = Callable[[int, int], Weights | NetworkSequence]


def _random(n_nodes: int, seed: int) -> Weights:
    return graphs.metropolis(graphs.erdos_renyi(n_nodes, seed=seed))


# Number of nodes, seed -> network.
CHANGING: dict[str, MakeNetwork] = {
    "random graph": _random,
    "one-way, out-degree 3": lambda n_nodes, seed: graphs.push(graphs.random_out(n_nodes, seed=seed)),
    "one-way ring with chords": lambda n_nodes, seed: graphs.balanced(graphs.directed_chords(n_nodes, seed=seed)),
    "fresh graph each round": lambda n_nodes, seed: graphs.fresh_graphs(n_nodes, 0.2, seed),
    "links up 70 %": lambda n_nodes, seed: graphs.links_up(_random(n_nodes, seed), 0.7, seed),
    "links up 30 %": lambda n_nodes, seed: graphs.links_up(_random(n_nodes, seed), 0.3, seed),
    "connected over 5 rounds": lambda n_nodes, seed: graphs.dealt_out(graphs.erdos_renyi(n_nodes, seed=seed), 5, seed),
    "matchings": lambda n_nodes, seed: graphs.matchings(_random(n_nodes, seed), seed),
    "10 % lost": lambda n_nodes, seed: graphs.lossy(_random(n_nodes, seed), 0.1, seed=seed),
    "30 % lost": lambda n_nodes, seed: graphs.lossy(_random(n_nodes, seed), 0.3, seed=seed),
}


def network_by_name(name: str, n_nodes: int, seed: int) -> Weights | NetworkSequence:
    """A network of the table, or a topology with Metropolis weights."""
    if name in CHANGING:
        return CHANGING[name](n_nodes, seed)
    return graphs.metropolis(graphs.topology(name, n_nodes, seed=seed))
