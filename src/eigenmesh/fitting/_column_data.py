"""Columns split over the nodes: ``Data`` for ``prepare``, with the Gram matrix in place of the covariance."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from eigenmesh.data import Choice, Covariance, CovarianceKind, Missing, Moments, Scaling, Shards
from eigenmesh.data._choice import Sizes, choose_by_size
from eigenmesh.data._feature_shards import FeatureShards
from eigenmesh.data._gram import ColumnMoments, Gram
from eigenmesh.data._moments import MOST_ROUNDED, NO_VARIANCE, require_range
from eigenmesh.data._pooled_moments import own_moments
from eigenmesh.errors import DataError, InputError, warn_user
from eigenmesh.fitting._data import NodeData
from eigenmesh.fitting._facts import DataFacts, Size
from eigenmesh.fitting._sample_ids import agree_on_samples
from eigenmesh.graphs import NetworkSequence, Weights
from eigenmesh.networks import Network
from eigenmesh.settings import Request
from eigenmesh.solvers import Solver
from eigenmesh.transports import Transport

# What is split over the nodes, and the class that holds it.
PARTITIONS: dict[str, type[Shards]] = {"samples": Shards, "features": FeatureShards}


@dataclass(frozen=True, eq=False)
class ColumnData(NodeData):
    """Columns in this process: of all nodes in a simulation, of one node with a transport.

    Vectors that nodes send have N - 1 numbers: scores, never loadings.
    """

    @cached_property
    def columns(self) -> FeatureShards:
        return cast(FeatureShards, self.shards)

    @property
    def facts(self) -> DataFacts:
        n_samples = self.columns.n_samples
        return super().facts._replace(size=Size(n_samples, None), length=n_samples - 1)

    def check(self, request: Request) -> None:
        super().check(request)
        if request.covariance is CovarianceKind.SPARSE:
            raise InputError('covariance = "sparse" is for split samples; with split columns leave it out.')

    def count(self, masked: bool) -> tuple[Size, Network]:
        """d over all nodes, by one average of one number."""
        network = self.counting_network(masked)
        d = self.total(network, [block.n_features for block in self.columns.blocks])
        return Size(self.columns.n_samples, d), network

    def choose_covariance(
        self, request: Request, solver: Solver, n_components: int, network: Network | None = None
    ) -> Choice:
        """For each node what it would choose alone; N and d_j trade roles in the sizes."""
        columns, products = solver.columns(n_components, self.facts.length), solver.traits.expected_products
        if not request.masked:
            self._warn_of_few(columns * products)
        choices = [self._choice(node, request.covariance, columns, products) for node in self.columns.ids]
        kinds = tuple(choice.kind for choice in choices)
        return replace(choices[0], bytes=sum(choice.bytes for choice in choices), each=kinds)

    def _choice(self, node: int, kind: CovarianceKind | None, columns: int, products: int) -> Choice:
        own = self.columns.take([node])
        sizes = Sizes.of(*own.blocks)
        sizes = replace(sizes, n_samples=own.n_features, n_features=own.n_samples - 1, sparse_bytes=None)
        if kind is not None:
            return sizes.asked(kind)
        chosen = choose_by_size(sizes, columns, products)
        lazy = not own.blocks[0].in_memory and sizes.memory_needed(CovarianceKind.MATRIX_FREE) > sizes.copy_bytes
        if lazy and chosen.kind is CovarianceKind.FORMED:
            # The matrix is formed from columns, but a file is read by rows.
            chosen = replace(chosen, kind=CovarianceKind.CHUNKED, reason="the file is read in chunks")
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
        self, network: Network, choice: Choice, *, scale: Scaling, missing: Missing, device: str | None
    ) -> tuple[Moments, Covariance]:
        """Moments of each node's own columns, without messages; then the nodes agree on N, ids, d and the trace."""
        shards, place = self.columns, self._place(device, network)
        each = tuple(own_moments(shards.take([node]), scale=scale, missing=missing) for node in shards.ids)
        shares = np.array([[float(len(one.mean)), one.total_variance] for one in each])
        d, total = shards.n_nodes * agree_on_samples(network, shards, shares)
        _require_variance(total, network.resolution, scale)
        own = shards.n_samples, each[0].mean, each[0].variance
        agreed = ColumnMoments(*own, total=float(total), n_columns=int(np.rint(d)))
        moments = ColumnMoments.together(each, shards.order, agreed)
        return moments, Gram.of(shards.moved(place), each, choice.each, place)


def node_data(
    shards: Shards, weights: Weights | NetworkSequence, transport: Transport | None = None, split: str | None = None
) -> NodeData:
    """``Data`` for shards of samples or of columns, with their network."""
    kind = ColumnData if isinstance(shards, FeatureShards) else NodeData
    return kind(shards, weights, transport, split=split)


def _require_variance(total: float, resolution: float, scale: Scaling) -> None:
    if total * MOST_ROUNDED < resolution:
        least = resolution / MOST_ROUNDED
        raise DataError(f"integers do not resolve a total variance below {least:.2g}; multiply the data by a constant.")
    if total <= 0:
        raise DataError(NO_VARIANCE)
    if not scale:
        require_range(float(total))
