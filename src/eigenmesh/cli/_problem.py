"""A problem as the command line states it: data at the nodes of a network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import networkx as nx

from eigenmesh import graphs
from eigenmesh._lookup import canonical_name
from eigenmesh.cli._inputs import NamedData, in_order_of, parse_split, read_data, read_edge_list, split_samples
from eigenmesh.cli._messages import Messages
from eigenmesh.cli._rank_files import files_of_all_nodes, read_node_samples
from eigenmesh.data import Shards
from eigenmesh.errors import InputError
from eigenmesh.fitting import NodeData
from eigenmesh.report._network_picture import describe_network
from eigenmesh.transports import Transport


@dataclass(frozen=True)
class Problem:
    """Who holds what and who is linked to whom, with the words that were used for it.

    The shards are those of all nodes or, with a transport, of one.
    """

    source: NamedData
    shards: Shards
    weights: graphs.Weights
    topology: str
    split: str
    transport: Transport | None = None

    @property
    def data(self) -> NodeData:
        """What a fit is prepared from."""
        return NodeData(self.shards, self.weights, self.transport)

    def facts(self, n_samples: int) -> dict[str, str]:
        """What it is, in words, with N samples over all nodes."""
        sizes = [block.n_rows for block in self.shards.blocks]
        each = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        where = "per node" if len(sizes) == self.shards.n_nodes else f"at node {self.shards.ids[0]}"
        return {
            "data": f"{self.source.name}: {n_samples:,} samples of {self.shards.n_features:,} features",
            "split": f"{self.split}: {each} samples {where}",
            "network": f"{self.topology}: {describe_network(self.weights)}",
        }


def read_problem(
    messages: Messages,
    data: Sequence[str],
    *,
    label_column: str | None,
    split: str | None,
    by_label: bool,
    nodes: int | None,
    topology: str,
    weights: str,
    seed: int,
    transport: Transport | None = None,
) -> Problem:
    """Check all names, then read the data and lay the network; with a transport, read this node's data alone."""
    if transport is not None:
        if nodes not in (None, transport.size):
            raise InputError(
                f"{transport.size} processes are {transport.size} nodes, not --nodes {nodes}; leave it out."
            )
        nodes = transport.size
    edge_list = read_edge_list(topology, nodes)
    if edge_list is None:
        topology = canonical_name("topology", topology, graphs.TOPOLOGIES)
    weights = canonical_name("weights", weights, graphs.WEIGHTS)
    files = files_of_all_nodes(data, nodes)
    rule = parse_split(split, by_label, len(files), seed) if transport is None else None
    with messages.waiting("reading the data"):
        if transport is not None:
            node = (transport.rank, transport.size)
            source, shards, words = read_node_samples(data, label_column, split, by_label, seed, node)
        else:
            source = read_data(files, label_column)
            shards = split_samples(source, nodes if edge_list is None else edge_list.number_of_nodes(), rule)
            words = "one node per file" if rule is None else "label" if by_label else split or "random"
    graph, shards = _graph_of(edge_list, topology, shards, seed)
    return Problem(source, shards, graphs.weighting(weights, graph), topology, words, transport)


def _graph_of(edge_list: nx.Graph | None, topology: str, shards: Shards, seed: int) -> tuple[nx.Graph, Shards]:
    """The network of the nodes; an edge list may name them, or is put in the order of their names."""
    if edge_list is None:
        return graphs.topology(topology, shards.n_nodes, seed=seed), shards
    graph = in_order_of(edge_list, shards.node_names)
    if shards.node_names is None:
        names = tuple(str(graph.nodes[node]["name"]) for node in range(graph.number_of_nodes()))
        shards = replace(shards, node_names=names)
    return graph, shards
