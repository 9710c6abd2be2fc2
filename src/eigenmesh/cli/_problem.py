"""A problem as the command line states it: data dealt out to the nodes of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import networkx as nx

from eigenmesh import graphs
from eigenmesh.cli._inputs import (
    Source,
    deal_out,
    in_order_of,
    parse_split,
    read_edge_list,
    read_source,
    require_topology,
    topology_name,
)
from eigenmesh.cli._messages import Voice
from eigenmesh.cli._rank_files import every_file, read_own_part
from eigenmesh.data import Shards
from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.fitting._matching import take_census
from eigenmesh.report._network_picture import describe_network
from eigenmesh.transports import Transport


@dataclass(frozen=True)
class Problem:
    """Who holds what and who is linked to whom, with the words that were used for it.

    ``n_samples`` is N over all nodes; the shards may be those of one node.
    """

    source: Source
    shards: Shards
    weights: graphs.Weights
    topology: str
    split: str
    n_samples: int

    def facts(self) -> dict[str, str]:
        """What it is, in words."""
        sizes = [block.n_rows for block in self.shards.blocks]
        each = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        where = "a node" if len(sizes) == self.shards.n_nodes else f"at node {self.shards.ids[0]}"
        return {
            "data": f"{self.source.name}: {self.n_samples:,} samples of {self.shards.n_features:,} features",
            "split": f"{self.split}: {each} samples {where}",
            "network": f"{self.topology}: {describe_network(self.weights)}",
        }


def state_problem(
    voice: Voice,
    data: Sequence[str],
    *,
    label_column: str | None,
    split: str | None,
    by_label: bool,
    nodes: int | None,
    topology: str,
    weights: str,
    seed: int,
) -> Problem:
    """Check all names, then read the data, deal them out and lay the network."""
    data = every_file(data, nodes)
    rule = parse_split(split, by_label, len(data), seed)
    edge_list = read_edge_list(topology, nodes)
    if edge_list is None:
        require_topology(topology)
    require_weights(weights)
    with voice.waiting("reading the data"):
        source = read_source(data, label_column)
        shards = deal_out(source, nodes if edge_list is None else edge_list.number_of_nodes(), rule)
    words = "one node a file" if rule is None else "label" if by_label else split or "random"
    n_samples = sum(block.n_rows for block in shards.blocks)
    return _on_a_network(source, shards, edge_list, topology, weights, seed, words, n_samples)


def state_own_problem(
    voice: Voice,
    data: Sequence[str],
    transport: Transport,
    *,
    label_column: str | None,
    split: str | None,
    by_label: bool,
    nodes: int | None,
    topology: str,
    weights: str,
    seed: int,
) -> Problem:
    """The same for a process that is one node: it reads its own part of the data, and N is summed over all."""
    if nodes not in (None, transport.size):
        raise InputError(f"{transport.size} processes are {transport.size} nodes, not --nodes {nodes}; leave it out.")
    edge_list = read_edge_list(topology, transport.size)
    if edge_list is None:
        require_topology(topology)
    require_weights(weights)
    with voice.waiting("reading the data"):
        node = (transport.rank, transport.size)
        source, shards, words = read_own_part(data, label_column, split, by_label, seed, node)
    own = _on_a_network(source, shards, edge_list, topology, weights, seed, words, n_samples=0)
    return replace(own, n_samples=take_census(own.shards, own.weights, transport)[0])


def _on_a_network(
    source: Source,
    shards: Shards,
    edge_list: nx.Graph | None,
    topology: str,
    weights: str,
    seed: int,
    split: str,
    n_samples: int,
) -> Problem:
    """Lay the network under the nodes; an edge list may name them, or be put in the order of their names."""
    if edge_list is None:
        graph = graphs.topology(topology_name(topology), shards.n_nodes, seed=seed)
    else:
        graph = in_order_of(edge_list, shards.node_names)
        if shards.node_names is None:
            names = tuple(str(graph.nodes[node]["name"]) for node in range(graph.number_of_nodes()))
            shards = replace(shards, node_names=names)
    return Problem(source, shards, graphs.weighting(weights, graph), topology, split, n_samples)


def require_weights(name: str) -> None:
    """Raise unless there are weights of that name."""
    if name not in graphs.WEIGHTS:
        raise UnknownNameError("weights", name, graphs.WEIGHTS)
