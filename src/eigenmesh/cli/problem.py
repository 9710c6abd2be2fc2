"""A problem as the command line states it: data dealt out to the nodes of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eigenmesh import graphs
from eigenmesh.cli.inputs import (
    Source,
    deal_out,
    in_order_of,
    parse_split,
    read_edge_list,
    read_source,
    require_topology,
    topology_name,
)
from eigenmesh.cli.voice import Voice
from eigenmesh.data import Shards
from eigenmesh.errors import UnknownNameError
from eigenmesh.networks import Traffic
from eigenmesh.report.network_picture import describe_network
from eigenmesh.result import Result


@dataclass(frozen=True)
class Problem:
    """Who holds what and who is linked to whom, with the words that were used for it."""

    source: Source
    shards: Shards
    weights: graphs.Weights
    topology: str
    split: str

    @property
    def n_samples(self) -> int:
        """N, over all nodes."""
        return sum(block.n_rows for block in self.shards.blocks)

    def facts(self) -> dict[str, str]:
        """What it is, in words."""
        sizes = [block.n_rows for block in self.shards.blocks]
        each = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        return {
            "data": f"{self.source.name}: {self.n_samples:,} samples of {self.shards.n_features:,} features",
            "split": f"{self.split}: {each} samples a node",
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
    rule = parse_split(split, by_label, len(data), seed)
    edge_list = read_edge_list(topology, nodes)
    if edge_list is None:
        require_topology(topology)
    require_weights(weights)
    with voice.waiting("reading the data"):
        source = read_source(data, label_column)
        shards = deal_out(source, nodes if edge_list is None else edge_list.number_of_nodes(), rule)
    if edge_list is None:
        graph = graphs.topology(topology_name(topology), shards.n_nodes, seed=seed)
    else:
        graph = in_order_of(edge_list, shards.node_names)
        if shards.node_names is None:
            names = tuple(str(graph.nodes[node]["name"]) for node in range(graph.number_of_nodes()))
            shards = replace(shards, node_names=names)
    words = "one node a file" if rule is None else "label" if by_label else split or "random"
    return Problem(source, shards, graphs.weighting(weights, graph), topology, words)


def require_weights(name: str) -> None:
    """Raise unless there are weights of that name."""
    if name not in graphs.WEIGHTS:
        raise UnknownNameError("weights", name, graphs.WEIGHTS)


def with_set_up(result: Result, traffic: Traffic) -> Result:
    """The result of a run with the cost of the whole fit: what was sent before the run is put in front."""
    before = traffic - result.traffic
    history = tuple(
        record._replace(**{name: getattr(record, name) + sent for name, sent in vars(before).items()})
        for record in result.history
    )
    phases = {"set-up": before, **result.traffic_by_phase}
    return replace(result, traffic=traffic, traffic_by_phase=phases, history=history)
