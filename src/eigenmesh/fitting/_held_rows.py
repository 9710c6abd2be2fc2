"""The rows of the nodes in this process, from which moments and covariances are computed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eigenmesh.data import (
    Covariance,
    CovarianceKind,
    Missing,
    Moments,
    Scaling,
    Shards,
    build_covariance,
    pooled_moments,
)
from eigenmesh.data._choice import Choice, Sizes
from eigenmesh.data._covariance import Formed, OneByOne
from eigenmesh.data._in_place import InPlace, rows_in_place, upper_products
from eigenmesh.data._moments import scaled_mean
from eigenmesh.data._place import HOST, Place
from eigenmesh.data._pooled import PooledCovariance, pooled_shards
from eigenmesh.errors import DataError
from eigenmesh.fitting._networks import AsOneNode
from eigenmesh.networks import Network

# Up to this size, the host multiplies a matrix in less time than a GPU needs to start.
HOST_BYTES = 32 * 2**20


@dataclass(frozen=True, eq=False)
class HeldRows:
    """Rows on the device where they are multiplied, and the products of one pass over them.

    shards : the rows of each node; not yet moved to the device if all rows are pooled.
    pooled : all rows as those of a single node; None if nodes are multiplied one by one.
    products : upper triangle of Y^T Y, (d, d), if a covariance is formed from rows Y that are used in place; else None.
    """

    shards: Shards
    pooled: Shards | None
    place: Place
    products: np.ndarray | None

    @classmethod
    def of(cls, shards: Shards, place: Place, choice: Choice, forms: bool) -> HeldRows:
        """``forms``: a covariance will be formed; its products are computed now if the rows can be used in place."""
        pooled = pooled_shards(shards) if choice.pooled else None
        pooled = None if pooled is None else pooled.moved(place)
        rows = rows_in_place(pooled or shards) if forms else None
        products = None if rows is None else upper_products(rows)
        return cls(shards if pooled else shards.moved(place), pooled, place, products)

    def moments(self, network: Network, scale: Scaling, missing: Missing) -> Moments:
        """Pooled moments of all nodes, by one average, or two if means are large."""
        settings: dict[str, Any] = {"scale": scale, "missing": missing, "resolution": network.resolution}
        # The products of a formed covariance contain the sums of squares, which saves a pass.
        squares = None if self.products is None else self.products.diagonal()
        if self.pooled is None:
            return pooled_moments(self.shards, network, squares=squares, **settings)
        # If samples are invalid, the second call below raises again, with the name of the node.
        with contextlib.suppress(DataError):
            return pooled_moments(self.pooled, AsOneNode(network), squares=squares, **settings)
        return pooled_moments(self.shards, network, **settings)

    def covariance(self, network: Network, moments: Moments, choice: Choice) -> Covariance:
        """Covariance of the nodes in this process, or of all rows at once if they are pooled; without messages."""
        if network.integers:
            return self._one_by_one(moments, choice)
        shards, kind, place = self.pooled or self.shards, choice.kind, self.place
        chosen = kind is CovarianceKind.MATRIX_FREE and not choice.asked and place == HOST
        if chosen and Sizes.of(shards, in_place=True).in_place and InPlace.of(shards, moments) is None:
            # Means are so large that rows must be centred first, and no memory was planned for a copy of all of them.
            kind = CovarianceKind.CHUNKED
        covariance = build_covariance(
            shards, moments, kind=kind, in_place=True, products_in_place=self.products, xp=place.xp, device=place.device
        )
        if self.pooled is None:
            return covariance
        if place.is_gpu and isinstance(covariance, Formed) and covariance.matrices.nbytes <= HOST_BYTES:
            covariance, place = covariance.at(HOST), HOST
        return PooledCovariance(covariance, partial(_each, self.shards, moments, place), self.shards.n_nodes)

    def _one_by_one(self, moments: Moments, choice: Choice) -> Covariance:
        """Each node's covariance as if it were alone; the size of cancellations comes from pooled numbers."""
        parts = self.alone(moments, choice.each)
        means = scaled_mean(moments)
        cancels = any(part.rounding_size > 0 for part in parts)
        # The average over the nodes of N_i |w mu|^2, with weights w^2 = M / (N - 1).
        return OneByOne(parts, 2 * float(means @ means) if cancels else 0.0)

    def alone(self, moments: Moments, kinds: Sequence[CovarianceKind]) -> tuple[Covariance, ...]:
        """The covariance of each node in this process, of these kinds."""
        build = partial(build_covariance, moments=moments, xp=self.place.xp, device=self.place.device)
        pairs = zip(self.shards.ids, kinds, strict=True)
        return tuple(build(self.shards.take([node]), kind=kind) for node, kind in pairs)


def _each(shards: Shards, moments: Moments, place: Place) -> Covariance:
    """The covariances of the single nodes, for products where each node has its own block."""
    return build_covariance(shards.moved(place), moments, xp=place.xp, device=place.device)
