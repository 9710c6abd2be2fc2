"""The samples of a fit, and the network of their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from eigenmesh.averaging import Averaging
from eigenmesh.data import Covariance, Missing, Moments, Scaling, Shards, build_covariance, pooled_moments
from eigenmesh.data._build_covariance import covariance_of_each
from eigenmesh.data._choice import Choice, Sizes, choose_by_size, choose_for_each
from eigenmesh.data._place import HOST, Place
from eigenmesh.data._weights import whole_count
from eigenmesh.errors import InputError
from eigenmesh.fitting._facts import DataFacts, Size
from eigenmesh.fitting._matching import common_settings, require_same_settings
from eigenmesh.fitting._networks import counting_network, network_over, with_exact_averages
from eigenmesh.fitting._place import place_of
from eigenmesh.fitting._suspicious import warn_of_columns
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.networks import Network
from eigenmesh.settings import Request
from eigenmesh.solvers import Solver
from eigenmesh.transports import Transport

# On a GPU a product with the data itself is limited by memory, and takes about four times as long as its arithmetic.
GPU_PASS_COST = 4.0
# Share of a GPU's free memory to use.
FILL_OF_GPU = 0.8


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
    ) -> Choice:
        """How to store the covariances: as requested, or the cheapest way that fits; for this network, or for any."""
        ...

    def measure(
        self, network: Network, choice: Choice, *, scale: Scaling, missing: Missing, device: str | None
    ) -> tuple[Moments, Covariance]:
        """Pooled moments, and the covariance of every node in this process."""
        ...


@dataclass(frozen=True, eq=False)
class NodeData:
    """Samples in this process: of all nodes in a simulation, of one node with a transport.

    ``split`` is how the samples were split over the nodes, in words; it must be the same at all nodes.
    """

    shards: Shards
    weights: Weights | NetworkSequence
    transport: Transport | None = None
    split: str | None = field(default=None, kw_only=True)

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
        return int(whole_count(float(self.shards.n_nodes * average)))

    def network(self, averaging: Averaging, max_rounds: int) -> Network:
        """All nodes stacked, or this node with its neighbours behind a transport."""
        return with_exact_averages(self._network(averaging), averaging, max_rounds)

    def _network(self, averaging: Averaging) -> Network:
        return network_over(self.weights, self.transport, averaging)

    def choose_covariance(
        self, request: Request, solver: Solver, n_components: int, network: Network | None = None
    ) -> Choice:
        """Each node for itself; on another device together, within its free memory."""
        kind, place = request.covariance, self._place(request.device, network)
        columns, products = solver.columns(n_components, self.shards.n_features), solver.traits.expected_products
        if place == HOST or (network is not None and network.integers):
            return choose_for_each(self.shards, kind, columns, products)
        sizes = Sizes.of(*self.shards.blocks)
        if kind is not None:
            return sizes.asked(kind)
        limits: tuple[Any, ...] = ()
        if place.is_gpu:
            # On a GPU the only limit for copies is the free memory besides the samples.
            free = int(FILL_OF_GPU * place.free_bytes()) - self.shards.bytes_at(place)
            sizes, limits = replace(sizes, copy_bytes=free), (free, GPU_PASS_COST)
        return choose_by_size(sizes, columns, products, *limits)

    def measure(
        self, network: Network, choice: Choice, *, scale: Scaling, missing: Missing, device: str | None
    ) -> tuple[Moments, Covariance]:
        """One average for the moments, two if means are large; then the covariances, without messages."""
        place = self._place(device, network)
        shards = self.shards.moved(place)
        moments = self._moments(shards, network, scale, missing)
        warn_of_columns(self.shards, moments)
        return moments, self._covariance(shards, moments, choice, place)

    def _moments(self, shards: Shards, network: Network, scale: Scaling, missing: Missing) -> Moments:
        return pooled_moments(shards, network, scale=scale, missing=missing, resolution=network.resolution)

    def _covariance(self, shards: Shards, moments: Moments, choice: Choice, place: Place) -> Covariance:
        if choice.each:
            return covariance_of_each(shards, moments, choice.each, place)
        return build_covariance(shards, moments, kind=choice.kind, xp=place.xp, device=place.device)

    def _place(self, device: str | None, network: Network | None = None) -> Place:
        return place_of(device, self.shards.device, self.transport, network)
