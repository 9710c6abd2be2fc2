"""From what users give, words of a command, files, frames or parts, to samples at the nodes of a network: one way."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy

from eigenmesh import data, graphs
from eigenmesh.arrays import is_sparse
from eigenmesh.errors import AtFirstUse, DataError, InputError, UnknownNameError
from eigenmesh.fitting.node_data import PARTITIONS, NodeData, node_data
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.graphs.topologies import graph_of, in_order_of, is_edge_list
from eigenmesh.transports import Transport
from eigenmesh.words import canonical_name, find_name

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = AtFirstUse("networkx")


DEFAULT_SPLIT = "random"
DEFAULT_NODES = 10
EVERYTHING = data.TableOptions()
# In the name of a file, the number of a node.
RANK = re.compile(r"\{rank(?::0(\d+)d)?\}")


@dataclass(frozen=True)
class Spread:
    """How samples are spread over the nodes of a network. Names are checked at once, before any data are read.

    Parameters
    ----------
    topology : str, networkx graph, list of pairs, Weights or (M, M) matrix
        As in the settings; commands may also name a file of links.
    n_nodes : int or None
        Number of nodes, if neither the topology nor the samples decide it.
    weights : str
        Rule for the weights of a graph.
    split : str, Split or None
        How one table is split; None for the default, or for samples that are in parts already.
    partition : "samples" or "features"
        What the nodes split.
    seed : int
        Seed of the split and of the graph.
    transport : Transport or None
        With a transport, this process is one node and holds only its own samples.
    """

    topology: Any = "erdos_renyi"
    n_nodes: int | None = None
    weights: str = "auto"
    split: str | data.Split | None = None
    partition: str = "samples"
    seed: int = 0
    transport: Transport | None = None

    def __post_init__(self) -> None:
        partition = canonical_name("partition", self.partition, PARTITIONS)
        weights = canonical_name("weights", self.weights, ["auto", *graphs.WEIGHTS])
        topology, n_nodes = self.topology, self.n_nodes
        if isinstance(topology, str) and self.links is None:
            topology = canonical_name("topology", topology, graphs.TOPOLOGIES)
        if self.transport is not None:
            size = self.transport.size
            if n_nodes not in (None, size):
                raise InputError(f"{size} processes are {size} nodes; leave out n_nodes {n_nodes}.")
            n_nodes = size
        if isinstance(topology, str) and self.links is not None:
            linked = self.links.number_of_nodes()
            if n_nodes not in (None, linked):
                raise InputError(f"{topology} links {linked} nodes, not n_nodes {n_nodes}; leave out n_nodes.")
            n_nodes = linked
        vars(self).update(topology=topology, n_nodes=n_nodes, weights=weights, partition=partition)

    @property
    def kind(self) -> type[data.Partition]:
        """The class of the data: shards of rows or, if columns are split, of columns."""
        return PARTITIONS[self.partition]

    @cached_property
    def links(self) -> nx.Graph | None:
        """The graph that is given: in a file, or as a graph, a list of links or a matrix of 0 and 1."""
        topology = self.topology
        if isinstance(topology, str):
            return None if find_name(topology, graphs.TOPOLOGIES) is not None else _graph_in(topology)
        if isinstance(topology, nx.Graph):
            return graphs.from_networkx(topology)
        if is_edge_list(topology):
            return graphs.from_networkx(graph_of((), topology))
        return None if isinstance(topology, Weights | NetworkSequence) else _graph_of_matrix(_matrix(topology))

    @cached_property
    def ready(self) -> Weights | NetworkSequence | None:
        """The network that is given with its own weights."""
        if isinstance(self.topology, str) or self.links is not None:
            return None
        if self.weights != "auto":
            own = "a network that changes has" if isinstance(self.topology, NetworkSequence) else "this topology has"
            raise InputError(
                f'{own} its own weights, so weights = {self.weights!r} would have no effect; use weights="auto".'
            )
        given = isinstance(self.topology, Weights | NetworkSequence)
        return self.topology if given else graphs.from_matrix(_matrix(self.topology))

    def rule(self) -> data.Split:
        """The split of one table."""
        return data.split_by_name(DEFAULT_SPLIT if self.split is None else self.split, self.seed)

    def count(self, n_parts: int) -> int:
        """M for one table of that many rows, or columns.

        It is that of the network, else the number asked for or of the sizes of the split, else 10, or fewer so that
        every node has two.
        """
        if self.links is not None:
            return int(self.links.number_of_nodes())
        if self.ready is not None:
            return self.ready.n_nodes
        rule = self.rule()
        sizes = len(rule.sizes) if isinstance(rule, data.SizesSplit) else None
        return self.n_nodes or sizes or max(1, min(DEFAULT_NODES, n_parts // 2))

    def over(self, shards: data.Partition, name: str = "", split: str | None = None) -> NodeData:
        """The samples, with the network of their nodes. Nodes of a file of links are matched by name, or give names."""
        if self.n_nodes not in (None, shards.n_nodes):
            raise InputError(
                f"n_nodes = {self.n_nodes}, but data and network have {shards.n_nodes} nodes; leave it out."
            )
        if isinstance(self.topology, str) and self.links is not None and shards.node_names is None:
            names = tuple(str(self.links.nodes[node]["name"]) for node in range(shards.n_nodes))
            shards = replace(shards, node_names=names)
        weights = self.network(shards.n_nodes, shards.node_names)
        topology = self.topology if isinstance(self.topology, str) else ""
        return replace(node_data(shards, weights, self.transport, split), name=name, topology=topology)

    def network(self, n_nodes: int, names: Sequence[str] | None = None) -> Weights | NetworkSequence:
        """The network of that many nodes; if the nodes of a graph have these names, they are put in this order."""
        network: Weights | NetworkSequence
        if self.links is not None:
            network = graphs.weighting(self.weights, in_order_of(self.links, names))
        elif self.ready is not None:
            network = self.ready
        else:
            network = graphs.weighting(self.weights, graphs.topology(self.topology, n_nodes, seed=self.seed))
        if network.n_nodes != n_nodes:
            raise InputError(
                f"the network has {network.n_nodes} nodes but the data have {n_nodes} parts; make them equal."
            )
        return network

    def of_table(self, table: data.Table, nodes: Any = None) -> NodeData:
        """One table, whose rows or columns are split over the nodes. With a transport, a process keeps its own part.

        A split by labels has one node per label, unless another number of nodes is asked for.

        Parameters
        ----------
        table : Table
            The samples; with labels, if the split needs them, and with weights, if rows stand for several samples.
        nodes : array or None
            The node of every row or, where columns are split, of every column, instead of a split.
        """
        if table.n_samples == 0:
            raise DataError(f"{table.name} has columns but no samples; give a file with at least one.")
        source, weights, rule = table.source, table.weights, self.rule()
        by_columns = self.kind is data.FeatureShards
        # Labels belong to samples, so they cannot split columns.
        labels = None if by_columns else table.labels
        if nodes is None and isinstance(rule, data.LabelSplit) and labels is not None:
            fixed = self.n_nodes is not None or not isinstance(self.topology, str)
            if not fixed or self.count(0) == len(np.unique(labels)):
                nodes = labels
        if nodes is not None:
            shards = self.kind.from_labels(source, nodes).weighted_rows(weights)
        else:
            rows = table.n_samples if weights is None else int(np.count_nonzero(np.asarray(weights)))
            n_nodes = self.count(source.shape[1] if by_columns else rows)
            shards = self.kind.from_array(source, n_nodes, rule, labels, weights)
        shards = shards if self.transport is None else shards.take([self.transport.rank])
        return replace(self.over(shards, table.name, str(self.split or DEFAULT_SPLIT)), labels=table.labels)

    def of_parts(self, parts: Any, weights: Any = None, **options: Any) -> NodeData:
        """One node per part.

        Parameters
        ----------
        parts : Shards, list or dict
            The parts: matrices, or files. The keys of a dict are the names of the nodes.
        weights : list, dict or None
            One array per part, under the same names: how many samples each row stands for.
        **options : object
            How files are read, as in ``read_table``.
        """
        shards = parts if isinstance(parts, data.Partition) else self._shards_of(parts, options)
        if type(shards) is not self.kind:
            raise InputError(
                f"partition = {self.partition!r} is for {self.kind.__name__}; got {type(shards).__name__}."
            )
        if isinstance(weights, Mapping) and isinstance(parts, Mapping) and set(weights) == set(parts):
            weights = [weights[name] for name in parts]
        if weights is not None:
            if isinstance(weights, Mapping) or len(weights) != len(shards.blocks):
                n = len(shards.blocks)
                raise InputError(f"sample_weight must have one array for each of {n} parts of the data.")
            shards = shards.weighted(list(weights))
        return self.over(shards)

    def _shards_of(self, parts: Any, options: Mapping[str, Any]) -> data.Partition:
        names, held = (tuple(map(str, parts)), list(parts.values())) if isinstance(parts, Mapping) else (None, parts)
        if not all(isinstance(part, str | os.PathLike) for part in held):
            return self.kind.from_list(list(held), node_names=names)
        files = data.expand(held)
        if len(files) < 2:
            raise InputError(f"{files[0]} is one file; read it with eigenmesh.data.read_table, and give its X.")
        shards = self.kind.from_files(files, **options)
        return shards if names is None else replace(shards, node_names=names)

    def of_own(self, table: data.Table, names: Sequence[str] | None = None, split: str | None = None) -> NodeData:
        """The samples of this process, which a transport makes one node.

        Parameters
        ----------
        table : Table
            The samples of this node.
        names : sequence of str or None
            Names of all nodes.
        split : str or None
            How the samples were split over the nodes, in words.
        """
        return self.over(self.own_shards(table, names), table.name, split)

    def own_shards(self, table: data.Table, names: Sequence[str] | None = None) -> data.Partition:
        """The samples of this process, without a network."""
        transport = cast(Transport, self.transport)
        held: dict[str, Any] = {"ids": [transport.rank], "n_nodes": transport.size, "node_names": names}
        if self.kind is data.FeatureShards:
            held["sample_ids"] = [table.ids]
        return self.kind.from_list([table.source], **held).weighted([table.weights])

    def of_words(self, words: Sequence[str], options: data.TableOptions = EVERYTHING) -> NodeData:
        """The samples that a command names.

        With a transport a node reads its own file, or its rows of the only file if these are split in runs; any other
        split needs the whole file.

        Parameters
        ----------
        words : sequence of str
            A data set, a file, several files, or a pattern of their names; ``{rank}`` stands for the number of a node.
        options : TableOptions
            How files are read.
        """
        transport, files = self.transport, files_of_all_nodes(words, self.n_nodes)
        one_table = len(files) == 1 if transport is None else is_one_table(words)
        if one_table:
            rule, share = self.rule(), None
            if transport is not None and isinstance(rule, data.ContiguousSplit) and self.kind is data.Shards:
                share = transport.rank, transport.size
            by_label = isinstance(rule, data.LabelSplit) and self.kind is data.Shards
            table = read_one(files[0], replace(options, needs_labels=by_label), share)
            if by_label and table.labels is None:
                fix = "name their column with --table label_column=NAME, or use --split random or --split contiguous"
                raise InputError(f"{table.name} has no labels to split by; {fix}.")
            return self.of_table(table) if share is None else self.of_own(table, split=str(self.split))
        if self.split is not None:
            n = max(2, len(files))
            raise InputError(f"{n} files are {n} nodes, one per file; leave out --split {self.split}.")
        if self.n_nodes not in (None, len(files)):
            fix = f"leave out n_nodes, or give a network of {len(files)} nodes"
            fix = fix if transport is None else f"start {len(files)} processes"
            raise InputError(f"{len(files)} files are {len(files)} nodes, one per file, not {self.n_nodes}; {fix}.")
        if transport is not None:
            stems = [data.name_of(Path(file)) for file in files]
            table = replace(
                read_one(files[transport.rank], options), name=words[0] if len(words) == 1 else f"{len(files)} files"
            )
            return self.of_own(table, stems if len(set(stems)) == len(files) else None, "one node per file")
        for name in files:
            if data.is_dataset(name) and not Path(name).is_file():
                few = "give only this data set, or only files"
                raise InputError(f"{name} is a data set, but {len(files)} sources were given; {few}.")
        return replace(self.of_parts(files, **vars(options)), name=f"{len(files)} files", split="one node per file")


def _graph_in(file: str) -> nx.Graph:
    """The graph of a file of links."""
    if not (Path(file).is_file() or _is_path(file)):
        raise UnknownNameError("topology (and no file)", file, graphs.TOPOLOGIES)
    graph = graphs.from_edge_list(file)
    graphs.topologies.require_connected(graph)
    return graph


def _graph_of_matrix(matrix: Any) -> nx.Graph | None:
    """The graph of an (M, M) matrix of 0 and 1; None for any other matrix, which has weights.

    As weights, a matrix of 0 and 1 would never average: it would only leave or swap values. So it is an adjacency
    matrix.
    """
    adjacent = scipy.sparse.csr_array(matrix)
    if adjacent.shape[0] != adjacent.shape[1] or adjacent.shape[0] < 2 or not np.isin(adjacent.data, (0, 1)).all():
        return None
    # An entry (i, j) without its counterpart (j, i) is a one-way link.
    kind = nx.DiGraph if (adjacent != adjacent.T).nnz else nx.Graph
    linked = nx.from_scipy_sparse_array(adjacent, create_using=kind)
    linked.remove_edges_from(list(nx.selfloop_edges(linked)))
    return graphs.from_networkx(linked)


def _matrix(topology: Any) -> Any:
    """The (M, M) matrix, dense or sparse; raises an error that lists what a topology may be."""
    try:
        matrix = topology if is_sparse(topology) else np.asarray(topology, dtype=float)
    except (TypeError, ValueError):
        matrix = None
    if matrix is None or matrix.ndim != 2:
        also = "a networkx graph, a list of pairs of nodes, Weights, a symmetric (M, M) matrix"
        raise InputError(f"topology = {topology!r} must be {also} or a name: {', '.join(sorted(graphs.TOPOLOGIES))}.")
    return matrix


def read_one(name: str, options: data.TableOptions = EVERYTHING, share: tuple[int, int] | None = None) -> data.Table:
    """A data set or the table in a file, by name; ``share = (i, n)`` takes the i-th of n runs of its rows."""
    if data.is_dataset(name):
        if options != EVERYTHING:
            raise InputError(
                f"the data set {name} has its own labels, and all its columns are used; leave out --table."
            )
        table = data.load(name)
        return table.take(data.consecutive_rows(table.n_samples, share))
    if not Path(name).exists() and data.kind_of(Path(name)) not in data.READERS and not _is_path(name):
        raise UnknownNameError("data set (and no file)", name, [*data.DATASETS, "synthetic:..."])
    return replace(data.read_table(name, share=share, **vars(options)), name=Path(name).name)


def _is_path(text: str) -> bool:
    """Whether the text looks like a path rather than a name."""
    return bool(Path(text).suffix) or os.sep in text or "/" in text


def has_rank(text: str) -> bool:
    """Whether a name contains {rank}, or {rank:03d} with leading zeros."""
    return RANK.search(text) is not None


def with_rank(text: str, rank: int) -> str:
    """The text with ``{rank}`` filled in, padded with zeros as it asks."""
    return RANK.sub(lambda found: f"{rank:0{found.group(1) or 1}d}", text)


def is_one_table(words: Sequence[str]) -> bool:
    """Whether the data are one file or data set to split, rather than one file per node."""
    return len(words) == 1 and not has_rank(words[0]) and len(data.expand(words)) == 1


def files_of_all_nodes(words: Sequence[str], n_nodes: int | None) -> list[str]:
    """The files of all nodes: {rank} is filled in, and patterns such as site-*.csv are expanded."""
    if not has_rank(words[0]):
        return list(map(str, data.expand(words)))
    if n_nodes is None:
        raise InputError(f"{words[0]} names one file per node; give the number of nodes with --nodes.")
    return [with_rank(words[0], rank) for rank in range(n_nodes)]
