"""Build the covariance of the nodes in this process, of the requested or the best kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigenmesh.arrays import Namespace
from eigenmesh.data._choice import MEMORY_BYTES, CovarianceKind, choose
from eigenmesh.data._covariance import Chunked, Covariance, Formed, MatrixFree
from eigenmesh.data._in_place import InPlace
from eigenmesh.data._moments import Moments
from eigenmesh.data._place import HOST, Place
from eigenmesh.data._shards import Shards
from eigenmesh.data._sparse_covariance import Sparse, require_numpy


def build_covariance(
    shards: Shards,
    moments: Moments,
    *,
    kind: CovarianceKind | None = None,
    n_components: int = 10,
    products: int = 50,
    memory_bytes: int = MEMORY_BYTES,
    in_place: bool = False,
    products_in_place: np.ndarray | None = None,
    xp: Namespace | None = None,
    device: Any = None,
) -> Covariance:
    """Covariance of the nodes in this process, of the given kind or of the one that ``choose`` picks.

    n_components, products and memory_bytes are for ``choose``. With in_place, dense rows of a single node are centred
    after the product if little cancels, so that nothing is copied; ``rounding_size`` is the size of what cancels. If
    known, ``products_in_place`` is the upper triangle of Y^T Y (d, d). xp and device are the library and device of the
    arrays, NumPy by default; a sparse covariance works only with NumPy.
    """
    place = Place.of(xp, device)
    kind = kind or choose(shards, n_components, products, memory_bytes).kind
    rows = InPlace.of(shards, moments, products_in_place) if in_place and place == HOST else None
    if kind is CovarianceKind.FORMED and rows is not None:
        return Formed(rows.formed()[np.newaxis], rows.rounding_size)
    if kind is CovarianceKind.FORMED:
        return Formed.of(shards, moments, place)
    if kind is CovarianceKind.MATRIX_FREE and rows is not None:
        return rows
    if kind is CovarianceKind.MATRIX_FREE:
        return MatrixFree.of(shards, moments, place)
    if kind is CovarianceKind.CHUNKED:
        return Chunked(shards.blocks, moments.centring(shards.n_nodes), place)
    require_numpy(place.xp.empty(0), kind)
    return Sparse.of(shards, moments)
