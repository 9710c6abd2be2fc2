"""Small products in the form that suits where the arrays lie: a GPU wants few kernels, and wide ones."""

from __future__ import annotations

from functools import cache

import array_api_compat
import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, squared_norms

# A long sum is cut into so many pieces at most, and into none shorter than this.
MOST_PIECES = 16
SHORTEST_PIECE = 32


def on_gpu(array: Array) -> bool:
    """Whether the array is a CUDA tensor, for which starting a kernel costs more than most of them do."""
    return not isinstance(array, np.ndarray) and array_api_compat.is_torch_array(array) and bool(array.is_cuda)


def inner_products(X: Array, Z: Array) -> tuple[Array, Array]:
    """``X^T Z`` and the squared norms of the columns of X: (nodes, d, k) twice -> (nodes, k, k) and (nodes, k)."""
    return _one_product(X, Z) if on_gpu(X) else (X.mT @ Z, squared_norms(X))


def _one_product(X: Array, Z: Array) -> tuple[Array, Array]:
    """Both from one product ``X^T [Z X]`` whose sum over d is cut into pieces.

    A GPU gives a k x k result to one of its many processors, however long the sum behind it; pieces go to several.
    """
    xp = ea.namespace(X)
    nodes, d, k = X.shape
    pieces = _pieces(d)
    left = xp.reshape(X, (nodes * pieces, d // pieces, k))
    right = xp.reshape(xp.concat([Z, X], axis=2), (nodes * pieces, d // pieces, 2 * k))
    products = xp.sum(xp.reshape(left.mT @ right, (nodes, pieces, k, 2 * k)), axis=1)
    return products[:, :, :k], xp.linalg.diagonal(products[:, :, k:])


@cache
def _pieces(length: int) -> int:
    """Number of equal pieces to cut a sum of this length into."""
    most = max(1, min(MOST_PIECES, length // SHORTEST_PIECE))
    return next(count for count in range(most, 0, -1) if length % count == 0)
