"""The first axis of an array, over the nodes that this process holds: one copy may stand for all of them."""

import array_api_compat
import numpy as np

from eigenmesh.arrays._library import Array, namespace


def everywhere(array: Array, n_nodes: int) -> Array:
    """The same values at so many nodes, without copying them: (1, ...) -> (n_nodes, ...)."""
    return namespace(array).broadcast_to(array, (n_nodes, *array.shape[1:]))


def is_everywhere(array: Array) -> bool:
    """Whether the array is one of ``everywhere``: several nodes that share one copy."""
    if array.shape[0] < 2:
        return False
    if isinstance(array, np.ndarray):
        return array.strides[0] == 0
    return array_api_compat.is_torch_array(array) and array.stride(0) == 0


def held(array: Array) -> Array:
    """One copy if several nodes share it, else all of them: (nodes, ...) -> (1 or nodes, ...)."""
    return array[:1, ...] if is_everywhere(array) else array
