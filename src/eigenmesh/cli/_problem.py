"""The problem that the command line describes: data at the nodes of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx

from eigenmesh import graphs
from eigenmesh._lookup import canonical_name
from eigenmesh.cli._inputs import DEFAULT_SPLIT, parse_split, read_data, read_edge_list, read_one, split_table
from eigenmesh.cli._messages import Messages
from eigenmesh.cli._node_files import files_of_all_nodes, is_one_table
from eigenmesh.data import ContiguousSplit, FeatureShards, Shards, Split, TableOptions
from eigenmesh.data._files import name_of
from eigenmesh.errors import InputError
from eigenmesh.events import Planned
from eigenmesh.fitting import PARTITIONS, Fit, NodeData, Request, node_data, planned
from eigenmesh.graphs._existing import in_order_of
from eigenmesh.report import run_picture
from eigenmesh.report._network_picture import describe_network
from eigenmesh.transports import Transport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Data sets whose samples are images; their components are drawn as images.
IMAGE_SHAPES = {"digits": (8, 8), "mnist": (28, 28), "cifar10": (32, 32)}

EVERYTHING = TableOptions()


@dataclass(frozen=True)
class Problem:
    """Samples of the nodes and links between them, with the names that were typed for data, topology and split.

    The shards are those of all nodes; with a transport, only those of this node.
    """

    name: str
    shards: Shards
    weights: graphs.Weights
    topology: str
    split: str
    transport: Transport | None = None

    @property
    def title(self) -> str:
        """Title of pages and pictures."""
        return f"PCA of {self.name}"

    @property
    def data(self) -> NodeData:
        """The data and network from which a fit is prepared."""
        return node_data(self.shards, self.weights, self.transport, self.split)

    def facts(self, n_samples: float) -> dict[str, str]:
        """A description in words; ``n_samples`` counts those of all nodes."""
        by_columns = isinstance(self.shards, FeatureShards)
        what = "columns" if by_columns else "samples"
        sizes = [block.n_features if by_columns else block.n_rows for block in self.shards.blocks]
        each = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        where = "per node" if len(sizes) == self.shards.n_nodes else f"at node {self.shards.ids[0]}"
        return {
            "data": f"{self.name}: {n_samples:,} samples of {self.shards.n_features:,} features",
            "split": f"{self.split}: {each} {what} {where}",
            "network": f"{self.topology}: {describe_network(self.weights)}",
        }

    def asked(self, fitted: Fit) -> dict[str, Any]:
        """The settings of its fit, for JSON."""
        request = fitted.request
        return {
            "data": self.name,
            "n_samples": fitted.moments.n_samples,
            "n_features": fitted.facts.n_features,
            "topology": self.topology,
            "split": self.split,
            "averaging": fitted.averaging,
            "covariance": str(fitted.choice.kind),
            "seed": fitted.result.seed,
            "tol": request.tol,
            "max_rounds": request.max_rounds,
            "scale": request.scale,
            "missing": request.missing,
        }

    def planned(self, request: Request) -> Planned | None:
        """The planner's forecast of its fit, if all nodes are in this process and the forecast costs little."""
        return planned(request, self.data) if self.transport is None else None

    def picture(self, fitted: Fit, title: str) -> Figure:
        return run_picture(
            self.weights,
            replace(fitted.result, components=fitted.components),
            fitted.request.tol,
            title=title,
            names=fitted.facts.node_names,
            image_shape=IMAGE_SHAPES.get(self.name),
            total_variance=fitted.total_variance,
        )


def read_problem(
    messages: Messages,
    data: Sequence[str],
    seed: int,
    *,
    split: str | None,
    nodes: int | None,
    topology: str,
    table: TableOptions = EVERYTHING,
    weights: str = "auto",
    partition: str = "samples",
    transport: Transport | None = None,
) -> Problem:
    """Check all names, then read the data and build the network; with a transport, read only this node's data."""
    if transport is not None:
        if nodes not in (None, transport.size):
            raise InputError(f"{transport.size} processes are {transport.size} nodes; leave out --nodes {nodes}.")
        nodes = transport.size
    kind = PARTITIONS[canonical_name("partition", partition, PARTITIONS)]
    edge_list = read_edge_list(topology, nodes)
    if edge_list is None:
        topology = canonical_name("topology", topology, graphs.TOPOLOGIES)
    weights = canonical_name("weights", weights, ["auto", *graphs.WEIGHTS])
    files = files_of_all_nodes(data, nodes)
    one_table = len(files) == 1 if transport is None else is_one_table(data)
    rule = parse_split(split, 1 if one_table else max(2, len(files)), seed)
    with messages.waiting("reading the data"):
        if transport is not None:
            name, shards = _read_node(files, table, rule, transport, kind)
            name = data[0] if len(data) == 1 and rule is None else name
        else:
            n_nodes = nodes if edge_list is None else edge_list.number_of_nodes()
            name, shards = read_data(files, table, n_nodes, rule, kind)
    graph, shards = _graph_of(edge_list, topology, shards, seed)
    words = "one node per file" if rule is None else split or DEFAULT_SPLIT
    return Problem(name, shards, graphs.weighting(weights, graph), topology, words, transport)


def _read_node(
    files: Sequence[str], options: TableOptions, split: Split | None, transport: Transport, kind: type[Shards]
) -> tuple[str, Shards]:
    """A name for the data, and the samples of one node.

    Without a split the node reads its own file only. A contiguous split of one file reads only this node's rows; any
    other split reads the whole file and takes this node's part.
    """
    rank, size = transport.rank, transport.size
    if split is None:
        if len(files) != size:
            raise InputError(
                f"{len(files)} files are {len(files)} nodes, one per file, but {size} processes were started."
            )
        table, stems = read_one(files[rank], options), [name_of(Path(file)) for file in files]
        held: dict[str, Any] = {
            "ids": [rank],
            "n_nodes": size,
            "node_names": stems if len(set(stems)) == size else None,
        }
        if issubclass(kind, FeatureShards):
            held["sample_ids"] = [table.ids]
        return f"{size} files", kind.from_list([table.source], **held).weighted([table.weights])
    if isinstance(split, ContiguousSplit) and kind is Shards:
        table = read_one(files[0], options, share=(rank, size))
        own = Shards.from_list([table.source], ids=[rank], n_nodes=size)
        return table.name, own.weighted([table.weights])
    table = read_one(files[0], options)
    return table.name, split_table(table, size, split, kind).take([rank])


def _graph_of(edge_list: nx.Graph | None, topology: str, shards: Shards, seed: int) -> tuple[nx.Graph, Shards]:
    """The network, and the shards with node names: nodes of an edge list are matched by name, or give the names."""
    if edge_list is None:
        return graphs.topology(topology, shards.n_nodes, seed=seed), shards
    graph = in_order_of(edge_list, shards.node_names)
    if shards.node_names is None:
        names = tuple(str(graph.nodes[node]["name"]) for node in range(graph.number_of_nodes()))
        shards = replace(shards, node_names=names)
    return graph, shards
