"""The problem that the command line describes: data at the nodes of a network."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from eigenmesh import graphs
from eigenmesh.cli.messages import Messages
from eigenmesh.data import (
    DATASETS,
    READERS,
    ContiguousSplit,
    FeatureShards,
    LabelSplit,
    Shards,
    SizesSplit,
    Split,
    Table,
    TableOptions,
    consecutive_rows,
    expand,
    is_dataset,
    kind_of,
    load,
    name_of,
    read_table,
    split_by_name,
)
from eigenmesh.errors import DataError, InputError, UnknownNameError
from eigenmesh.events import Planned
from eigenmesh.fitting import DEFAULT_NODES, PARTITIONS, Fit, NodeData, Request, node_data, planned
from eigenmesh.graphs import in_order_of
from eigenmesh.report import run_picture
from eigenmesh.report.pictures import describe_network
from eigenmesh.solvers import SOLVERS, Solver
from eigenmesh.transports import Transport
from eigenmesh.words import canonical_name, find_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_SPLIT = "random"
# Data sets whose samples are images; their components are drawn as images.
IMAGE_SHAPES = {"digits": (8, 8), "mnist": (28, 28), "cifar10": (32, 32)}
EVERYTHING = TableOptions()
# In the name of a file, the number of a node.
RANK = re.compile(r"\{rank(?::0(\d+)d)?\}")


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


def parse_components(text: str | None) -> int | float | None:
    """K as a whole number, or as a share of the variance strictly between 0 and 1; None stays None."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if number >= 1 and number.is_integer() and "." not in text:
        return int(number)
    if not 0 < number < 1:
        raise InputError(f"--components {text} must be a whole number of at least 1, or a share between 0 and 1.")
    return number


def parse_solver(text: str) -> Solver | str:
    """The solver of --solver, with its settings; "auto" for the choice of the planner."""
    canonical_name("solver", re.split("[:,]", text)[0], ["auto", *SOLVERS])
    if find_name(text, ["auto"]) is not None:
        return "auto"
    solvers = parse_solvers(text)
    if len(solvers) > 1:
        raise InputError(f"--solver {text} names {len(solvers)} solvers; give one.")
    return solvers[0]


def parse_solvers(text: str, kinds: Mapping[str, Any] = SOLVERS) -> list[Solver]:
    """Solvers from ``name:field=value,field=value,name``: a part without a colon or an equals sign is a new name."""
    parts: list[tuple[str, dict[str, Any]]] = []
    for part in (piece.strip() for piece in text.split(",")):
        name, colon, setting = part.partition(":")
        if not colon and "=" in part:
            name, setting = "", part
        if name or not (setting and parts):
            parts.append((canonical_name("solver", name or part, kinds), {}))
        if setting or colon:
            name, settings = parts[-1]
            key, value = _setting(name, setting, kinds)
            settings[key] = value
    solvers = [kinds[name](**settings) for name, settings in parts]
    if len(set(solvers)) < len(solvers):
        raise InputError(f"--solvers {text} names a solver twice with the same settings; leave one out.")
    return solvers


def _setting(name: str, text: str, kinds: Mapping[str, Any]) -> tuple[str, Any]:
    key, equals, value = (piece.strip() for piece in text.partition("="))
    if not equals or not value:
        raise InputError(f"settings of a solver are written {name}:field=value; got {text!r}.")
    key = canonical_name(f"setting of {name}", key, [known.name for known in fields(kinds[name])])
    if value.lower() in ("auto", "none"):
        return key, "auto" if value.lower() == "auto" else None
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    raise InputError(f"{key} of {name} must be a number, or auto where the solver allows it; got {value!r}.")


def parse_split(split: str | None, n_files: int, seed: int) -> Split | None:
    """The split that was asked for; None if there is one file per node."""
    if n_files == 1:
        return split_by_name(split or DEFAULT_SPLIT, seed)
    if split is not None:
        raise InputError(f"{n_files} files are {n_files} nodes, one per file; leave out --split {split}.")
    return None


def read_data(
    data: Sequence[str], options: TableOptions, n_nodes: int | None, split: Split | None, kind: type[Shards] = Shards
) -> tuple[str, Shards]:
    """A name for the data, and the samples of every node: from one table that is split, or from one file per node."""
    if split is not None:
        table = read_one(data[0], options)
        return table.name, split_table(table, n_nodes, split, kind)
    for name in data:
        if is_dataset(name) and not Path(name).is_file():
            raise InputError(
                f"{name} is a data set, but {len(data)} sources were given; give only this data set, or only files."
            )
    if n_nodes not in (None, len(data)):
        fix = f"leave out --nodes, or give a network of {len(data)} nodes"
        raise InputError(f"{len(data)} files are {len(data)} nodes, one per file, not {n_nodes}; {fix}.")
    return f"{len(data)} files", kind.from_files(list(data), **vars(options))


def read_one(name: str, options: TableOptions, share: tuple[int, int] | None = None) -> Table:
    """A data set or the table in a file, by name; ``share = (i, n)`` takes the i-th of n runs of its rows."""
    if is_dataset(name):
        if options != TableOptions():
            fix = "leave out --label-column, --drop and the other options of tables"
            raise InputError(f"the data set {name} has its own labels, and all its columns are used; {fix}.")
        table = load(name)
        return table.take(consecutive_rows(table.n_samples, share))
    if not Path(name).exists() and kind_of(Path(name)) not in READERS and not _is_path(name):
        raise UnknownNameError("data set (and no file)", name, [*DATASETS, "synthetic:..."])
    return replace(read_table(name, share=share, **vars(options)), name=Path(name).name)


def split_table(table: Table, n_nodes: int | None, split: Split, kind: type[Shards] = Shards) -> Shards:
    """The samples of every node. A split by label has one node per label, unless another number is asked for."""
    if table.n_samples == 0:
        raise DataError(f"{table.name} has columns but no samples; give a file with at least one.")
    if issubclass(kind, FeatureShards):
        usual = len(split.sizes) if isinstance(split, SizesSplit) else max(1, min(DEFAULT_NODES, table.source.shape[1]))
        return kind.from_array(table.source, n_nodes or usual, split, weights=table.weights)
    if isinstance(split, LabelSplit):
        if table.labels is None:
            fix = "name their column with --label-column, or use --split random or --split contiguous"
            raise InputError(f"{table.name} has no labels to split by; {fix}.")
        if n_nodes in (None, len(np.unique(table.labels))):
            return Shards.from_labels(table.source, table.labels).weighted_rows(table.weights)
    usual = len(split.sizes) if isinstance(split, SizesSplit) else max(1, min(DEFAULT_NODES, table.n_samples // 2))
    return Shards.from_array(table.source, n_nodes or usual, split, table.labels, table.weights)


def read_edge_list(topology: str, n_nodes: int | None = None) -> nx.Graph | None:
    """Graph of an edge-list file; None if the topology is a name."""
    if find_name(topology, graphs.TOPOLOGIES) is not None:
        return None
    if not (Path(topology).is_file() or _is_path(topology)):
        raise UnknownNameError("topology (and no file)", topology, graphs.TOPOLOGIES)
    graph = graphs.from_edge_list(topology)
    graphs.require_connected(graph)
    if n_nodes not in (None, graph.number_of_nodes()):
        raise InputError(f"{topology} links {graph.number_of_nodes()} nodes, not --nodes {n_nodes}; leave out --nodes.")
    return graph


def _is_path(text: str) -> bool:
    """Whether the text looks like a path rather than a name."""
    return bool(Path(text).suffix) or os.sep in text or "/" in text


def has_rank(text: str) -> bool:
    """Whether a name contains {rank}, or {rank:03d} with leading zeros."""
    return RANK.search(text) is not None


def with_rank(text: str, rank: int) -> str:
    """The text with ``{rank}`` filled in, padded with zeros as it asks."""
    return RANK.sub(lambda found: f"{rank:0{found.group(1) or 1}d}", text)


def is_one_table(data: Sequence[str]) -> bool:
    """Whether the data are one file or data set to split, rather than one file per node."""
    return len(data) == 1 and not has_rank(data[0]) and len(expand(data)) == 1


def files_of_all_nodes(data: Sequence[str], n_nodes: int | None) -> list[str]:
    """The files of all nodes: {rank} is filled in, and patterns such as site-*.csv are expanded."""
    if not has_rank(data[0]):
        return list(map(str, expand(data)))
    if n_nodes is None:
        raise InputError(f"{data[0]} names one file per node; give the number of nodes with --nodes.")
    return [with_rank(data[0], rank) for rank in range(n_nodes)]
