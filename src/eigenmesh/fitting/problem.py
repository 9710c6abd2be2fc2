"""The samples of a fit, and the network of their nodes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import networkx as nx
import numpy as np

from eigenmesh import data, graphs
from eigenmesh.arrays import to_numpy
from eigenmesh.averaging import Averaging
from eigenmesh.errors import DataError, InputError, TransportError, UnknownNameError, warn_user
from eigenmesh.fitting.matching import common_settings, listed, require_same_settings
from eigenmesh.fitting.monitor import warn_of_columns
from eigenmesh.fitting.networks import (
    count_nodes,
    counting_network,
    gather_bytes,
    network_over,
    parse_weights,
    with_exact_averages,
)
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.networks import Changing, Network
from eigenmesh.settings import DRAWN_FROM, Request
from eigenmesh.solvers import Known, Solver
from eigenmesh.transports import Transport
from eigenmesh.words import canonical_name, find_name

# What is known about the data before anything is read or sent.


class Size(NamedTuple):
    """N and d over all nodes; None if a single node cannot know it."""

    n_samples: int | None
    n_features: int | None


class DataFacts(NamedTuple):
    """What is known about samples without reading them.

    ``has_all_reduce``: the engine can sum over all nodes; ``n_features``, ``feature_names``: of the columns in this
    process; ``size``: of all nodes; ``length``: numbers in a vector that nodes send.
    """

    n_nodes: int
    n_features: int
    size: Size
    length: int
    has_all_reduce: bool = False
    feature_names: tuple[str, ...] | None = None
    node_names: tuple[str, ...] | None = None

    @property
    def common(self) -> dict[str, Any]:
        """The facts that must be the same at all nodes, as JSON values."""
        by_columns = self.size.n_features is None
        names = None if by_columns or self.feature_names is None else listed(self.feature_names)
        return {
            "partition": "features" if by_columns else "samples",
            "n_samples": self.size.n_samples,
            "n_features": self.size.n_features,
            "feature_names": names,
            "node_names": None if self.node_names is None else listed(self.node_names),
        }

    @classmethod
    def of_rows(cls, n_nodes: int, n_features: int, **more: Any) -> DataFacts:
        """Facts for nodes with samples of the same d columns: vectors have d numbers; one node does not know N."""
        return cls(n_nodes, n_features, Size(None, n_features), n_features, **more)


# The device of the arrays of a fit: that of the samples, that of the transport, or the one asked for.


def place_of(
    device: str | None, samples_device: Any, transport: Transport | None, network: Network | None = None
) -> data.Place:
    """Device of the arrays: the one asked for, else that of the samples; with a transport, that of the transport.

    With a transport, arrays on the CPU are NumPy arrays, which have the same bits with every engine. On a network that
    changes they always are.
    """
    if transport is None:
        return data.Place.named(device if device is not None or samples_device is None else str(samples_device))
    own = getattr(transport, "device", None)
    if own is None and device is not None:
        raise InputError(f"{type(transport).__name__} carries NumPy arrays; leave out device = {device!r}.")
    if own is not None and device is not None and not str(own).startswith(device):
        raise InputError(f"the transport's arrays are on {own}, not on device = {device!r}; leave it out.")
    if isinstance(network, Changing) or str(own) == "cpu":
        own = None
    return data.Place.named(None if own is None else str(own))


# On a GPU a product with the data itself is limited by memory, and takes about four times as long as its arithmetic.
GPU_PASS_COST = 4.0
# Share of a GPU's free memory to use.
FILL_OF_GPU = 0.8


class BatchSums(NamedTuple):
    """Sums over a batch, (width of the monitor,), and the variance that the last components explain."""

    sums: np.ndarray
    explained: float


class Measurement(NamedTuple):
    """Pooled moments, and the covariance of every node in this process.

    known, checked : of a stream whose average of the moments included them, a space and its image, and the sums of the
    monitor.
    """

    moments: data.Moments
    covariance: data.Covariance
    known: Known | None = None
    checked: BatchSums | None = None


class Data(Protocol):
    """The interface of samples for ``prepare``, wherever they are stored."""

    @property
    def facts(self) -> DataFacts: ...

    @property
    def weights(self) -> Weights | NetworkSequence:
        """The network that the solver sees: a single node if an engine sums over all nodes by itself."""
        ...

    def count(self, masked: bool) -> tuple[Size, Network | None]:
        """N and d over all nodes, None if they need a pass over the data; and the network that counted.

        ``masked``: no node reveals its own count; the network keeps the masks.
        """
        ...

    def compare(self, request: Request) -> None:
        """Raise at every node unless all nodes have the same settings and columns; sends no number of the data."""
        ...

    def check(self, request: Request) -> None:
        """Raise if the request is impossible on such data; sends and reads nothing."""
        ...

    def network(self, averaging: Averaging, max_rounds: int) -> Network: ...

    def choose_covariance(
        self, request: Request, solver: Solver, n_components: int, network: Network | None = None
    ) -> data.Choice:
        """How to store the covariances: as requested, or the cheapest way that fits; for this network, or for any."""
        ...

    def measure(
        self, network: Network, choice: data.Choice, *, scale: data.Scaling, missing: data.Missing, device: str | None
    ) -> Measurement:
        """Pooled moments, and the covariance of every node in this process."""
        ...


@dataclass(frozen=True, eq=False)
class NodeData:
    """Samples in this process: of all nodes in a simulation, of one node with a transport.

    ``split`` is how the samples were split over the nodes, in words; it must be the same at all nodes. ``name`` and
    ``topology`` are what users call the data and the network, for tables and pages.
    """

    shards: data.Partition
    weights: Weights | NetworkSequence
    transport: Transport | None = None
    split: str | None = field(default=None, kw_only=True)
    name: str = field(default="", kw_only=True)
    topology: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        transport, shards = self.transport, self.shards
        if transport is not None and (shards.ids != (transport.rank,) or shards.n_nodes != transport.size):
            samples = f"the samples are those of nodes {list(shards.ids)} of {shards.n_nodes}"
            raise InputError(f"this process is node {transport.rank} of {transport.size}, but {samples}.")

    @property
    def facts(self) -> DataFacts:
        shards, reduces = self.shards, self.transport is not None and self.transport.reduces
        return DataFacts.of_rows(
            shards.n_nodes,
            shards.n_features,
            has_all_reduce=reduces,
            feature_names=shards.feature_names,
            node_names=shards.node_names,
        )

    def at_node(self, transport: Transport) -> NodeData:
        """The part of the data at one of the nodes."""
        return replace(self, shards=self.shards.take([transport.rank]), transport=transport)

    def compare(self, request: Request) -> None:
        common = {
            **common_settings(request),
            **self.facts.common,
            "topology": self.weights.summary,
            "split": self.split,
        }
        require_same_settings(self.transport, common)

    def check(self, request: Request) -> None:
        self._place(request.device)

    def count(self, masked: bool) -> tuple[Size, Network]:
        """N over all nodes, by one average of one number."""
        network = self.counting_network(masked)
        n_samples = self.total(network, [block.count for block in self.shards.blocks])
        return Size(n_samples, self.shards.n_features), network

    def counting_network(self, masked: bool) -> Network:
        """A network for counting samples, with masks if requested."""
        return counting_network(self._network, masked)

    def total(self, network: Network, counts: Sequence[float]) -> int:
        """Sum over all nodes of one number per node, given for the nodes in this process; it must be a whole number."""
        average = network.common_mean(np.array(counts, dtype=float)[:, np.newaxis])[0, 0]
        return int(data.whole_count(float(self.shards.n_nodes * average)))

    def network(self, averaging: Averaging, max_rounds: int) -> Network:
        """All nodes stacked, or this node with its neighbours behind a transport."""
        return with_exact_averages(self._network(averaging), averaging, max_rounds)

    def _network(self, averaging: Averaging) -> Network:
        return network_over(self.weights, self.transport, averaging)

    def choose_covariance(
        self, request: Request, solver: Solver, n_components: int, network: Network | None = None
    ) -> data.Choice:
        """Each node for itself; on another device together, within its free memory."""
        kind, place = request.covariance, self._place(request.device, network)
        columns, products = solver.columns(n_components, self.shards.n_features), solver.traits.expected_products
        if place == data.HOST or (network is not None and network.integers):
            return data.choose_for_each(self.shards, kind, columns, products)
        sizes = data.Sizes.of(*self.shards.blocks)
        if kind is not None:
            return sizes.asked(kind)
        limits: tuple[Any, ...] = ()
        if place.is_gpu:
            # On a GPU the only limit for copies is the free memory besides the samples.
            free = int(FILL_OF_GPU * place.free_bytes()) - self.shards.bytes_at(place)
            sizes, limits = replace(sizes, copy_bytes=free), (free, GPU_PASS_COST)
        return data.choose_by_size(sizes, columns, products, *limits)

    def measure(
        self, network: Network, choice: data.Choice, *, scale: data.Scaling, missing: data.Missing, device: str | None
    ) -> Measurement:
        """One average for the moments, two if means are large; then the covariances, without messages."""
        place = self._place(device, network)
        shards = self.shards.moved(place)
        moments = self._moments(shards, network, scale, missing)
        warn_of_columns(self.shards, moments)
        return Measurement(moments, self._covariance(shards, moments, choice, place))

    def _moments(
        self, shards: data.Partition, network: Network, scale: data.Scaling, missing: data.Missing
    ) -> data.Moments:
        return data.pooled_moments(shards, network, scale=scale, missing=missing, resolution=network.resolution)

    def _covariance(
        self, shards: data.Partition, moments: data.Moments, choice: data.Choice, place: data.Place
    ) -> data.Covariance:
        if choice.each:
            return data.covariance_of_each(shards, moments, choice.each, place)
        return data.build_covariance(shards, moments, kind=choice.kind, xp=place.xp, device=place.device)

    def _place(self, device: str | None, network: Network | None = None) -> data.Place:
        return place_of(device, self.shards.device, self.transport, network)


# Check by keyed hashes of sample ids that nodes with different columns have the same samples in the same order.


# Bytes of a hash, and bytes per float64 in a message: it represents 48 bits exactly.
HASH_BYTES, WORD = 30, 6
FIX = "give all nodes the same samples in the same order, for example sorted by their ids"


def agree_on_samples(network: Network, shards: data.FeatureShards, shares: np.ndarray) -> np.ndarray:
    """Average of the shares of all nodes, after checking that all have the same samples: (nodes, n) -> (n,).

    One node draws a key for this fit, so that hashes cannot be compared with those of other fits. Then maxima of the
    hash and its negative show whether the nodes agree, in messages whose size does not depend on N, which all nodes
    have compared before. Only if ids differ does that node send a hash for every row, so that each other node can
    report the first row that differs, to its own operator only.
    """
    drawn = np.stack([_words(network.private_bytes(HASH_BYTES)) for _ in network.ids])
    keys = [_text(words) for words in network.broadcast(drawn)]
    own = np.stack([_facts(shards, position, key) for position, key in enumerate(keys)])
    averaged, agreed = network.common_mean_and_maximum(shares, np.hstack([own, -own]))
    largest, smallest = agreed[0].reshape(2, -1) * [[1], [-1]]
    has_ids, *hashes = (largest != smallest).tolist()
    if has_ids:
        raise DataError("some nodes have ids of their samples and some have none; give id_column at all nodes or none.")
    if any(hashes):
        _name_the_difference(network, shards, keys)
    return np.asarray(averaged[0])


def _facts(shards: data.FeatureShards, position: int, key: bytes) -> np.ndarray:
    """Whether there are ids, and their hash, as numbers: (1 + words,)."""
    ids = shards.sample_ids[position]
    digest = bytes(HASH_BYTES) if ids is None else _digests(ids, key)[-1]
    return np.array([ids is not None, *_words(digest)], dtype=float)


def _name_the_difference(network: Network, shards: data.FeatureShards, keys: list[bytes]) -> None:
    """Raise at every node, with the first row where its ids differ from those of the node that drew the key."""
    own = np.array([_prefixes(shards, position, key) for position, key in enumerate(keys)])
    compared = network.broadcast(own)
    message = f"ids of samples at another node differ from those at this node; {FIX}."
    for position in range(len(own)):
        different = np.flatnonzero(own[position] != compared[position])
        if len(different):
            label, row = shards.node_label(position), int(different[0])
            message = f"ids of samples differ, at {label} from row {row} on (counted from 0); {FIX}."
            break
    # Wait for all nodes, so that none ends the fit before each has compared its ids.
    with contextlib.suppress(TransportError):
        network.maximum(np.zeros((len(own), 1)))
    raise DataError(message)


def _prefixes(shards: data.FeatureShards, position: int, key: bytes) -> list[float]:
    """For each row, one number that identifies all ids up to it."""
    ids = shards.sample_ids[position]
    return [] if ids is None else [_words(digest)[0] for digest in _digests(ids, key)]


def _digests(ids: np.ndarray, key: bytes) -> list[bytes]:
    """Keyed hashes of the first 1, 2, .. ids as text."""
    running, digests = hashlib.blake2b(key=key, digest_size=HASH_BYTES), []
    for value in ids.tolist():
        text = str(value).strip().encode()
        running.update(len(text).to_bytes(8, "big") + text)
        digests.append(running.digest())
    return digests


def _words(sent: bytes) -> list[float]:
    return [float(int.from_bytes(sent[start : start + WORD], "big")) for start in range(0, len(sent), WORD)]


def _text(words: np.ndarray) -> bytes:
    return b"".join(int(word).to_bytes(WORD, "big") for word in words)


# Columns split over the nodes: ``Data`` for ``prepare``, with the Gram matrix in place of the covariance.


# What is split over the nodes, and the class that holds it.
PARTITIONS: dict[str, type[data.Partition]] = {"samples": data.Shards, "features": data.FeatureShards}


@dataclass(frozen=True, eq=False)
class ColumnData(NodeData):
    """Columns in this process: of all nodes in a simulation, of one node with a transport.

    Vectors that nodes send have N - 1 numbers: scores, never loadings.
    """

    @cached_property
    def columns(self) -> data.FeatureShards:
        return cast(data.FeatureShards, self.shards)

    @property
    def facts(self) -> DataFacts:
        n_samples = self.columns.n_samples
        return super().facts._replace(size=Size(n_samples, None), length=n_samples - 1)

    def check(self, request: Request) -> None:
        super().check(request)
        if request.covariance is data.CovarianceKind.SPARSE:
            raise InputError('covariance = "sparse" is for split samples; with split columns leave it out.')

    def count(self, masked: bool) -> tuple[Size, Network]:
        """d over all nodes, by one average of one number."""
        network = self.counting_network(masked)
        d = self.total(network, [block.n_features for block in self.columns.blocks])
        return Size(self.columns.n_samples, d), network

    def choose_covariance(
        self, request: Request, solver: Solver, n_components: int, network: Network | None = None
    ) -> data.Choice:
        """For each node what it would choose alone; N and d_j trade roles in the sizes."""
        columns, products = solver.columns(n_components, self.facts.length), solver.traits.expected_products
        if not request.masked:
            self._warn_of_few(columns * products)
        choices = [self._choice(node, request.covariance, columns, products) for node in self.columns.ids]
        kinds = tuple(choice.kind for choice in choices)
        return replace(choices[0], bytes=sum(choice.bytes for choice in choices), each=kinds)

    def _choice(self, node: int, kind: data.CovarianceKind | None, columns: int, products: int) -> data.Choice:
        own = self.columns.take([node])
        sizes = data.Sizes.of(*own.blocks)
        sizes = replace(sizes, n_samples=own.n_features, n_features=own.n_samples - 1, sparse_bytes=None)
        if kind is not None:
            return sizes.asked(kind)
        chosen = data.choose_by_size(sizes, columns, products)
        lazy = not own.blocks[0].in_memory and sizes.memory_needed(data.CovarianceKind.MATRIX_FREE) > sizes.copy_bytes
        if lazy and chosen.kind is data.CovarianceKind.FORMED:
            # The matrix is formed from columns, but a file is read by rows.
            chosen = replace(chosen, kind=data.CovarianceKind.CHUNKED, reason="the file is read in chunks")
        return chosen

    def _warn_of_few(self, sent: int) -> None:
        shards = self.columns
        few = [(shards.node_label(at), block.n_features) for at, block in enumerate(shards.blocks)]
        few = [(label, count) for label, count in few if count <= sent]
        if few:
            label, count = few[0]
            more = f" and {len(few) - 1} more nodes" if len(few) > 1 else ""
            warn_user(
                f"{label} with {count:,} columns{more}: about {sent:,} products with them are sent, so whoever sees "
                "all messages of a node can reconstruct its data up to a rotation. Use masks, or fewer components."
            )

    def measure(
        self, network: Network, choice: data.Choice, *, scale: data.Scaling, missing: data.Missing, device: str | None
    ) -> Measurement:
        """Moments of each node's own columns, without messages; then the nodes agree on N, ids, d and the trace."""
        shards, place = self.columns, self._place(device, network)
        each = tuple(data.own_moments(shards.take([node]), scale=scale, missing=missing) for node in shards.ids)
        shares = np.array([[float(len(one.mean)), one.total_variance] for one in each])
        d, total = shards.n_nodes * agree_on_samples(network, shards, shares)
        _require_variance(total, network.resolution, scale)
        agreed = data.OfSplitColumns(float(total), int(np.rint(d)))
        moments = data.Moments.of_columns(each, shards.order, shards.n_samples, agreed)
        return Measurement(moments, data.Gram.of(shards.moved(place), each, choice.each, place))


def node_data(
    shards: data.Partition,
    weights: Weights | NetworkSequence,
    transport: Transport | None = None,
    split: str | None = None,
) -> NodeData:
    """``Data`` for shards of samples or of columns, with their network.

    Parameters
    ----------
    shards : Shards or FeatureShards
        The samples, or columns, of the nodes in this process.
    weights : Weights or NetworkSequence
        The network of all nodes.
    transport : Transport or None
        With a transport, this process is one node.
    split : str or None
        How the samples were split over the nodes, in words; it must be the same at all nodes.
    """
    kind = ColumnData if isinstance(shards, data.FeatureShards) else NodeData
    return kind(shards, weights, transport, split=split)


# The one way from what users give to samples at nodes and their network: words of a command, files, frames or parts.


DEFAULT_SPLIT = "random"
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
        if self.links is not None:
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
        """The graph of a file of links; None unless the topology names one."""
        topology = self.topology
        if not isinstance(topology, str) or find_name(topology, graphs.TOPOLOGIES) is not None:
            return None
        if not (Path(topology).is_file() or _is_path(topology)):
            raise UnknownNameError("topology (and no file)", topology, graphs.TOPOLOGIES)
        graph = graphs.from_edge_list(topology)
        graphs.require_connected(graph)
        return graph

    def rule(self) -> data.Split:
        """The split of one table."""
        return data.split_by_name(DEFAULT_SPLIT if self.split is None else self.split, self.seed)

    def count(self, n_parts: int) -> int:
        """M for one table of that many rows, or columns: as asked for, else as many as the split has sizes, or 10."""
        rule = self.rule()
        sizes = len(rule.sizes) if isinstance(rule, data.SizesSplit) else None
        return count_nodes(self.topology if self.links is None else self.links, self.n_nodes or sizes, n_parts)

    def over(self, shards: data.Partition, name: str = "", split: str | None = None) -> NodeData:
        """The samples, with the network of their nodes. Nodes of a file of links are matched by name, or give names."""
        if self.n_nodes not in (None, shards.n_nodes):
            raise InputError(
                f"n_nodes = {self.n_nodes}, but data and network have {shards.n_nodes} nodes; leave it out."
            )
        if self.links is not None and shards.node_names is None:
            names = tuple(str(self.links.nodes[node]["name"]) for node in range(shards.n_nodes))
            shards = replace(shards, node_names=names)
        weights = self.network(shards.n_nodes, shards.node_names)
        topology = self.topology if isinstance(self.topology, str) else ""
        return replace(node_data(shards, weights, self.transport, split), name=name, topology=topology)

    def network(self, n_nodes: int, names: Sequence[str] | None = None) -> Weights | NetworkSequence:
        """The network of that many nodes; if its own nodes have these names, they are put in this order."""
        if self.links is not None:
            return graphs.weighting(self.weights, graphs.in_order_of(self.links, names))
        return parse_weights(self.topology, self.weights, n_nodes, self.seed, names)

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
        return self.over(shards, table.name, str(self.split or DEFAULT_SPLIT))

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
            table = read_one(files[0], options, share)
            if isinstance(rule, data.LabelSplit) and table.labels is None and self.kind is data.Shards:
                fix = "name their column with --label-column, or use --split random or --split contiguous"
                raise InputError(f"{table.name} has no labels to split by; {fix}.")
            return self.of_table(table) if share is None else self.of_own(table, split=str(self.split))
        if self.split is not None:
            n = max(2, len(files))
            raise InputError(f"{n} files are {n} nodes, one per file; leave out --split {self.split}.")
        if transport is not None:
            if len(files) != transport.size:
                started = f"{transport.size} processes were started"
                raise InputError(f"{len(files)} files are {len(files)} nodes, one per file, but {started}.")
            stems = [data.name_of(Path(file)) for file in files]
            table = replace(
                read_one(files[transport.rank], options), name=words[0] if len(words) == 1 else f"{len(files)} files"
            )
            return self.of_own(table, stems if len(set(stems)) == len(files) else None, "one node per file")
        for name in files:
            if data.is_dataset(name) and not Path(name).is_file():
                few = "give only this data set, or only files"
                raise InputError(f"{name} is a data set, but {len(files)} sources were given; {few}.")
        if self.n_nodes not in (None, len(files)):
            fix = f"leave out n_nodes, or give a network of {len(files)} nodes"
            raise InputError(f"{len(files)} files are {len(files)} nodes, one per file, not {self.n_nodes}; {fix}.")
        return replace(self.of_parts(files, **vars(options)), name=f"{len(files)} files", split="one node per file")


def read_one(name: str, options: data.TableOptions = EVERYTHING, share: tuple[int, int] | None = None) -> data.Table:
    """A data set or the table in a file, by name; ``share = (i, n)`` takes the i-th of n runs of its rows."""
    if data.is_dataset(name):
        if options != EVERYTHING:
            fix = "leave out --label-column, --drop and the other options of tables"
            raise InputError(f"the data set {name} has its own labels, and all its columns are used; {fix}.")
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


def _require_variance(total: float, resolution: float, scale: data.Scaling) -> None:
    if total * data.MOST_ROUNDED < resolution:
        least = resolution / data.MOST_ROUNDED
        raise DataError(f"integers do not resolve a total variance below {least:.2g}; multiply the data by a constant.")
    if total <= 0:
        raise DataError(data.NO_VARIANCE)
    if not scale:
        data.require_range(float(total))


# A seed that the data cannot depend on: drawn at run time by all nodes together.
#
# Each node first commits to a number: it sends ``SHA-256(node, salted fingerprint of its data, nonce)``. Then all
# nodes
# reveal fingerprint and nonce, check them against the commitments, and take the hash of all nonces. As long as one
# node
# draws at random, nobody can steer the seed, or choose samples that exploit it.


def draw_seed(network: Network, covariance: data.Covariance) -> int:
    """A fresh seed: drawn by this process if it holds all nodes, otherwise by all nodes together.

    It has 62 random bits, below 2^63 so that TOML can store it, and is marked as drawn: passed in again, it repeats the
    run.
    """
    if len(network.ids) == network.n_nodes:
        drawn = int.from_bytes(network.private_bytes(8), "big")
    else:
        # A product with a fixed block identifies the samples.
        block = np.random.default_rng(0).standard_normal((1, covariance.n_features, 2))
        summary = np.ascontiguousarray(to_numpy(covariance.apply(covariance.place(block)))).tobytes()
        drawn = agree_on_seed(network, summary)
    return DRAWN_FROM + drawn % DRAWN_FROM


def agree_on_seed(network: Network, summary: bytes) -> int:
    """One seed for all nodes, by two exchanges of maxima; ``summary`` identifies this node's samples.

    If a node reveals nothing, or something other than it had committed to, the fit ends with an error that names it.
    """
    (rank,) = network.ids
    nonce, salt = network.private_bytes(32), network.private_bytes(32)
    # The salt is never sent, so nobody can test guessed samples against the fingerprint.
    secret = hashlib.sha256(salt + summary).digest() + nonce
    committed = gather_bytes(network, {rank: _commitment(rank, secret)})
    revealed = gather_bytes(network, {rank: secret})
    for node, (commitment, shown) in enumerate(zip(committed, revealed, strict=True)):
        if shown is None or commitment != _commitment(node, shown):
            problem = "revealed no number" if shown is None else "revealed another number than it had committed to"
            raise TransportError(f"node {node} {problem} for the common seed; the fit ends.")
    nonces = b"".join(shown[32:] for shown in revealed if shown is not None)
    return int.from_bytes(hashlib.sha256(b"seed" + nonces).digest()[:8], "big")


def _commitment(node: int, secret: bytes) -> bytes:
    return hashlib.sha256(b"commit %d " % node + secret).digest()
