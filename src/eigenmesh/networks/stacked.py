"""All nodes of a network in one array: the simulator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import array_api_compat
import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, Parts, is_sparse, on_gpu
from eigenmesh.averaging import Averaging, LinearRound, TreeAverage, pack, packed_bytes, unpack
from eigenmesh.graphs import Weights
from eigenmesh.networks.codec import Bound
from eigenmesh.networks.network import Network

Product: TypeAlias = Callable[[tuple[Array, ...]], tuple[Array, ...]]

T = TypeVar("T")

# Up to this many nodes, a dense product is faster than a sparse one on a GPU.
DENSE_ON_GPU = 512


class Stacked(Network):
    """Hold all M nodes in arrays of shape (M, ...), so that a round is one product with an (M, M) matrix.

    Works on any Array API library. Sparse weights stay sparse in NumPy and PyTorch.

    Parameters
    ----------
    weights : Weights
        The links, and the weights with which nodes mix.
    averaging : Averaging, optional
        How nodes average; by default over a tree.
    """

    def __init__(self, weights: Weights, averaging: Averaging | None = None) -> None:
        super().__init__(weights, averaging)
        self._operators: dict[tuple[Any, ...], Product] = {}

    @property
    def ids(self) -> Sequence[int]:
        return range(self.n_nodes)

    def mean(self, array: Array | Parts, bound: Bound = None) -> Array:
        """Parts are added up the tree as soon as they are made: no more of them are held than the tree is high."""
        tree = self.average
        if not isinstance(array, Parts) or not isinstance(tree, TreeAverage):
            return super().mean(array, bound)
        for level in tree.up:
            self._begin_round(level, (array,))
        total = _up(tree, array.make, _add)
        # As in a linear round, which makes zeros positive.
        total += 0.0
        total /= self.n_nodes
        return tree.broadcast(self, ea.everywhere(total, self.n_nodes))

    def _packed_sum(self, tree: TreeAverage, array: Array | Parts, bits: int) -> tuple[np.ndarray, np.ndarray]:
        _, d, b = array.shape
        message = np.broadcast_to(np.uint8(0), (self.n_nodes, 1, packed_bytes(d, b, bits)))
        for level in tree.up:
            self._begin_round(level, (message,))

        def made(node: int) -> tuple[np.ndarray, np.ndarray]:
            part = array.make(node) if isinstance(array, Parts) else array[node : node + 1, ...]
            return np.array(ea.to_numpy(part)), np.zeros((1, b))

        def add(above: tuple[np.ndarray, np.ndarray], part: tuple[np.ndarray, np.ndarray]) -> None:
            for total, received in zip(above, unpack(pack(part[0] + 0.0, part[1], bits), d, b, bits), strict=True):
                _add(total, received)

        total, errors = _up(tree, made, add)
        return total + 0.0, errors

    def send_down(self, levels: tuple[LinearRound, ...], root: int, array: Array) -> Array:
        """One copy that all nodes share: they would receive the same bits."""
        for level in levels:
            self._begin_round(level, (array,))
        return ea.everywhere(array[root : root + 1, ...], self.n_nodes)

    def _combine(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        # All arrays of a message have one library, dtype and device.
        key = (exchange, type(arrays[0]), arrays[0].dtype, arrays[0].device)
        multiply = self._operators.get(key)
        if multiply is None:
            multiply = self._operators[key] = _operator(exchange, arrays[0])
        return multiply(arrays)

    def _reduced_mean(self, array: Array) -> Array:
        xp = ea.namespace(array)
        return xp.broadcast_to(xp.mean(array, axis=0, keepdims=True), array.shape)

    def _reduced_sum(self, array: Array) -> Array:
        return ea.namespace(array).sum(array, axis=0, keepdims=True)

    def _reduced_maximum(self, values: Array) -> Array:
        xp = ea.namespace(values)
        return xp.broadcast_to(xp.max(values, axis=0, keepdims=True), values.shape)

    def _tree_maxima(self, tree: TreeAverage, values: Array) -> Array:
        # The values may be one copy that all nodes share.
        for level in tree.exchanges:
            self._begin_round(level, (values,))
        return self._reduced_maximum(values)

    def _neighbour_maxima(self, values: Array, rounds: int) -> Array:
        # What the nodes have after their rounds is the maximum, which can be seen at once here.
        return self._reduced_maximum(values)


def _add(above: Array, part: Array) -> None:
    # As in a linear round, which makes zeros positive.
    part += 0.0
    above += part


def _up(tree: TreeAverage, make: Callable[[int], T], add: Callable[[T, T], None]) -> T:
    """The root's value, to which each node has added those of its children, ascending, after they have added theirs.

    Values are made when they are needed: no more of them are held than the tree is high.
    """
    children: dict[int, list[int]] = {node: [] for node in range(tree.n_nodes)}
    for level in tree.up:
        for parent, child in zip(*level.sends, strict=True):
            children[int(parent)].append(int(child))
    # The nodes from the root to the present one: their values so far, and their children that are left.
    path = [(make(tree.root), iter(sorted(children[tree.root])))]
    while True:
        value, rest = path[-1]
        child = next(rest, None)
        if child is not None:
            path.append((make(child), iter(sorted(children[child]))))
            continue
        path.pop()
        if not path:
            return value
        add(path[-1][0], value)
        del value


def _operator(exchange: LinearRound, array: Array) -> Product:
    """A function that multiplies several arrays (M, ...) by the (M, M) matrix, in the library of ``array``."""
    matrix = exchange.matrix
    if is_sparse(matrix) and on_gpu(array) and matrix.shape[0] <= DENSE_ON_GPU:
        matrix = matrix.toarray()
    if array_api_compat.is_numpy_array(array):
        placed = exchange.sums.astype(array.dtype, copy=False)
    elif is_sparse(matrix) and array_api_compat.is_torch_array(array):
        placed = _torch_sparse(matrix, array)
    else:
        placed = ea.like(matrix.toarray() if is_sparse(matrix) else matrix, array)
    reshape = type(array).reshape if hasattr(array, "reshape") else ea.namespace(array).reshape

    def apply(values: Array) -> Array:
        shape = values.shape
        return reshape(placed @ reshape(values, (shape[0], -1)), shape)

    return lambda arrays: tuple([apply(array) for array in arrays])


def _torch_sparse(matrix: Any, array: Array) -> Any:
    import torch

    coo = matrix.tocoo()
    places, values = torch.as_tensor([coo.row.tolist(), coo.col.tolist()]), torch.as_tensor(coo.data, dtype=array.dtype)
    with warnings.catch_warnings():
        # PyTorch 2.11 warns about invariants even with check_invariants=False.
        warnings.filterwarnings("ignore", "Sparse invariant checks", UserWarning)
        tensor = torch.sparse_coo_tensor(places, values, coo.shape, device=array.device, check_invariants=False)
        return tensor.coalesce()
