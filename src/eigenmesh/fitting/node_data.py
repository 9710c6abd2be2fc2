"""What the nodes of a fit hold, samples or columns: facts, moments and covariances that they agree on, and a seed."""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from eigenmesh import data
from eigenmesh.arrays import as_bytes, as_numbers, to_numpy
from eigenmesh.averaging import Averaging, Integers, Tree
from eigenmesh.errors import DataError, InputError, TransportError, warn_user
from eigenmesh.fitting.matching import common_settings, listed, require_same_settings
from eigenmesh.fitting.monitor import warn_of_columns
from eigenmesh.fitting.networks import add_masks, gather_bytes, network_over, with_exact_averages
from eigenmesh.fitting.pooled import known_covariance, pooled, takes_one_sum
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.networks import Changing, Network
from eigenmesh.settings import DRAWN_FROM, Request
from eigenmesh.solvers import Known, Solver
from eigenmesh.transports import Transport

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
    def of_rows(cls, n_nodes: int, d: int, transport: Transport | None = None, *names: Any) -> DataFacts:
        """Facts for nodes with samples of the same d columns: vectors have d numbers; one node does not know N.

        ``names`` are those of features and of nodes.
        """
        return cls(n_nodes, d, Size(None, d), d, transport is not None and transport.reduces, *names)


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


class Data(ABC):
    """Samples for ``prepare``, wherever they are stored.

    Attributes
    ----------
    weights : Weights or NetworkSequence
        The network that the solver sees: a single node if an engine sums over all nodes by itself.
    transport : Transport or None
        With a transport, this process is one node.
    """

    weights: Weights | NetworkSequence
    transport: Transport | None = None

    @property
    @abstractmethod
    def facts(self) -> DataFacts: ...

    @abstractmethod
    def count(self, masked: bool) -> tuple[Size, Network | None]:
        """N and d over all nodes, None if they need a pass over the data; and the network that counted.

        ``masked``: no node reveals its own count; the network keeps the masks.
        """

    @property
    def settings_of_data(self) -> dict[str, Any]:
        """Settings of these data that must be the same at all nodes, as JSON values."""
        return {}

    def compare(self, request: Request) -> None:
        """Raise at every node unless all nodes have the same settings and columns; sends no number of the data."""
        if self.transport is None:
            return
        common = {**common_settings(request), **self.facts.common, "topology": self.weights.summary}
        require_same_settings(self.transport, common | self.settings_of_data)

    @abstractmethod
    def check(self, request: Request) -> None:
        """Raise if the request is impossible on such data; sends and reads nothing."""

    def network(self, averaging: Averaging, max_rounds: int) -> Network:
        """All nodes stacked, or this node with its neighbours behind a transport."""
        return with_exact_averages(self._network(averaging), averaging, max_rounds)

    def _network(self, averaging: Averaging) -> Network:
        """The network of the nodes; a rehearsal has one in virtual time."""
        return network_over(self.weights, self.transport, averaging)

    def counting_network(self, masked: bool) -> Network:
        """A network for counting samples, with masks if requested."""
        network = self._network(Integers() if masked else Tree())
        if masked:
            add_masks(network)
        return network

    def summed(self, network: Network, numbers: Sequence[float] | np.ndarray) -> float:
        """Sum over all nodes of one number per node, given for the nodes in this process."""
        average = network.common_mean(np.array(numbers, dtype=float)[:, np.newaxis])[0, 0]
        return float(self.weights.n_nodes * average)

    @abstractmethod
    def choose_covariance(
        self, request: Request, solver: Solver, n_components: int, network: Network | None = None
    ) -> data.Choice:
        """How to store the covariances: as requested, or the cheapest way that fits; for this network, or for any."""

    @abstractmethod
    def measure(self, network: Network, choice: data.Choice, request: Request) -> Measurement:
        """Pooled moments, and the covariance of every node in this process."""

    def close(self) -> None:  # noqa: B027
        """Release what was kept for the fit, where that does not happen by itself."""

    # Whether the nodes can sum up their covariances, once for a whole fit.
    sums_up: ClassVar[bool] = False

    def sum_up(self, network: Network, request: Request) -> Measurement | None:
        """Pooled moments, and the pooled covariance as that of a single node, by one sum; None if it takes two."""
        return None


@dataclass(frozen=True, eq=False)
class NodeData(Data):
    """Samples in this process: of all nodes in a simulation, of one node with a transport.

    ``split`` is how the samples were split over the nodes, in words; it must be the same at all nodes. ``name`` and
    ``topology`` are what users call the data and the network, for tables and pages. ``labels`` are those of the rows of
    the one table that the nodes share, for pictures.
    """

    shards: data.Partition
    weights: Weights | NetworkSequence
    transport: Transport | None = None
    split: str | None = field(default=None, kw_only=True)
    name: str = field(default="", kw_only=True)
    topology: str = field(default="", kw_only=True)
    labels: np.ndarray | None = field(default=None, kw_only=True)
    sums_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        transport, shards = self.transport, self.shards
        if transport is not None and (shards.ids != (transport.rank,) or shards.n_nodes != transport.size):
            samples = f"the samples are those of nodes {list(shards.ids)} of {shards.n_nodes}"
            raise InputError(f"this process is node {transport.rank} of {transport.size}, but {samples}.")

    @property
    def facts(self) -> DataFacts:
        names = self.shards.feature_names, self.shards.node_names
        return DataFacts.of_rows(self.shards.n_nodes, self.shards.n_features, self.transport, *names)

    def at_node(self, transport: Transport) -> NodeData:
        """The part of the data at one of the nodes."""
        return replace(self, shards=self.shards.take([transport.rank]), transport=transport)

    @property
    def settings_of_data(self) -> dict[str, Any]:
        return {"split": self.split}

    def check(self, request: Request) -> None:
        self._place(request.device)

    def count(self, masked: bool) -> tuple[Size, Network]:
        """N over all nodes, by one average of one number."""
        network = self.counting_network(masked)
        n_samples = self.total(network, [block.count for block in self.shards.blocks])
        return Size(n_samples, self.shards.n_features), network

    def total(self, network: Network, counts: Sequence[float]) -> int:
        """Sum over all nodes of one number per node, given for the nodes in this process; it must be a whole number."""
        return int(data.whole_count(self.summed(network, counts)))

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
            # On a GPU the only limit for matrices is the free memory besides the samples.
            moved = self.shards.bytes_at(place)
            is_there = moved > 0 or self.shards.device is not None
            sizes = replace(sizes, in_memory=is_there, held_bytes=0)
            limits = int(FILL_OF_GPU * place.free_bytes()) - moved, GPU_PASS_COST
        return data.choose_by_size(sizes, columns, products, *limits)

    def measure(self, network: Network, choice: data.Choice, request: Request) -> Measurement:
        """One average for the moments, two if means are large; then the covariances, without messages."""
        place = self._place(request.device, network)
        shards = self.shards.moved(place)
        scatters = self._scatters(shards, choice, request)
        moments = self._moments(shards, network, request, scatters)
        warn_of_columns(self.shards, moments)
        return Measurement(moments, self._covariance(shards, moments, choice, place, scatters))

    def _scatters(self, shards: data.Partition, choice: data.Choice, request: Request) -> list[data.Scatter | None]:
        """One pass over the rows of each node whose moments and covariance follow from it."""
        # What counts as the mean is only known after a first pass.
        kinds = choice.each if request.missing == "error" else ()
        pairs = enumerate(zip(shards.blocks, kinds, strict=False))
        return [data.Scatter(shards, at) if data.is_one_pass(block, kind) else None for at, (block, kind) in pairs]

    def _moments(
        self, shards: data.Partition, network: Network, request: Request, scatters: Sequence[data.Scatter | None]
    ) -> data.Moments:
        if network.integers:
            found = pooled(network, shards, request, squares=True)
            return found.moments(shards, request.scale, data.MOST_ROUNDED)
        how: Any = {"scale": request.scale, "missing": request.missing, "scatters": scatters}
        return data.pooled_moments(shards, network, **how)

    def _covariance(
        self,
        shards: data.Partition,
        moments: data.Moments,
        choice: data.Choice,
        place: data.Place,
        scatters: Sequence[data.Scatter | None],
    ) -> data.Covariance:
        if choice.each:
            return data.covariance_of_each(shards, moments, choice.each, place, scatters)
        return data.build_covariance(shards, moments, kind=choice.kind, xp=place.xp, device=place.device)

    def sum_up(self, network: Network, request: Request) -> Measurement | None:
        """One sum of integers, unless a second one saves time, or entries are missing."""
        integers, shards = network.integers, self.shards
        if not integers or request.missing == "mean":
            return None
        if not takes_one_sum(integers, shards.n_features, request.costs):
            return None
        found = pooled(network, shards, request, squares=False)
        moments = found.moments(shards, request.scale)
        warn_of_columns(shards, moments)
        place = self._place(request.device, network)
        return Measurement(moments, known_covariance(found.scaled(moments.scale), found.error(moments.scale), place))

    def _place(self, device: str | None, network: Network | None = None) -> data.Place:
        return place_of(device, self.shards.device, self.transport, network)


# Check by keyed hashes of sample ids that nodes with different columns have the same samples in the same order.


# Bytes of a hash.
HASH_BYTES = 30
FIX = "give all nodes the same samples in the same order, for example sorted by their ids"


def agree_on_samples(network: Network, shards: data.FeatureShards, shares: np.ndarray) -> np.ndarray:
    """Average of the shares of all nodes, after checking that all have the same samples: (nodes, n) -> (n,).

    One node draws a key for this fit, so that hashes cannot be compared with those of other fits. Then maxima of the
    hash and its negative show whether the nodes agree, in messages whose size does not depend on N, which all nodes
    have compared before. Only if ids differ does that node send a hash for every row, so that each other node can
    report the first row that differs, to its own operator only.
    """
    drawn = np.stack([as_numbers(network.private_bytes(HASH_BYTES)) for _ in network.ids])
    keys = [as_bytes(words) for words in network.broadcast(drawn)]
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
    return np.array([ids is not None, *as_numbers(digest)], dtype=float)


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
    return [] if ids is None else [as_numbers(digest)[0] for digest in _digests(ids, key)]


def _digests(ids: np.ndarray, key: bytes) -> list[bytes]:
    """Keyed hashes of the first 1, 2, .. ids as text."""
    running, digests = hashlib.blake2b(key=key, digest_size=HASH_BYTES), []
    for value in ids.tolist():
        text = str(value).strip().encode()
        running.update(len(text).to_bytes(8, "big") + text)
        digests.append(running.digest())
    return digests


# Columns split over the nodes: ``Data`` for ``prepare``, with the Gram matrix in place of the covariance.


# What is split over the nodes, and the class that holds it.
PARTITIONS: dict[str, type[data.Partition]] = {"samples": data.Shards, "features": data.FeatureShards}


@dataclass(frozen=True, eq=False)
class ColumnData(NodeData):
    """Columns in this process: of all nodes in a simulation, of one node with a transport.

    Vectors that nodes send have N - 1 numbers: scores, never loadings.
    """

    sums_up: ClassVar[bool] = False

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
        if chosen.kind is data.CovarianceKind.FORMED and not sizes.may_hold:
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

    def measure(self, network: Network, choice: data.Choice, request: Request) -> Measurement:
        """Moments of each node's own columns, without messages; then the nodes agree on N, ids, d and the trace."""
        shards, place = self.columns, self._place(request.device, network)
        how: Any = {"scale": request.scale, "missing": request.missing}
        each = tuple(data.own_moments(shards.take([node]), **how) for node in shards.ids)
        shares = np.array([[float(len(one.mean)), one.total_variance] for one in each])
        d, total = shards.n_nodes * agree_on_samples(network, shards, shares)
        _require_variance(total, network.resolution, request.scale)
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
# nodes reveal fingerprint and nonce, check them against the commitments, and take the hash of all nonces. As long as
# one node draws at random, nobody can steer the seed, or choose samples that exploit it.


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
