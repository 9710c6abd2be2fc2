"""The seam to the Array API standard: the one place that asks which library an array belongs to.

Solvers, networks and covariances hold arrays whose first axis is *the nodes this process holds*: all M in a
simulation, one at a peer. NumPy, PyTorch (CPU and CUDA) and array-api-strict run the same lines.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from eigenmesh.errors import DataError, InputError, import_extra

Array: TypeAlias = Any
Namespace: TypeAlias = Any

# The compatibility wrapper of NumPy itself, for code that starts from files and estimators.
numpy: Namespace = array_api_compat.array_namespace(np.empty(0))

# Kinds of memory that DLPack calls that of the CPU, and of the CPU but pinned for CUDA.
DLPACK_HOST = (1, 3)
# A long sum is cut into so many pieces at most, and into none shorter than this.
MOST_PIECES, SHORTEST_PIECE = 16, 128
# Columns of wide rows that are multiplied at a time.
PIECE = 2048
# Entries of a matrix up to which BLAS multiplies a vector with one thread.
SMALL_FOR_BLAS = 2**13


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


def numpy_dtype(array: Array) -> np.dtype:
    """The dtype of an array of any library, as NumPy calls it."""
    # torch.float32, array_api_strict.float32
    name = str(array.dtype).rpartition(".")[2]
    try:
        return np.dtype(name)
    except TypeError as error:
        raise DataError(f"NumPy knows no dtype {name}; convert the data to float32 or float64.") from error


def on_host(array: Array) -> bool:
    """Whether the array lies in the memory of the CPU."""
    if array_api_compat.is_torch_array(array):
        return bool(array.device.type == "cpu")
    return array.__dlpack_device__()[0] in DLPACK_HOST


def as_tensor(array: Array) -> Array:
    """An array of any library as a PyTorch tensor on its device, without a copy."""
    if array_api_compat.is_torch_array(array):
        return array.detach()
    return import_extra("torch", "torch", "an array on a GPU").from_dlpack(array)


def item_bytes(array: Array) -> int:
    """Bytes of one number of the array."""
    size = getattr(array.dtype, "itemsize", None)
    # array-api-strict has no item size; its type's name ends in the bits.
    return int(size if size is not None else array.__array_namespace__().finfo(array.dtype).bits // 8)


def squared_norms(X: Array) -> Array:
    """Squared Euclidean norms of the columns: (nodes, d, k) -> (nodes, k)."""
    # NumPy's vecdot jumps from row to row for each column; einsum reads the rows in order.
    return np.einsum("...dk,...dk->...k", X, X) if isinstance(X, np.ndarray) else namespace(X).vecdot(X, X, axis=-2)


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


def pieces(rows: Array) -> list[slice]:
    """Parts of the last axis of wide rows that a product on the CPU takes one by one, to need less room: (1, k, d)."""
    step = PIECE if isinstance(rows, np.ndarray) else max(1, rows.shape[-1])
    return [slice(start, start + step) for start in range(0, rows.shape[-1], step)]


def turn_in_place(X: Array, small: Array) -> None:
    """Write ``X small`` over X: (1, d, k), (1, k, k)."""
    rows = X.mT
    for piece in pieces(rows):
        rows[:, :, piece] = small.mT @ rows[:, :, piece]


def qr_in_place(X: Array) -> Array:
    """Write Q over a tall matrix X = Q R, and give R: (1, d, k) -> (1, k, k)."""
    d, k = X.shape[-2:]
    # Threads would wait for one another most of the time: pieces are so small that BLAS uses none.
    count = -(-d // max(4 * k, SMALL_FOR_BLAS // k)) if isinstance(X, np.ndarray) else 1
    if count == 1:
        X[...], R = namespace(X).linalg.qr(X)
        return R
    parts, triangles = np.array_split(X, count, axis=-2), []
    for part in parts:
        part[...], R = np.linalg.qr(part)
        triangles.append(R)
    turns = np.concatenate(triangles, axis=-2)
    R = qr_in_place(turns)
    for part, turn in zip(parts, np.split(turns, count, axis=-2), strict=True):
        part[...] = part @ turn
    return R


def on_gpu(array: Array) -> bool:
    """Whether the array is a CUDA tensor, for which starting a kernel costs more than most of them do."""
    return not isinstance(array, np.ndarray) and array_api_compat.is_torch_array(array) and bool(array.is_cuda)


def small_work_on_host(array: Array) -> AbstractContextManager[Any]:
    """One thread for NumPy's products while a GPU does the large ones: for small ones, waking others takes longer."""
    return _blas_threads().limit(limits=1, user_api="blas") if on_gpu(array) else nullcontext()


@cache
def _blas_threads() -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped, unused-ignore]

    # Once, since looking for the libraries takes a few milliseconds.
    return ThreadpoolController()


def inner_products(X: Array, Z: Array) -> tuple[Array, Array]:
    """``X^T Z`` and the squared norms of the columns of X: (nodes, d, k) twice -> (nodes, k, k) and (nodes, k)."""
    return _one_product(X, Z) if on_gpu(X) else (X.mT @ Z, squared_norms(X))


def add_scaled(X: Array, factor: float, S: Array) -> Array:
    """``X + factor S``, written over X."""
    if on_gpu(X):
        # One kernel instead of two.
        return X.add_(S, alpha=factor)
    X += factor * S
    return X


def subtract_product(Z: Array, X: Array, small: Array) -> Array:
    """``Z - X small``, which a GPU writes over Z: (nodes, d, k) twice, (nodes, k, k) -> (nodes, d, k)."""
    return Z.baddbmm_(X, small, alpha=-1) if on_gpu(Z) else Z - X @ small


def symmetric_product(matrices: Array, X: Array) -> Array:
    """Symmetric matrices (nodes, d, d) times X: (nodes, d, k) -> (nodes, d, k).

    A GPU reads a few rows faster than a few columns, so there it is ``(X^T C)^T``.
    """
    return (X.mT.contiguous() @ matrices.mT).mT if on_gpu(X) else matrices @ X


def stacked(tensors: list[Array]) -> Array:
    """Tensors of one shape along a new first axis: as they are where they follow each other in memory, else a copy."""
    first = tensors[0]
    memory, begin, size = first.untyped_storage().data_ptr(), first.storage_offset(), first.numel()
    for place, tensor in enumerate(tensors):
        follows = tensor.untyped_storage().data_ptr() == memory and tensor.storage_offset() == begin + place * size
        if not (follows and tensor.is_contiguous()):
            return namespace(first).stack(tensors)
    return first.as_strided((len(tensors), *first.shape), (size, *first.stride()))


def _one_product(X: Array, Z: Array) -> tuple[Array, Array]:
    """Both from one product ``X^T [Z X]`` whose sum over d is cut into pieces.

    A GPU gives a k x k result to one of its many processors, however long the sum behind it; pieces go to several.
    They are added by a product with ones, for which a GPU takes half the time of a short sum.
    """
    xp = namespace(X)
    nodes, d, k = X.shape
    pieces = _pieces(d)
    cut = [xp.permute_dims(xp.reshape(A.mT, (nodes, k, pieces, d // pieces)), (2, 0, 1, 3)) for A in (Z, X)]
    rows = xp.reshape(xp.concat(cut, axis=2), (pieces * nodes, 2 * k, d // pieces))
    products = xp.reshape(rows[:, k:, :] @ rows.mT, (pieces, nodes * k * 2 * k))
    products = xp.reshape(products.mT @ _ones(pieces, xp, X.dtype, X.device), (nodes, k, 2 * k))
    return products[:, :, :k], xp.linalg.diagonal(products[:, :, k:])


@cache
def _ones(count: int, xp: Namespace, dtype: Any, device: Any) -> Array:
    # Kept, since making them takes a kernel too. A CUDA graph is warmed up first, so they are not part of one.
    return xp.ones(count, dtype=dtype, device=device)


@cache
def _pieces(length: int) -> int:
    """Number of equal pieces to cut a sum of this length into."""
    most = max(1, min(MOST_PIECES, length // SHORTEST_PIECE))
    return next(count for count in range(most, 0, -1) if length % count == 0)


def namespace_for(device: str | None) -> tuple[Namespace, Any]:
    """Array API namespace and device: NumPy for None, PyTorch for "cpu", "cuda", "cuda:1", "mps"."""
    if device is None:
        return numpy, None
    torch = import_extra("torch", "torch", f"device = {device!r}")
    try:
        placed = torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        here = f"here there are: {', '.join(devices_here(torch))}"
        raise InputError(f"device = {device!r} cannot be used; {here}. Leave it out for NumPy on the CPU.") from error
    return array_api_compat.array_namespace(placed), placed.device


def devices_here(torch: Any) -> list[str]:
    """Names of the devices that PyTorch sees on this machine."""
    names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names
