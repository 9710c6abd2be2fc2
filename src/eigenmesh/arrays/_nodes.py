"""The first axis of an array, over the nodes in this process; one copy may stand for all of them."""

from collections.abc import Callable

import array_api_compat
import numpy as np

from eigenmesh.arrays._library import Array, namespace


def everywhere(array: Array, n_nodes: int) -> Array:
    """The same values at ``n_nodes`` nodes, without a copy: (1, ...) -> (n_nodes, ...)."""
    return namespace(array).broadcast_to(array, (n_nodes, *array.shape[1:]))


def is_everywhere(array: Array) -> bool:
    """Whether several nodes share one copy, as made by ``everywhere``."""
    if array.shape[0] < 2:
        return False
    if isinstance(array, np.ndarray):
        return array.strides[0] == 0
    return array_api_compat.is_torch_array(array) and array.stride(0) == 0


def held(array: Array) -> Array:
    """A single copy if all nodes share it, else the whole array: (nodes, ...) -> (1 or nodes, ...)."""
    return array[:1, ...] if is_everywhere(array) else array


class Parts:
    """An array (nodes, ...) whose parts are made one after the other, when they are needed, and need not be kept.

    make : function of a node's position that gives its part, a new array (1, ...); shape, dtype : of the whole array.
    """

    def __init__(self, make: Callable[[int], Array], n_nodes: int, like: Array) -> None:
        self.make, self.shape, self.dtype = make, (n_nodes, *like.shape[1:]), like.dtype


def whole(array: Array | Parts) -> Array:
    """All parts in one array; an array is returned as it is."""
    if not isinstance(array, Parts):
        return array
    parts = [array.make(node) for node in range(array.shape[0])]
    return namespace(parts[0]).concat(parts)
