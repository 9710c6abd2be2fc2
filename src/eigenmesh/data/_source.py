"""Sources of samples: anything that can read rows on request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import array_api_compat
import numpy as np
import scipy.sparse

from eigenmesh.arrays import Array, as_tensor, namespace, numpy_dtype, on_host, to_numpy
from eigenmesh.data._place import Place
from eigenmesh.data._splits import Rows
from eigenmesh.data._table_options import require_distinct
from eigenmesh.errors import DataError

# np.ndarray, a tensor on a device, or scipy.sparse.csr_array; scipy carries no types.
Samples: TypeAlias = Any
# Larger whole numbers are not all in float64.
LARGEST_WHOLE = 2**53
# Dtypes of samples that are moved to a device as a whole.
MOVED_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
# What to do with columns of a data frame that are not numbers.
MAKE_NUMBERS = "leave them out, or make them numbers: a date can be a number of days, words columns of 0 and 1"
# Rows of a sparse matrix to check at a time.
CHECKED_ROWS = 256


@runtime_checkable
class Source(Protocol):
    """Samples (n, d) wherever they are: in memory, in a file, or computed as they are read.

    Any object with these six members is a source, without inheritance or registration.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples n and of columns d."""

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the values that ``read`` returns: real numbers, integers or booleans."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the d columns, if they have names."""

    @property
    def n_stored(self) -> int | None:
        """Number of stored entries if the source is sparse, None if it is dense."""

    @property
    def in_memory(self) -> bool:
        """Whether the samples are in memory. If not, only small data are copied to centre them."""

    def read(self, rows: Rows) -> Samples:
        """These rows, (len(rows), d), as an array; as a csr_array in canonical format if the source is sparse.

        rows : ``slice(start, stop)`` with 0 <= start <= stop <= n, or an integer array of row numbers.
        """


@dataclass(frozen=True, eq=False)
class MatrixSource:
    """An array, in memory or mapped from a file, or a csr_array that stores no entry twice."""

    matrix: Samples
    feature_names: tuple[str, ...] | None = None
    # Location of an entry (row, column) in its file, for messages; None if there is no file.
    place: Callable[[int, int], str | None] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.matrix.shape)

    @property
    def dtype(self) -> np.dtype:
        dtype: np.dtype = self.matrix.dtype
        return dtype

    @property
    def n_stored(self) -> int | None:
        return int(self.matrix.nnz) if scipy.sparse.issparse(self.matrix) else None

    @property
    def in_memory(self) -> bool:
        return not is_mapped(self.matrix)

    def read(self, rows: Rows) -> Samples:
        if not isinstance(rows, slice) or self.n_stored is None:
            return self.matrix[rows]
        return self.matrix if rows == slice(0, self.shape[0]) else _run_of_rows(self.matrix, rows)


@dataclass(frozen=True, eq=False)
class TensorSource:
    """A PyTorch tensor on any device; rows stay on it."""

    tensor: Array
    feature_names: tuple[str, ...] | None = None
    n_stored: ClassVar[int | None] = None
    in_memory: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype:
        return numpy_dtype(self.tensor)

    @property
    def device(self) -> Any:
        return self.tensor.device

    def read(self, rows: Rows) -> Samples:
        if isinstance(rows, slice):
            return self.tensor[rows]
        xp = namespace(self.tensor)
        return xp.take(self.tensor, xp.asarray(rows, device=self.device), axis=0)


def as_source(X: object, what: str = "X", feature_names: tuple[str, ...] | None = None) -> Source:
    """Samples of any kind as a Source; copies only if necessary.

    X may be a Source, a NumPy array, a memory map, any sparse matrix, a data frame, nested lists or an Array API array;
    an array on a GPU stays there. ``what`` is its name in messages. ``feature_names`` are for data without names.
    """
    if isinstance(X, Source):
        source = X
    elif is_frame(X):
        from eigenmesh.data._frames import FrameColumns

        columns = FrameColumns.of(X, what, MAKE_NUMBERS)
        source = columns.features(range(columns.n_columns))
    elif is_device_array(X):
        source = TensorSource(as_tensor(X), feature_names)
    else:
        source = MatrixSource(_as_matrix(X, what), feature_names)
    shape, dtype = source.shape, np.dtype(source.dtype)
    if len(shape) != 2:
        raise DataError(f"{what} must be 2-D (samples, features); got shape {shape}.")
    if shape[1] == 0:
        raise DataError(f"{what} has no columns (shape {shape}); give at least one.")
    require_real(dtype, what)
    if source.feature_names is not None:
        require_distinct(source.feature_names, what)
    return source


def require_real(dtype: np.dtype, what: str) -> None:
    """Raise unless values of this dtype are real numbers that float64 can represent."""
    if dtype.kind == "c":
        raise DataError(
            f"Complex data not supported: {what} is {dtype}; stack its real and imaginary parts as columns."
        )
    if dtype.kind in "mM":
        raise DataError(f"{what} has dates or times ({dtype}); convert them to numbers, such as days from the first.")
    if dtype.kind == "f" and dtype.itemsize > 8:
        raise DataError(f"{what} is {dtype}, and all arithmetic is in float64; round it with X.astype(np.float64).")
    if dtype.kind not in "biuf":
        raise DataError(f"{what} has dtype {dtype}, which is not numeric; convert it with X.astype(float).")


def require_exact(values: Array, place: Callable[[int], str]) -> None:
    """Raise if a whole number is too large for float64; ``place`` names the entry with this number in the array."""
    if isinstance(values, np.ndarray) and values.dtype == object:
        values = np.array([value if isinstance(value, int) else 0 for value in values.flat], dtype=object)
    elif numpy_dtype(values).kind not in "iu" or numpy_dtype(values).itemsize < 8:
        return
    xp = np if isinstance(values, np.ndarray) else namespace(values)
    if 0 in values.shape or (xp.max(values) <= LARGEST_WHOLE and xp.min(values) >= -LARGEST_WHOLE):
        return
    beyond = to_numpy((values > LARGEST_WHOLE) | (values < -LARGEST_WHOLE)).astype(bool)
    first = int(np.argmax(beyond))
    raise DataError(
        f"{place(first)} is {int(to_numpy(values).flat[first])}; float64 has all whole numbers only up to 2^53 = "
        f"{LARGEST_WHOLE}. Subtract a constant, leave out columns of ids, or round it with X.astype(np.float64)."
    )


def checkable(X: Any, what: str = "X") -> Any:
    """Samples that scikit-learn can check, whose own errors name no column and which reads masked entries and dates.

    Raises DataError for a data frame with columns that are not numbers, for an object that is no array, and for numbers
    that are not real or not in the range of float64.
    """
    if isinstance(X, np.ma.MaskedArray):
        return without_mask(X, what)
    if is_frame(X):
        from eigenmesh.data._frames import FrameColumns

        FrameColumns.of(X, what, MAKE_NUMBERS).require_numbers()
        return X
    _require_array(X, what)
    if isinstance(X, np.ndarray) or scipy.sparse.issparse(X):
        # scikit-learn takes objects that are numbers.
        require_real(np.dtype(float) if X.dtype == object else X.dtype, what)
    if isinstance(X, np.ndarray) and X.ndim == 2 and not is_mapped(X):
        require_exact(X, lambda at: f"row {at // X.shape[1]} of {what}, column {at % X.shape[1]},")
    return X


def reads_by_columns(source: Source) -> bool:
    """Whether columns are read much faster than rows; then the source has ``read_columns``."""
    return bool(getattr(source, "by_columns", False))


def can_move(source: Source, place: Place) -> bool:
    """Whether samples on another device can be moved to a place completely: dense float32 or float64 in memory."""
    is_elsewhere = getattr(source, "device", None) != place.device
    return is_elsewhere and source.n_stored is None and source.in_memory and np.dtype(source.dtype) in MOVED_DTYPES


def source_at(source: Source, place: Place) -> Source:
    """The same samples, moved to a place."""
    samples = place.put(source.read(slice(0, source.shape[0])))
    kind = MatrixSource if isinstance(samples, np.ndarray) else TensorSource
    return kind(samples, source.feature_names)


def is_frame(X: object) -> bool:
    """Whether X is a data frame of any library: it has columns with dtypes."""
    kind = type(X)
    return hasattr(kind, "columns") and (hasattr(kind, "dtypes") or hasattr(kind, "schema"))


def is_device_array(X: Any) -> bool:
    """Whether X is an array of any library that is not in CPU memory."""
    return not isinstance(X, np.ndarray) and bool(array_api_compat.is_array_api_obj(X)) and not on_host(X)


def is_mapped(X: object) -> bool:
    """Whether X is a memory-mapped array or a view of one."""
    while isinstance(X, np.ndarray) and not isinstance(X, np.memmap):
        X = X.base
    return isinstance(X, np.memmap)


def _run_of_rows(matrix: Samples, rows: slice) -> Samples:
    """Consecutive rows of a csr_array without a copy of their entries, which scipy would make."""
    ends = matrix.indptr[rows.start : rows.stop + 1]
    piece = scipy.sparse.csr_array((rows.stop - rows.start, matrix.shape[1]), dtype=matrix.dtype)
    piece.data, piece.indices = matrix.data[ends[0] : ends[-1]], matrix.indices[ends[0] : ends[-1]]
    piece.indptr = ends - ends[0]
    return piece


def _as_matrix(X: Any, what: str) -> Samples:
    if scipy.sparse.issparse(X):
        matrix = scipy.sparse.csr_array(X) if X.ndim == 2 else X
        if X.ndim == 2 and _has_duplicates(matrix):
            # Duplicates stand for their sum. Summed in a copy, so that the caller's matrix does not change.
            matrix = matrix.copy()
            matrix.sum_duplicates()
        return matrix
    if isinstance(X, np.ma.MaskedArray):
        return without_mask(X, what)
    _require_array(X, what)
    if not isinstance(X, np.ndarray) and array_api_compat.is_array_api_obj(X):
        return to_numpy(X)
    try:
        return np.asarray(X)
    except ValueError as error:
        raise DataError(f"{what} is not a matrix; give all rows the same length.") from error


def _require_array(X: Any, what: str) -> None:
    """Raise for an object from which NumPy would take one item after another, which may take for ever."""
    kind = type(X)
    if isinstance(X, np.matrix):
        raise DataError(f"{what} is a numpy.matrix, whose rows are matrices again; convert it with np.asarray.")
    if all(hasattr(kind, name) for name in ("obs", "var", "X")):
        fix = "give its matrix, adata.X, or a layer, adata.layers[..]"
        raise DataError(f"{what} is an AnnData object, not a matrix; {fix}.")
    is_array = scipy.sparse.issparse(X) or array_api_compat.is_array_api_obj(X) or hasattr(kind, "__array__")
    if hasattr(kind, "__getitem__") and not is_array and not isinstance(X, Sequence | Mapping):
        name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        raise DataError(f"{what} is a {name}, not a matrix; give an array, a sparse matrix, a data frame or a Source.")


def without_mask(X: np.ma.MaskedArray[Any, Any], what: str) -> np.ndarray:
    """The array with NaN for masked entries; ``np.asarray`` would use the hidden values as data."""
    require_real(X.dtype, what)
    require_exact(np.ma.filled(X, 0), lambda at: f"entry {at} of {what}")
    return np.asarray(np.ma.filled(X.astype(np.float64), np.nan))


def _has_duplicates(matrix: Samples) -> bool:
    """Whether an entry of a csr_array is stored twice; their order does not matter."""
    if matrix.has_canonical_format:
        return False
    for start in range(0, matrix.shape[0], CHECKED_ROWS):
        piece = matrix[start : start + CHECKED_ROWS]
        stored = piece.nnz
        piece.sum_duplicates()
        if piece.nnz < stored:
            return True
    return False
