"""All nodes of a network in one array: the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import array_api_compat
from scipy import sparse

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging import Averaging, LinearRound
from eigenmesh.graphs import Weights
from eigenmesh.networks.base import Network


class Stacked(Network):
    """Hold all M nodes in arrays of shape (M, ...); a round is one product with an (M, M) matrix.

    Works on any Array API library; sparse weights stay sparse in NumPy and PyTorch.
    """

    def __init__(self, weights: Weights, averaging: Averaging | None = None) -> None:
        super().__init__(weights, averaging)
        self._operators: dict[int, _Operator] = {}

    @property
    def ids(self) -> Sequence[int]:
        """All nodes: 0 .. M - 1."""
        return range(self.n_nodes)

    def _combine(self, exchange: LinearRound, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        # One message is of one library, dtype and device.
        apply = self._operator(exchange, arrays[0])
        return tuple([apply(array) for array in arrays])

    def _total(self, array: Array) -> Array:
        xp = ea.namespace(array)
        return xp.broadcast_to(xp.sum(array, axis=0, keepdims=True), array.shape)

    def _maximum(self, values: Array) -> Array:
        xp = ea.namespace(values)
        return xp.broadcast_to(xp.max(values, axis=0, keepdims=True), values.shape)

    def _common_mean_and_maximum(self, array: Array, values: Array) -> tuple[Array, Array]:
        return self.common_mean(array), self._maximum(values)

    def _operator(self, exchange: LinearRound, array: Array) -> Callable[[Array], Array]:
        """Product with the round's matrix in the library of the array; made once and kept."""
        known = self._operators.get(id(exchange))
        if known is None or not known.fits(array):
            # The round is kept beside its operator so that its id is not given to another one.
            apply = _operator(exchange.matrix, array)
            known = _Operator(exchange, type(array), array.dtype, array.device, apply)
            self._operators[id(exchange)] = known
        return known.apply


class _Operator(NamedTuple):
    """A linear round's product in one library, dtype and device."""

    exchange: LinearRound
    kind: type[Any]
    dtype: Any
    device: Any
    apply: Callable[[Array], Array]

    def fits(self, array: Array) -> bool:
        return self.kind is type(array) and self.dtype == array.dtype and bool(self.device == array.device)


def _operator(matrix: Any, array: Array) -> Callable[[Array], Array]:
    """Turn the (M, M) matrix into a function (M, ...) -> (M, ...) in the library of ``array``."""
    if sparse.issparse(matrix) and array_api_compat.is_numpy_array(array):
        placed = matrix.astype(array.dtype)
    elif sparse.issparse(matrix) and array_api_compat.is_torch_array(array):
        placed = _torch_sparse(matrix, array)
    else:
        placed = ea.like(matrix.toarray() if sparse.issparse(matrix) else matrix, array)
    reshape = type(array).reshape if hasattr(array, "reshape") else ea.namespace(array).reshape

    def apply(values: Array) -> Array:
        shape = values.shape
        return reshape(placed @ reshape(values, (shape[0], -1)), shape)

    return apply


def _torch_sparse(matrix: Any, array: Array) -> Any:
    import torch

    coo = matrix.tocoo()
    return torch.sparse_coo_tensor(
        torch.as_tensor([coo.row.tolist(), coo.col.tolist()]),
        torch.as_tensor(coo.data, dtype=array.dtype),
        size=coo.shape,
        device=array.device,
        check_invariants=False,
    ).coalesce()
