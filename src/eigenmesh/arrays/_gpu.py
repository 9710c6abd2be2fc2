"""Operations that a GPU does in other ways than a CPU, because launching a small kernel costs more than running it."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from eigenmesh.arrays._columns import squared_norms
from eigenmesh.arrays._library import Array, Namespace, namespace, on_gpu

# A long sum is divided into at most MOST_PIECES pieces of at least SHORTEST_PIECE terms.
MOST_PIECES, SHORTEST_PIECE = 16, 128


def small_work_on_host(array: Array) -> AbstractContextManager[Any]:
    """One BLAS thread for NumPy while a GPU does the large products: for small ones, waking threads takes longer."""
    return _blas_threads().limit(limits=1, user_api="blas") if on_gpu(array) else nullcontext()


@cache
def _blas_threads() -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped, unused-ignore]

    # Cached, because finding the libraries takes a few milliseconds.
    return ThreadpoolController()


def inner_products(X: Array, Z: Array) -> tuple[Array, Array]:
    """``X^T Z`` and the squared norms of the columns of X: (nodes, d, k) twice -> (nodes, k, k) and (nodes, k)."""
    return _one_product(X, Z) if on_gpu(X) else (X.mT @ Z, squared_norms(X))


def add_scaled(X: Array, factor: float, S: Array) -> Array:
    """Overwrite X by ``X + factor S``, and return it: (nodes, d, k) twice -> (nodes, d, k)."""
    if on_gpu(X):
        # One kernel instead of two.
        return X.add_(S, alpha=factor)
    X += factor * S
    return X


def subtract_product(Z: Array, X: Array, small: Array) -> Array:
    """``Z - X small``; on a GPU it overwrites Z: (nodes, d, k) twice, (nodes, k, k) -> (nodes, d, k)."""
    return Z.baddbmm_(X, small, alpha=-1) if on_gpu(Z) else Z - X @ small


def symmetric_product(matrices: Array, X: Array) -> Array:
    """Symmetric matrices (nodes, d, d) times X: (nodes, d, k) -> (nodes, d, k).

    A GPU reads a few rows faster than a few columns, so there it is ``(X^T C)^T``.
    """
    return (X.mT.contiguous() @ matrices.mT).mT if on_gpu(X) else matrices @ X


def stacked(tensors: list[Array]) -> Array:
    """Stack tensors of one shape along a new first axis, without a copy if they are adjacent in memory: (n, ..)."""
    first = tensors[0]
    memory, begin, size = first.untyped_storage().data_ptr(), first.storage_offset(), first.numel()
    for index, tensor in enumerate(tensors):
        is_next = tensor.untyped_storage().data_ptr() == memory and tensor.storage_offset() == begin + index * size
        if not (is_next and tensor.is_contiguous()):
            return namespace(first).stack(tensors)
    return first.as_strided((len(tensors), *first.shape), (size, *first.stride()))


def _one_product(X: Array, Z: Array) -> tuple[Array, Array]:
    """``inner_products`` from one product ``X^T [Z X]`` whose sum over d is divided into pieces.

    A GPU computes a k x k result on a single processor, however long the sum; pieces run on several. They are summed by
    a product with ones, which takes half the time of a short reduction.
    """
    xp = namespace(X)
    nodes, d, k = X.shape
    pieces = _piece_count(d)
    cut = [xp.permute_dims(xp.reshape(A.mT, (nodes, k, pieces, d // pieces)), (2, 0, 1, 3)) for A in (Z, X)]
    rows = xp.reshape(xp.concat(cut, axis=2), (pieces * nodes, 2 * k, d // pieces))
    products = xp.reshape(rows[:, k:, :] @ rows.mT, (pieces, nodes * k * 2 * k))
    products = xp.reshape(products.mT @ _ones(pieces, xp, X.dtype, X.device), (nodes, k, 2 * k))
    return products[:, :, :k], xp.linalg.diagonal(products[:, :, k:])


@cache
def _ones(count: int, xp: Namespace, dtype: Any, device: Any) -> Array:
    # Cached, because making them takes a kernel too. A CUDA graph is warmed up first, so it does not capture them.
    return xp.ones(count, dtype=dtype, device=device)


@cache
def _piece_count(length: int) -> int:
    """Number of equal pieces for a sum of this length."""
    most = max(1, min(MOST_PIECES, length // SHORTEST_PIECE))
    return next(count for count in range(most, 0, -1) if length % count == 0)
