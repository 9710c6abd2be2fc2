"""The covariance of each node as an operator, C_i X_i, of one of four kinds."""

from typing import Any, Protocol

import numpy as np

from eigenmesh.arrays import Array, Namespace
from eigenmesh.arrays import numpy as numpy_namespace
from eigenmesh.data._choice import MEMORY_BYTES, CovarianceKind, choose
from eigenmesh.data._dense_covariance import Formed, MatrixFree
from eigenmesh.data._lazy_covariance import Chunked, Sparse, require_numpy
from eigenmesh.data._moments import Moments
from eigenmesh.data._shards import Shards


class Covariance(Protocol):
    """C_i = (M/(N-1)) (Y_i - mu)^T (Y_i - mu) of the nodes held here, eq (1), with scaled columns on request."""

    @property
    def kind(self) -> CovarianceKind:
        """How products are computed."""

    @property
    def n_features(self) -> int:
        """Number of columns of the data, d."""

    def place(self, values: np.ndarray) -> Array:
        """Values in the library, dtype and device that ``apply`` takes."""

    def apply(self, X: Array) -> Array:
        """C_i X_i at every node held here, in X's library and dtype: (nodes, d, k) -> (nodes, d, k)."""


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
    """Covariance of the nodes held here, of the given kind or of the one that ``choose`` picks.

    n_components, products and memory_bytes are for ``choose``. xp and device say which library and device hold the
    arrays, NumPy by default; chunked and sparse covariances work with NumPy only.
    """
    place = numpy_namespace if xp is None else xp
    kind = kind or choose(shards, n_components, products, memory_bytes).kind
    if kind is CovarianceKind.FORMED:
        return Formed.of(shards, moments, place, device)
    if kind is CovarianceKind.MATRIX_FREE:
        return MatrixFree.of(shards, moments, place, device)
    require_numpy(place.empty(0), kind)
    return Sparse.of(shards, moments) if kind is CovarianceKind.SPARSE else Chunked.of(shards, moments)
