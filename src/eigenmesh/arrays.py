"""The seam to the Array API standard: the one place that asks which library an array belongs to.

Solvers, networks and covariances hold arrays whose first axis is *the nodes this process holds*: all M in a
simulation, one at a peer. NumPy, PyTorch (CPU and CUDA) and array-api-strict run the same lines.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import array_api_compat
import numpy as np

Array: TypeAlias = Any
Namespace: TypeAlias = Any

# The compatibility wrapper of NumPy itself, for code that starts from files and estimators.
numpy: Namespace = array_api_compat.array_namespace(np.empty(0))


def namespace(array: Array) -> Namespace:
    """Array API namespace of the array."""
    # Asked for in every iteration; the short cut for NumPy is worth a microsecond each time.
    return numpy if isinstance(array, np.ndarray) else array_api_compat.array_namespace(array)


def like(values: np.ndarray, model: Array) -> Array:
    """Copy NumPy values into the library, dtype and device of ``model``."""
    # PyTorch takes no negative strides, and NumPy leaves those of a single entry as they are unless it copies.
    return namespace(model).asarray(np.array(values, order="C"), dtype=model.dtype, device=model.device)


def to_numpy(array: Array) -> np.ndarray:
    """Bring an array of any library to NumPy (no copy where it is NumPy already)."""
    if isinstance(array, np.ndarray):
        return array
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu())
    return np.from_dlpack(array)


def item_bytes(array: Array) -> int:
    """Bytes of one number of the array."""
    size = getattr(array.dtype, "itemsize", None)
    # array-api-strict has no item size; its type's name ends in the bits.
    return int(size if size is not None else array.__array_namespace__().finfo(array.dtype).bits // 8)


def squared_norms(X: Array) -> Array:
    """Squared Euclidean norms of the columns: (nodes, d, k) -> (nodes, k)."""
    return namespace(X).vecdot(X, X, axis=-2)


def everywhere(array: Array, n_nodes: int) -> Array:
    """The same values at so many nodes, without copying them: (1, ...) -> (n_nodes, ...)."""
    return namespace(array).broadcast_to(array, (n_nodes, *array.shape[1:]))


def column_norms(X: Array) -> Array:
    """Euclidean norms of the columns: (nodes, d, k) -> (nodes, 1, k)."""
    return namespace(X).sqrt(squared_norms(X))[:, None, :]


def normalised(X: Array) -> Array:
    """Columns divided by their norms: (nodes, d, k) -> (nodes, d, k)."""
    return X / column_norms(X)


def orthonormal(X: Array) -> Array:
    """Gram-Schmidt from the first column on, signs kept: (nodes, d, k) -> (nodes, d, k) with orthonormal columns."""
    xp = namespace(X)
    Q, R = xp.linalg.qr(X)
    signs = xp.sign(xp.linalg.diagonal(R))
    return Q * xp.where(signs == 0, xp.ones_like(signs), signs)[:, None, :]
