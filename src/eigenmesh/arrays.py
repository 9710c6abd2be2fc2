"""The library, dtype and device of an array, and conversions between libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeAlias

import array_api_compat
import numpy as np
import scipy

from eigenmesh.errors import AtFirstUse, DataError, InputError, import_extra

Array: TypeAlias = Any
Namespace: TypeAlias = Any

# The compatibility wrapper of NumPy itself, for code that starts from files and estimators.
numpy: Namespace = AtFirstUse("array_api_compat.numpy")

# Bytes of a number in memory and in a message: all arithmetic is in float64, or in 64-bit integers.
ITEM_BYTES = 8
# Distance from 1 to the next number in float64.
EPS = float(np.finfo(np.float64).eps)

# DLPack device types of CPU memory: plain, and pinned for CUDA.
DLPACK_HOST = (1, 3)


def namespace(array: Array) -> Namespace:
    """Array API namespace of the array."""
    # Called many times per iteration; the shortcut for NumPy saves a microsecond each time.
    return numpy if isinstance(array, np.ndarray) else array_api_compat.array_namespace(array)


def is_sparse(value: object) -> bool:
    """Whether this is a sparse array or matrix of SciPy, whose module is not imported to find out."""
    # Asked for every piece of the rows of every node, most of which are NumPy arrays.
    if isinstance(value, np.ndarray):
        return False
    return any(kind.__module__.startswith("scipy.sparse") for kind in type(value).__mro__)


def like(values: np.ndarray, model: Array) -> Array:
    """Copy NumPy values into the library, dtype and device of ``model``."""
    # Always a copy: PyTorch accepts no negative strides, and NumPy keeps those of an axis with a single entry
    # otherwise.
    return namespace(model).asarray(np.array(values, order="C"), dtype=model.dtype, device=model.device)


def to_numpy(array: Array) -> np.ndarray:
    """Convert an array of any library to NumPy, without a copy if it is NumPy already."""
    if isinstance(array, np.ndarray):
        return array
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu())
    return np.from_dlpack(array)


def numpy_dtype(array: Array) -> np.dtype:
    """The NumPy dtype that corresponds to the dtype of an array of any library."""
    if isinstance(array, np.ndarray):
        return np.dtype(array.dtype)
    # str() gives torch.float32 or array_api_strict.float32.
    name = str(array.dtype).rpartition(".")[2]
    try:
        return np.dtype(name)
    except TypeError as error:
        raise DataError(f"NumPy has no dtype {name}; convert the data to float32 or float64.") from error


def on_host(array: Array) -> bool:
    """Whether the array is in CPU memory."""
    if array_api_compat.is_torch_array(array):
        return bool(array.device.type == "cpu")
    return array.__dlpack_device__()[0] in DLPACK_HOST


def on_gpu(array: Array) -> bool:
    """Whether the array is a CUDA tensor."""
    return not isinstance(array, np.ndarray) and array_api_compat.is_torch_array(array) and bool(array.is_cuda)


def as_tensor(array: Array) -> Array:
    """An array of any library as a PyTorch tensor on its device, without a copy."""
    if array_api_compat.is_torch_array(array):
        return array.detach()
    return import_extra("torch", "torch", "an array on a GPU").from_dlpack(array)


def namespace_for(device: str | None) -> tuple[Namespace, Any]:
    """Array API namespace and device: NumPy for None, PyTorch for "cpu", "cuda", "cuda:1"."""
    if device is None:
        return numpy, None
    torch = import_extra("torch", "torch", f"device = {device!r}")
    try:
        placed = torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        available = f"available devices: {', '.join(devices_here(torch))}"
        raise InputError(
            f"device = {device!r} cannot be used; {available}. Leave it out for NumPy on the CPU."
        ) from error
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"device = {device!r} has no float64, in which all results are computed; leave it out, "
            "and move samples that are there to the CPU with X.cpu()."
        ) from error
    return array_api_compat.array_namespace(placed), placed.device


def devices_here(torch: Any) -> list[str]:
    """Names of the devices that PyTorch sees on this machine."""
    return ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]


# Norms and orthonormal columns of the tall matrices that nodes hold.


# Columns of a wide matrix to multiply at a time.
PIECE = 2048
# Columns of a triangle to copy to the other side at a time: whole rows of a large matrix would not stay in the cache.
MIRRORED = 128
UPPER = np.triu(np.ones((MIRRORED, MIRRORED), dtype=bool))
# BLAS multiplies a matrix of up to this many entries with a vector in one thread.
SMALL_FOR_BLAS = 2**13


def add_gram(matrix: Array, chunks: Iterable[Array]) -> None:
    """Overwrite a zero matrix by the sum of ``chunk^T chunk``, symmetric to the last bit: (d, d), (n, d) each."""
    if not isinstance(matrix, np.ndarray):
        for chunk in chunks:
            matrix += chunk.mT @ chunk
        matrix[...] = (matrix + matrix.mT) * 0.5
        return
    for chunk in chunks:
        add_to_triangle(matrix, chunk)
    mirror(matrix)


def add_to_triangle(matrix: np.ndarray, chunk: np.ndarray) -> None:
    """Add ``chunk^T chunk`` to the upper triangle: (d, d), (n, d)."""
    # BLAS adds to one triangle in place, half the work of a product. It sees the transpose of rows, so its lower
    # triangle, the faster one to make, is the upper triangle here.
    scipy.linalg.blas.dsyrk(1.0, chunk.T, beta=1.0, c=matrix.T, overwrite_c=True, lower=True)


def subtract_from_triangle(matrix: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Subtract ``x y^T + y x^T`` from the upper triangle: (d, d), (d,) each."""
    scipy.linalg.blas.dsyr2(-1.0, x, y, a=matrix.T, overwrite_a=True, lower=True)


def subtract_outer(matrix: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Subtract ``x y^T`` from a matrix whose columns are contiguous: (d, k), (d,), (k,)."""
    scipy.linalg.blas.dger(-1.0, x, y, a=matrix, overwrite_a=True)


def add_product(total: Array, rows: Array, scores: Array) -> None:
    """Add ``rows^T scores`` to a total whose columns are contiguous: (d, k), (n, d), (n, k)."""
    if isinstance(total, np.ndarray):
        # Without a temporary array: wide rows are few at a time, and adding would take as long as the product.
        scipy.linalg.blas.dgemm(1.0, rows.T, scores.T, beta=1.0, c=total, trans_b=True, overwrite_c=True)
    else:
        total += rows.mT @ scores


def mirror(matrix: np.ndarray, factor: np.ndarray | float = 1.0) -> None:
    """Scale rows and columns by ``factor``, (d,) or a number, and copy the upper triangle to the lower one: (d, d)."""
    factors = np.broadcast_to(factor, len(matrix))
    for start in range(0, len(matrix), MIRRORED):
        some = slice(start, start + MIRRORED)
        if not (isinstance(factor, float) and factor == 1.0):
            matrix[some, start:] *= factors[some, np.newaxis] * factors[start:]
        matrix[some, :start] = matrix[:start, some].T
        within = matrix[some, some]
        size = len(within)
        within[...] = np.where(UPPER[:size, :size], within, within.T)


def squared_norms(X: Array) -> Array:
    """Squared Euclidean norms of the columns: (nodes, d, k) -> (nodes, k)."""
    # NumPy's vecdot strides over the rows for each column; einsum reads the rows in order.
    return np.einsum("...dk,...dk->...k", X, X) if isinstance(X, np.ndarray) else namespace(X).vecdot(X, X, axis=-2)


def column_norms(X: Array) -> Array:
    """Euclidean norms of the columns: (nodes, d, k) -> (nodes, 1, k)."""
    return namespace(X).sqrt(squared_norms(X))[:, None, :]


def normalised(X: Array) -> Array:
    """Columns divided by their norms: (nodes, d, k) -> (nodes, d, k)."""
    return X / column_norms(X)


def orthonormal(X: Array) -> Array:
    """Q of the QR decomposition whose R has no negative diagonal: (nodes, d, k) -> (nodes, d, k)."""
    xp = namespace(X)
    Q, R = xp.linalg.qr(X)
    signs = xp.sign(xp.linalg.diagonal(R))
    return Q * xp.where(signs == 0, xp.ones_like(signs), signs)[:, None, :]


def eigenpairs(T: Array) -> tuple[Array, Array]:
    """Eigenpairs of symmetric matrices, smallest first: (.., n, n) -> (.., n), (.., n, n)."""
    try:
        values, vectors = namespace(T).linalg.eigh(T)
    except np.linalg.LinAlgError:
        if not (isinstance(T, np.ndarray) and np.isfinite(T).all()):
            raise
        # Divide and conquer in LAPACK fails on some valid matrices with many equal eigenvalues; QR iteration does not.
        flat = T.reshape(-1, *T.shape[-2:])
        pairs = [scipy.linalg.eigh(matrix, driver="ev") for matrix in flat]
        values, vectors = np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs])
        values, vectors = values.reshape(T.shape[:-1]), vectors.reshape(T.shape)
    return values, vectors


def largest_eigenpairs(T: Array, count: int) -> tuple[Array, Array]:
    """The ``count`` largest eigenpairs of symmetric matrices, largest first: (.., n, n) -> (.., count), (.., n, count).

    On the CPU only these are computed, by LAPACK's ``syevr``, unless all of them are.
    """
    if isinstance(T, np.ndarray) and count < T.shape[-1]:
        n, flat = T.shape[-1], T.reshape(-1, *T.shape[-2:])
        # If bisection fails on valid matrices, the other methods do not.
        with contextlib.suppress(np.linalg.LinAlgError):
            pairs = [scipy.linalg.eigh(matrix, subset_by_index=(n - count, n - 1)) for matrix in flat]
            values, vectors = np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs])
            values, vectors = values.reshape(*T.shape[:-2], count), vectors.reshape(*T.shape[:-1], count)
            return np.flip(values, axis=-1), np.flip(vectors, axis=-1)
    values, vectors = (namespace(T).flip(part, axis=-1) for part in eigenpairs(T))
    # Copied, because a view would keep all n vectors in memory.
    few = vectors if count == T.shape[-1] else namespace(T).asarray(vectors[..., :count], copy=True)
    return values[..., :count], few


def pieces(rows: Array, columns: int = PIECE) -> list[slice]:
    """Slices of the last axis of a wide matrix (1, k, d), for products on the CPU that need less memory one by one."""
    step = columns if isinstance(rows, np.ndarray) else max(1, rows.shape[-1])
    return [slice(start, start + step) for start in range(0, rows.shape[-1], step)]


def turn_in_place(X: Array, small: Array) -> None:
    """Overwrite X by ``X small``: (1, d, k), (1, k, k)."""
    rows = X.mT
    for piece in pieces(rows):
        rows[:, :, piece] = small.mT @ rows[:, :, piece]


def qr_in_place(X: Array) -> Array:
    """Overwrite a tall matrix X by Q of ``X = Q R``, and return R: (1, d, k) -> (1, k, k)."""
    d, k = X.shape[-2:]
    # QR of tall parts (TSQR), each so small that BLAS uses one thread: on this shape threads mostly wait for each
    # other.
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


# Operations that a GPU does in other ways than a CPU, because launching a small kernel costs more than running it.


def small_work_on_host(array: Array) -> AbstractContextManager[Any]:
    """One BLAS thread for NumPy while a GPU does the large products: for small ones, waking threads takes longer."""
    return blas_threads(1) if on_gpu(array) else nullcontext()


def blas_threads(most: int) -> AbstractContextManager[Any]:
    """At most that many BLAS threads for NumPy in this process. scikit-learn brings the library that sets them."""
    controller = _blas_controller().select(user_api="blas")
    # Its own limit would also raise a smaller number of threads.
    limit: AbstractContextManager[Any] = controller.limit(
        limits=min([most, *(library["num_threads"] for library in controller.info())])
    )
    return limit


@cache
def _blas_controller() -> Any:
    from threadpoolctl import ThreadpoolController

    # Cached, because finding the libraries takes a few milliseconds.
    return ThreadpoolController()


def symmetric_product(matrices: Array, X: Array) -> Array:
    """Symmetric matrices (nodes, d, d) times X: (nodes, d, k) -> (nodes, d, k).

    It is ``(X^T C)^T``, because a few rows are read faster than a few columns.
    """
    return (X.mT.contiguous() @ matrices.mT).mT if on_gpu(X) else (X.mT @ matrices).mT


# Bytes as numbers, for what nodes send besides arrays.


# Bytes per float64, which represents 48 bits exactly.
NUMBER_BYTES = 6


def as_numbers(sent: bytes) -> np.ndarray:
    """Bytes, with zeros at the end to make them a multiple of six, as float64 numbers: (words,)."""
    padded = sent.ljust(-(-len(sent) // NUMBER_BYTES) * NUMBER_BYTES, b"\0")
    return np.frombuffer(padded, np.uint8).reshape(-1, NUMBER_BYTES) @ 256.0 ** np.arange(NUMBER_BYTES)[::-1]


def as_bytes(numbers: np.ndarray) -> bytes:
    """The bytes of ``as_numbers``: (words,)."""
    return numbers.astype(">u8").view(np.uint8).reshape(-1, 8)[:, -NUMBER_BYTES:].tobytes()


# The first axis of an array, over the nodes in this process; one copy may stand for all of them.


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
