"""The rows of the nodes held here, as moments and covariances are made of them."""

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
from eigenmesh.fitting._matching import facts_to_match, require_match
from eigenmesh.fitting._networks import AsOneNode
from eigenmesh.networks import Network

# A matrix up to this size is multiplied on the host before a GPU has been told what to do.
HOST_BYTES = 32 * 2**20


@dataclass(frozen=True, eq=False)
class HeldRows:
    """Rows at the place where they are multiplied, and what one pass over them has found.

    shards: the rows of each node; they have not been moved to the place yet if those of all nodes are pooled.
    pooled: all rows as those of one node; None where nodes are multiplied one by one.
    products: upper triangle of Y^T Y, (d, d), of rows Y that are used as they are and form a covariance; else None.
    """

    shards: Shards
    pooled: Shards | None
    place: Place
    products: np.ndarray | None

    @classmethod
    def of(cls, shards: Shards, place: Place, choice: Choice, forms: bool) -> HeldRows:
        """``forms`` says that a covariance will be formed: its products are taken now, if rows are used as they are."""
        pooled = pooled_shards(shards) if choice.pooled else None
        pooled = None if pooled is None else pooled.moved(place)
        rows = rows_in_place(pooled or shards) if forms else None
        products = None if rows is None else upper_products(rows)
        return cls(shards if pooled else shards.moved(place), pooled, place, products)

    def moments(self, network: Network, scale: Scaling, missing: Missing) -> Moments:
        """Those of the rows of all nodes, by one average, or two if means are large."""
        check = partial(require_match, shards=self.shards)
        settings: dict[str, Any] = {"scale": scale, "missing": missing, "check": check}
        settings |= {"facts": facts_to_match(self.shards), "resolution": network.resolution}
        # A covariance that will be formed tells the sums of squares too, without a pass of their own.
        squares = None if self.products is None else self.products.diagonal()
        if self.pooled is None:
            return pooled_moments(self.shards, network, squares=squares, **settings)
        # What is wrong with the samples is found once more below, with the name of its node.
        with contextlib.suppress(DataError):
            return pooled_moments(self.pooled, AsOneNode(network), squares=squares, **settings)
        return pooled_moments(self.shards, network, **settings)

    def covariance(self, network: Network, moments: Moments, choice: Choice) -> Covariance:
        """That of the nodes held here, of all rows at once if they are pooled; without any message."""
        if network.integers:
            return self._one_by_one(moments, choice)
        held, kind, place = self.pooled or self.shards, choice.kind, self.place
        chosen = kind is CovarianceKind.MATRIX_FREE and not choice.asked and place == HOST
        if chosen and Sizes.of(held, in_place=True).in_place and InPlace.of(held, moments) is None:
            # Means are so large that rows have to be centred first, and a copy of all of them was not reckoned with.
            kind = CovarianceKind.CHUNKED
        where = {"xp": place.xp, "device": place.device}
        covariance = build_covariance(held, moments, kind=kind, in_place=True, products_in_place=self.products, **where)
        if self.pooled is None:
            return covariance
        if place.is_gpu and isinstance(covariance, Formed) and covariance.matrices.nbytes <= HOST_BYTES:
            covariance, place = covariance.at(HOST), HOST
        return PooledCovariance(covariance, partial(_each, self.shards, moments, place), self.shards.n_nodes)

    def _one_by_one(self, moments: Moments, choice: Choice) -> Covariance:
        """Each node's covariance as where it is alone. What cancels in a product is stated by pooled numbers."""
        parts = self.alone(moments, choice.each)
        means = scaled_mean(moments)
        cancels = any(part.rounding_size > 0 for part in parts)
        # The average over the nodes of N_i |w mu|^2, with weights w^2 = M / (N - 1).
        return OneByOne(parts, 2 * float(means @ means) if cancels else 0.0)

    def alone(self, moments: Moments, kinds: Sequence[CovarianceKind]) -> tuple[Covariance, ...]:
        """The covariance of each node held here, of these kinds."""
        build = partial(build_covariance, moments=moments, xp=self.place.xp, device=self.place.device)
        held = zip(self.shards.ids, kinds, strict=True)
        return tuple(build(self.shards.take([node]), kind=kind) for node, kind in held)


def _each(shards: Shards, moments: Moments, place: Place) -> Covariance:
    """Those of the nodes one by one, for blocks of their own."""
    return build_covariance(shards.moved(place), moments, xp=place.xp, device=place.device)
