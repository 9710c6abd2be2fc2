"""Build the covariance of the nodes in this process, of the requested or the best kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from eigenmesh.arrays import Namespace
from eigenmesh.data._choice import MEMORY_BYTES, CovarianceKind, choose
from eigenmesh.data._covariance import Chunked, Covariance, Formed, MatrixFree, OneByOne
from eigenmesh.data._moments import Moments, scaled_mean
from eigenmesh.data._place import Place
from eigenmesh.data._shards import Shards
from eigenmesh.data._sparse_covariance import Sparse, require_numpy

# Up to this many columns, matrices of many nodes are multiplied in one call; larger ones one after the other.
SMALL_MATRIX = 128


def build_covariance(
    shards: Shards,
    moments: Moments,
    *,
    kind: CovarianceKind | None = None,
    n_components: int = 10,
    products: int = 50,
    memory_bytes: int = MEMORY_BYTES,
    xp: Namespace | None = None,
    device: Any = None,
) -> Covariance:
    """Covariance of the nodes in this process, of the given kind or of the one that ``choose`` picks.

    n_components, products and memory_bytes are for ``choose``. xp and device are the library and device of the arrays,
    NumPy by default; a sparse covariance works only with NumPy.
    """
    place = Place.of(xp, device)
    kind = kind or choose(shards, n_components, products, memory_bytes).kind
    if kind is CovarianceKind.FORMED:
        return Formed.of(shards, moments, place)
    if kind is CovarianceKind.MATRIX_FREE:
        return MatrixFree.of(shards, moments, place)
    if kind is CovarianceKind.CHUNKED:
        return Chunked(shards.blocks, moments.centring(shards.n_nodes), place)
    require_numpy(place.xp.empty(0), kind)
    return Sparse.of(shards, moments)


def covariance_of_each(shards: Shards, moments: Moments, kinds: Sequence[CovarianceKind], place: Place) -> Covariance:
    """The covariances of the nodes in this process, of these kinds, each with the bits that it would have alone."""
    if set(kinds) == {CovarianceKind.FORMED} and shards.n_features <= SMALL_MATRIX:
        covariance = build_covariance(shards, moments, kind=kinds[0], xp=place.xp, device=place.device)
        cancels = covariance.rounding_size > 0
        return replace(cast(Formed, covariance), rounding_size=_rounding_size(moments) if cancels else 0.0)
    build = partial(build_covariance, moments=moments, xp=place.xp, device=place.device)
    parts = tuple(build(shards.take([node]), kind=kind) for node, kind in zip(shards.ids, kinds, strict=True))
    cancels = any(part.rounding_size > 0 for part in parts)
    return OneByOne(parts, _rounding_size(moments) if cancels else 0.0)


def _rounding_size(moments: Moments) -> float:
    """Size of what cancels in an average of products with rows that are centred afterwards, from pooled numbers.

    It is the average over the nodes of N_i |w mu|^2, with weights w^2 = M / (N - 1).
    """
    means, n_samples = scaled_mean(moments), moments.n_samples
    return float(means @ means) * n_samples / (n_samples - 1)
