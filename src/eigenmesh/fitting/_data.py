"""The samples of a fit and the network that they are spread over."""

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from eigenmesh.arrays import Namespace, namespace_for
from eigenmesh.averaging import Averaging, Factored, Tree
from eigenmesh.data import Covariance, CovarianceKind, Missing, Moments, Shards, build_covariance, pooled_moments
from eigenmesh.data._choice import Choice, Sizes, choose_by_size
from eigenmesh.errors import DataError, InputError
from eigenmesh.fitting._request import Request
from eigenmesh.graphs import Weights
from eigenmesh.networks import Network, Peers, Stacked
from eigenmesh.solvers import Solver
from eigenmesh.transports import Transport

# Averages must at least give the number of samples exactly.
LOOSEST_MEAN = 1e-8


class DataFacts(NamedTuple):
    """What is known of samples without reading them.

    ``item_bytes`` is the size of one number that is sent; ``has_all_reduce``: the engine can sum over all nodes.
    """

    n_nodes: int
    n_features: int
    item_bytes: int
    has_all_reduce: bool = False
    feature_names: tuple[str, ...] | None = None
    node_names: tuple[str, ...] | None = None


class Data(Protocol):
    """What ``prepare`` asks of samples, wherever they are."""

    @property
    def facts(self) -> DataFacts: ...

    @property
    def weights(self) -> Weights:
        """The network that the solver sees: one node where an engine sums over all nodes by itself."""
        ...

    def count_samples(self, factored: Factored | None) -> tuple[int | None, Network | None, Factored | None]:
        """N over all nodes, None where only a pass over the data can tell; the network that was asked.

        If factors may be used, also the ones that all nodes have.
        """
        ...

    def check(self, request: Request) -> None:
        """Raise if something is asked for that cannot be done on such data; sends and reads nothing."""
        ...

    def network(self, averaging: Averaging) -> Network: ...

    def choose_covariance(self, kind: CovarianceKind | None, solver: Solver, n_components: int) -> Choice:
        """How to hold the covariances: as asked for, or the cheapest way that fits."""
        ...

    def measure(
        self, network: Network, choice: Choice, *, scale: bool, missing: Missing, device: str | None
    ) -> tuple[Moments, Covariance]:
        """Pooled moments, and the covariance of every node held here."""
        ...


@dataclass(frozen=True, eq=False)
class NodeData:
    """Samples in this process: of all nodes in a simulation, of one node with a transport."""

    shards: Shards
    weights: Weights
    transport: Transport | None = None

    def __post_init__(self) -> None:
        transport, shards = self.transport, self.shards
        if transport is not None and (shards.ids != (transport.rank,) or shards.n_nodes != transport.size):
            here, held = f"node {transport.rank} of {transport.size}", f"nodes {list(shards.ids)} of {shards.n_nodes}"
            raise InputError(f"this process is {here}, but the samples are those of {held}.")

    @property
    def facts(self) -> DataFacts:
        shards, reduces = self.shards, self.transport is not None and self.transport.reduces
        names = shards.feature_names, shards.node_names
        return DataFacts(shards.n_nodes, shards.n_features, shards.dtype.itemsize, reduces, *names)

    def check(self, request: Request) -> None:
        self._place(request.device)

    def count_samples(self, factored: Factored | None) -> tuple[int, Network, Factored | None]:
        """N over all nodes, which compare their data on the way."""
        network = self._network(Tree())
        n_samples, factored = match_nodes(self.shards, network, factored)
        return n_samples, network, factored

    def network(self, averaging: Averaging) -> Network:
        """All nodes stacked, or this node with its neighbours behind a transport."""
        network = self._network(averaging)
        accuracy = network.average.accuracy
        if accuracy > LOOSEST_MEAN:
            raise InputError(f"accuracy {accuracy:.1g} is too loose for exact moments; use {LOOSEST_MEAN:g} or less.")
        return network

    def _network(self, averaging: Averaging) -> Network:
        if self.transport is None:
            return Stacked(self.weights, averaging)
        return Peers(self.weights, self.transport, averaging)

    def choose_covariance(self, kind: CovarianceKind | None, solver: Solver, n_components: int) -> Choice:
        """By the sizes of the samples held here: nodes may choose differently, their products are the same."""
        sizes = Sizes.of(self.shards)
        if kind is not None:
            return Choice(kind, sizes.memory_needed(kind), "as asked for", asked=True)
        columns = solver.columns(n_components, self.shards.n_features)
        return choose_by_size(sizes, columns, solver.traits.expected_products)

    def measure(
        self, network: Network, choice: Choice, *, scale: bool, missing: Missing, device: str | None
    ) -> tuple[Moments, Covariance]:
        """Two averages for the moments; then the covariances, without any message."""
        xp, place = self._place(device)
        moments = self._moments(network, scale, missing)
        return moments, build_covariance(self.shards, moments, kind=choice.kind, xp=xp, device=place)

    def _moments(self, network: Network, scale: bool, missing: Missing) -> Moments:
        return pooled_moments(self.shards, network, scale=scale, missing=missing)

    def _place(self, device: str | None) -> tuple[Namespace, Any]:
        """Where arrays are; the transport says so where it carries arrays of a device."""
        if self.transport is None:
            return namespace_for(device)
        own = getattr(self.transport, "device", None)
        if own is None and device is not None:
            raise InputError(f"{type(self.transport).__name__} carries NumPy arrays; leave out device = {device!r}.")
        if own is not None and device is not None and not str(own).startswith(device):
            raise InputError(f"the transport's arrays are on {own}, not on device = {device!r}; leave it out.")
        return namespace_for(None if own is None else str(own))


def match_nodes(shards: Shards, network: Network, factored: Factored | None = None) -> tuple[int, Factored | None]:
    """N over all nodes, by one average of one number; what must be equal everywhere rides in its messages.

    Every node raises the same error where columns, precision or feature names differ. Each fact goes with its negative,
    so that the maxima over all nodes show whether it is the same at all of them. Where factors differ, all nodes take
    those of one.
    """
    names = None if shards.feature_names is None else "\0".join(shards.feature_names).encode()
    if factored is not None:
        factored = Factored(factored.found(network.weights))
    factors = None if factored is None or factored.factors is None else factored.factors.tobytes()
    here = np.array([shards.n_features, shards.dtype == np.float32, _number(names), _number(factors)], float)
    # Nodes without feature names have no say about them.
    facts = np.where(np.isnan([here, -here]), -np.inf, [here, -here])
    counts = np.array([[float(block.n_rows)] for block in shards.blocks])
    everywhere = np.broadcast_to(facts, (len(shards.blocks), *facts.shape))
    mean, agreed = network.common_mean_and_worst(counts, everywhere)
    (largest, smallest), label = agreed[0] * [[1], [-1]], shards.node_label(0)
    if largest[0] != smallest[0]:
        found = f"from {smallest[0]:.0f} to {largest[0]:.0f}; {label} has {shards.n_features}"
        raise DataError(f"nodes have unequal numbers of columns, {found}.")
    if largest[1] != smallest[1]:
        raise DataError(f"some nodes hold float32, others wider numbers ({label}: {shards.dtype}); convert all to one.")
    if np.isfinite(largest[2]) and largest[2] != smallest[2]:
        raise DataError("feature names or their order differ from node to node; put the columns in the same order.")
    if factored is not None and largest[3] != smallest[3]:
        factored = factored.shared(network, network.weights)
    return int(np.rint(shards.n_nodes * mean[0, 0])), factored


def _number(content: bytes | None) -> float:
    """A number that stands for the content, small enough for float64 to hold it; NaN for none."""
    if content is None:
        return float("nan")
    return float(int.from_bytes(hashlib.sha256(content).digest()[:6], "little"))
