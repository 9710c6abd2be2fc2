"""Sources of samples: anything that can read rows on request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import array_api_compat
import numpy as np
import scipy

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array, Namespace, as_tensor, is_sparse, namespace, numpy_dtype, on_host, to_numpy
from eigenmesh.data.cures import Unusable, cure_of, in_python
from eigenmesh.data.split import Rows
from eigenmesh.data.table_options import TableOptions, listed_columns, require_distinct, row_label
from eigenmesh.errors import DataError, MissingExtraError, import_extra
from eigenmesh.words import listed, one_line

# Library and device for the samples: NumPy, or PyTorch tensors on a device to which they are moved once.


# Size of a chunk of rows: large enough for BLAS and for sequential reading, small compared with memory. A GPU needs
# larger ones.
CHUNK_BYTES, GPU_CHUNK_BYTES = 2 * 2**20, 256 * 2**20
# Rows of a file are held in memory, and an array that is stored column after column is copied, if they take no more.
HELD_BYTES = 256 * 2**20
# Pinned buffers that a GPU can read by itself: one is filled while another is copied.
STAGE_BYTES, STAGES = 32 * 2**20, 3
# Share of a GPU's free memory that samples moved there may take.
SHARE_OF_GPU = 0.5


@dataclass(frozen=True)
class Place:
    """An Array API namespace and a device; None for NumPy."""

    xp: Namespace = ea.numpy
    device: Any = None

    @classmethod
    def named(cls, device: str | None) -> Place:
        """NumPy for None, otherwise PyTorch on a device: "cpu", "cuda", "cuda:1"."""
        return cls(*ea.namespace_for(device))

    @classmethod
    def of(cls, xp: Namespace | None, device: Any = None) -> Place:
        """The place of an array made with this namespace and device."""
        made = np.empty(0) if xp is None else xp.empty(0, device=device)
        return cls() if isinstance(made, np.ndarray) else cls(ea.namespace(made), made.device)

    @property
    def is_gpu(self) -> bool:
        return getattr(self.device, "type", None) == "cuda"

    def free_bytes(self) -> int:
        """Free memory of the GPU, including what PyTorch has reserved but does not use."""
        torch = import_extra("torch", "torch", "a GPU")
        stats = torch.cuda.memory_stats(self.device)
        unused = stats.get("reserved_bytes.all.current", 0) - stats.get("allocated_bytes.all.current", 0)
        return int(torch.cuda.mem_get_info(self.device)[0] + unused)

    def has_room(self, n_bytes: int) -> bool:
        """Whether samples of this size may be moved here completely."""
        return not self.is_gpu or n_bytes <= SHARE_OF_GPU * self.free_bytes()

    def put(self, values: Array) -> Array:
        """The values on this device, in their own dtype; copied only if they are elsewhere."""
        if self.xp is ea.numpy:
            return ea.to_numpy(values)
        if isinstance(values, np.ndarray):
            if self.is_gpu and values.ndim == 2 and values.nbytes > STAGE_BYTES:
                return _staged(values, self.device)
            values = _plain(values)
        return self.xp.asarray(values, device=self.device)


HOST = Place()


def chunk_bytes(device: Any) -> int:
    """Size of a chunk of rows on this device; None is NumPy."""
    return GPU_CHUNK_BYTES if getattr(device, "type", None) == "cuda" else CHUNK_BYTES


def _staged(values: np.ndarray, device: Any) -> Array:
    """Copy rows (n, d) to a GPU through pinned memory: several times faster than from memory that is not pinned."""
    torch = import_extra("torch", "torch", "a GPU")
    rows = max(1, STAGE_BYTES // (values.itemsize * values.shape[1]))
    dtype = torch.from_numpy(np.empty(0, dtype=values.dtype)).dtype
    moved = torch.empty(values.shape, dtype=dtype, device=device)
    stages = [torch.empty((rows, values.shape[1]), dtype=dtype, pin_memory=True) for _ in range(STAGES)]
    done = [torch.cuda.Event() for _ in stages]
    for turn, start in enumerate(range(0, len(values), rows)):
        part = torch.from_numpy(_plain(values[start : start + rows]))
        stage = stages[turn % STAGES][: len(part)]
        # An event that was never recorded counts as done.
        done[turn % STAGES].synchronize()
        stage.copy_(part)
        moved[start : start + len(part)].copy_(stage, non_blocking=True)
        done[turn % STAGES].record(torch.cuda.current_stream(device))
    torch.cuda.current_stream(device).synchronize()
    return moved


def _plain(values: np.ndarray) -> np.ndarray:
    """A copy if needed: PyTorch accepts neither negative strides nor read-only memory."""
    fits = min(values.strides, default=0) >= 0 and values.flags.writeable
    return values if fits else np.array(values, order="C")


# np.ndarray, a tensor on a device, or scipy.sparse.csr_array; scipy carries no types.
Samples: TypeAlias = Any
# Larger whole numbers are not all in float64.
LARGEST_WHOLE = 2**53
# Dtypes of samples that are moved to a device as a whole.
MOVED_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
# What to do with columns of dates.
MAKE_NUMBERS = "or make numbers of dates, such as days from the first"
# Rows of a sparse matrix to check at a time.
CHECKED_ROWS = 256
# Rows of a file to read at a time if only some of them are needed.
WINDOW = 4096


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
    """An array of any library, in memory or mapped from a file, or a csr_array that stores no entry twice.

    The rows of a tensor stay on its device.
    """

    matrix: Samples
    feature_names: tuple[str, ...] | None = None
    # Location of an entry (row, column) in its file, for messages; None if there is no file.
    place: Callable[[int, int], str | None] | None = None

    @cached_property
    def shape(self) -> tuple[int, int]:
        return tuple(self.matrix.shape)

    @cached_property
    def dtype(self) -> np.dtype:
        dtype: np.dtype = self.matrix.dtype if self.device is None else numpy_dtype(self.matrix)
        return dtype

    @cached_property
    def device(self) -> Any:
        """Device of a tensor; None for NumPy and scipy."""
        is_numpy = isinstance(self.matrix, np.ndarray) or is_sparse(self.matrix)
        return None if is_numpy else self.matrix.device

    @cached_property
    def n_stored(self) -> int | None:
        return int(self.matrix.nnz) if is_sparse(self.matrix) else None

    @cached_property
    def in_memory(self) -> bool:
        return not is_mapped(self.matrix)

    def read(self, rows: Rows, out: np.ndarray | None = None) -> Samples:
        """As every source; rows that are gathered are written to ``out`` of at least so many rows, if it fits."""
        if self.device is not None and not isinstance(rows, slice):
            xp = namespace(self.matrix)
            return xp.take(self.matrix, xp.asarray(rows, device=self.device), axis=0)
        if self.n_stored is None and not isinstance(rows, slice) and self.matrix.flags.c_contiguous:
            # Ten times as fast as an index where rows are short; it would copy the whole of any other array.
            into = out[: len(rows)] if out is not None and out.dtype == self.dtype else None
            return self.matrix.take(rows, axis=0, out=into, mode="clip")
        if self.n_stored is None or not isinstance(rows, slice):
            return self.matrix[rows]
        return self.matrix if rows == slice(0, self.shape[0]) else _run_of_rows(self.matrix, rows)


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Samples in a file whose format reads runs of rows: ``between(start, stop)`` are the rows start to stop - 1."""

    shape: tuple[int, int]
    dtype: np.dtype
    between: Callable[[int, int], Samples]
    feature_names: tuple[str, ...] | None = None
    n_stored: int | None = None
    # Location of an entry (row, column) in its file, for messages; None if the file has no better name for it.
    place: Callable[[int, int], str] | None = None
    in_memory: ClassVar[bool] = False

    def read(self, rows: Rows) -> Samples:
        if isinstance(rows, slice):
            return self.between(rows.start, rows.stop)
        # Each window of the file that has one of the rows is read once, whatever their order.
        order = np.argsort(rows, kind="stable")
        pieces = []
        for places in np.split(order, np.flatnonzero(np.diff(rows[order] // WINDOW)) + 1):
            if len(places):
                start = int(rows[places[0]] // WINDOW) * WINDOW
                pieces.append(self.between(start, min(start + WINDOW, self.shape[0]))[rows[places] - start])
        if not pieces:
            return self.between(0, 0)
        if self.n_stored is None:
            return np.concatenate(pieces)[np.argsort(order)]
        return scipy.sparse.csr_array(scipy.sparse.vstack(pieces, format="csr")[np.argsort(order)])


def as_source(X: object, what: str = "X", feature_names: tuple[str, ...] | None = None) -> Source:
    """Samples of any kind as a Source; copies only if necessary.

    Parameters
    ----------
    X : object
        A Source, a NumPy array, a memory map, any sparse matrix, a data frame, nested lists or an Array API array; an
        array on a GPU stays there.
    what : str
        Its name in messages.
    feature_names : tuple of str or None
        Names of the columns, for data without names.
    """
    if isinstance(X, Source):
        source = X
    elif is_frame(X):
        columns = FrameColumns.of(X, what, to=" to fit or to read_table")
        source = columns.features(range(columns.n_columns))
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
        as_source(X, what)
        return X
    _require_array(X, what)
    if isinstance(X, np.ndarray) or is_sparse(X):
        # scikit-learn takes objects that are numbers.
        require_real(np.dtype(float) if X.dtype == object else X.dtype, what)
    if isinstance(X, np.ndarray) and X.ndim == 2 and not is_mapped(X):
        require_exact(X, lambda at: f"row {at // X.shape[1]} of {what}, column {at % X.shape[1]},")
    return X


def source_at(source: Source, place: Place) -> Source:
    """The same samples, moved to a place if they can be moved completely: dense float32 or float64 in memory."""
    is_elsewhere = getattr(source, "device", None) != place.device
    is_whole = source.n_stored is None and source.in_memory and np.dtype(source.dtype) in MOVED_DTYPES
    if not (is_elsewhere and is_whole):
        return source
    return MatrixSource(place.put(source.read(slice(0, source.shape[0]))), source.feature_names)


def by_rows(source: Source) -> Source:
    """The same samples, stored row after row if they are a small array that is stored column after column, like frames.

    To copy it once takes a fifth of the time of gathering scattered rows from it.
    """
    if not isinstance(source, MatrixSource) or not isinstance(source.matrix, np.ndarray) or not source.in_memory:
        return source
    matrix = source.matrix
    if matrix.strides[0] >= matrix.strides[1] or matrix.nbytes > HELD_BYTES:
        return source
    copy = np.empty(matrix.shape, matrix.dtype)
    # As many rows at a time as stay in the cache.
    step = max(1, CHUNK_BYTES // (matrix.itemsize * matrix.shape[1]))
    for start in range(0, len(matrix), step):
        copy[start : start + step] = matrix[start : start + step]
    return replace(source, matrix=copy)


def is_frame(X: object) -> bool:
    """Whether X is a data frame of any library: it has columns with dtypes."""
    kind = type(X)
    return hasattr(kind, "columns") and (hasattr(kind, "dtypes") or hasattr(kind, "schema"))


def is_anndata(X: object) -> bool:
    """Whether X is an AnnData object: it has a matrix, and tables of its rows and of its columns."""
    return all(hasattr(type(X), name) for name in ("obs", "var", "X"))


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
    if is_sparse(X):
        matrix = scipy.sparse.csr_array(X) if X.ndim == 2 else X
        if X.ndim == 2 and _has_duplicates(matrix):
            # Duplicates stand for their sum. Summed in a copy, so that the caller's matrix does not change.
            matrix = matrix.copy()
            matrix.sum_duplicates()
        return matrix
    if is_device_array(X):
        return as_tensor(X)
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
    if is_anndata(X):
        fix = "give its matrix, adata.X, or a layer, adata.layers[..], or read_table(adata).source"
        raise DataError(f"{what} is an AnnData object, not a matrix; {fix}.")
    is_array = is_sparse(X) or array_api_compat.is_array_api_obj(X) or hasattr(kind, "__array__")
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


# Data frames of any library that narwhals supports: pandas, polars, pyarrow and others.


# Most columns in a message.
SHOWN = 5
# Libraries for new frames; the first that is installed is used.
LIBRARIES = ("pandas", "polars", "pyarrow")


def as_narwhals(X: Any, what: str) -> Any:
    """The frame behind the interface of narwhals, which is imported only here."""
    import narwhals

    try:
        return narwhals.from_native(X, eager_only=True)
    except TypeError as error:
        kind = f"{type(X).__module__.partition('.')[0]}.{type(X).__name__}"
        raise DataError(f"{what} is a {kind}, which holds no rows yet or is not known; collect() it first.") from error
    except narwhals.exceptions.DuplicateError as error:
        raise DataError(f"{what} has columns of one name; rename all but one ({one_line(str(error))}).") from error


def make_frame(columns: Mapping[str, Sequence[Any] | np.ndarray]) -> Any:
    """A frame with these columns, of the first library in ``LIBRARIES`` that is installed."""
    import narwhals

    library: Any = next((name for name in LIBRARIES if find_spec(name) is not None), None)
    if library is None:
        raise MissingExtraError(
            f"a data frame needs one of {', '.join(LIBRARIES)}; install it with: pip install pandas"
        )
    return narwhals.from_dict(dict(columns), backend=library).to_native()


@dataclass(frozen=True, eq=False)
class FrameColumns:
    """Columns of a data frame; ``where`` is its name in messages, which name options beside those that are given."""

    frame: Any
    where: str
    options: TableOptions = field(default_factory=lambda: TableOptions())
    # What takes options, if the function that was called does not.
    to: str = ""

    @classmethod
    def of(cls, X: Any, where: str, options: TableOptions | None = None, to: str = "") -> FrameColumns:
        return cls(as_narwhals(X, where), where, options or TableOptions(), to)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.frame.columns)

    @property
    def n_columns(self) -> int:
        return len(self.frame.columns)

    def is_numeric(self, position: int) -> bool:
        """Whether a column has numbers."""
        return _numbers(self.frame[:, int(position)]) is not None

    def features(self, positions: Sequence[int]) -> MatrixSource:
        return MatrixSource(self.numbers(positions), tuple(self.names[column] for column in positions))

    def numbers(self, positions: Sequence[int]) -> np.ndarray:
        """(n, columns) in their common dtype, in float64 if they differ; null becomes NaN."""
        arrays = [_numbers(self.frame[:, int(column)]) for column in positions]
        wrong = [column for column, array in zip(positions, arrays, strict=True) if array is None]
        if wrong:
            raise self.refusal(wrong)
        self._require_exact(positions)
        found = [array for array in arrays if array is not None]
        dtypes = {array.dtype for array in found}
        dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(np.float64)
        if list(positions) == list(range(self.n_columns)):
            # Without a copy if the library stores them contiguously.
            matrix = np.asarray(self.frame.to_numpy())
            if matrix.dtype == dtype:
                return matrix
        return np.column_stack([array.astype(dtype, copy=False) for array in found])

    def _require_exact(self, columns: Sequence[int]) -> None:
        """Raise if a whole number is too large for float64."""
        kinds = list(self.frame.schema.values())
        for column in columns:
            if kinds[column].is_integer():
                whole = self.frame[:, int(column)]
                values = np.asarray(whole.fill_null(0).to_numpy() if whole.null_count() else whole.to_numpy())
                require_exact(values, partial(self.place, column=int(column)))

    def refusal(self, columns: Sequence[int]) -> DataError:
        """The error for columns that are not numbers, with what to give so that the others are read."""
        kinds = list(self.frame.schema.values())
        found = [
            Unusable.of(column, self.names[column], self.frame[:, int(column)].head(MOST_ROWS)) for column in columns
        ]
        wrong = listed([f"{self.names[column]!r} ({kinds[column]})" for column in columns], SHOWN)
        if self.options.among is not None:
            fix = "the model was fitted to numbers in these columns, so give numbers"
        else:
            dates = f", {MAKE_NUMBERS}" if any(kinds[column].is_temporal() for column in columns) else ""
            fix = f"give {in_python(cure_of(found, self.options))}{self.to}{dates}"
        return DataError(f"{self.where} has columns that are not numbers: {wrong}; {fix}.")

    def values(self, position: int) -> np.ndarray:
        return np.asarray(self.frame[:, int(position)].to_numpy())

    def place(self, row: int, column: int) -> str:
        return row_label(self.where, self.names, row, column)


def _numbers(series: Any) -> np.ndarray | None:
    """The values of a column as numbers, null as NaN; None if they are not numbers."""
    import narwhals

    kind = series.dtype
    if not (kind.is_numeric() or kind in (narwhals.Boolean, narwhals.Object)):
        return None
    values = np.asarray(series.to_numpy())
    if values.dtype.kind in "biuf":
        return values
    if kind != narwhals.Object:
        return np.asarray(series.cast(narwhals.Float64).to_numpy(), dtype=np.float64)
    try:
        # Objects may be numbers, with None for missing ones; text is not a number, whatever it looks like.
        plain = [np.nan if value is None else value for value in values.tolist()]
        found = None if any(isinstance(value, str) for value in plain) else np.array(plain, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    # Lists of equal length would be several columns.
    return found if found is not None and found.ndim == 1 else None


# Warnings about columns of a table that are probably not features.


# Rows to check, and the fewest that can show an order.
MOST_ROWS, FEWEST_ROWS = 10_000, 8
ID_NAME = re.compile(
    r"(^|[\W_])(id|ids|nr|no|key|uuid|guid|index|idx|row|rownames?|fnr|mrn)$|[a-z]I[Dd]$|^$|^Unnamed", re.IGNORECASE
)


def suspicious_columns(source: Source, where: str) -> Iterator[str]:
    """Sentences about columns that look like an id or an index; only for columns with names.

    An id has whole numbers, no two alike, and either its name says so or they only rise or only fall. What is not in
    memory is not read for this.
    """
    names, n_rows = source.feature_names, min(source.shape[0], MOST_ROWS)
    if names is None or n_rows < 2 or not source.in_memory or source.n_stored is not None:
        return
    head = np.asarray(source.read(slice(0, n_rows)), dtype=np.float64)
    with np.errstate(invalid="ignore"):  # differences of entries that are infinite
        steps = np.diff(head, axis=0)
    ordered = np.all(steps > 0, axis=0) | np.all(steps < 0, axis=0)
    whole = (head == np.floor(head)).all(axis=0)
    ids = []
    for column in np.flatnonzero(whole):
        rises = n_rows >= FEWEST_ROWS and bool(np.ravel(ordered)[column])
        called = ID_NAME.search(names[column]) is not None
        if (rises or called) and len(np.unique(head[:, column])) == n_rows:
            ids.append(names[column])
    if ids:
        leave, say = in_python({"drop": ids}), in_python({"id_column": ids[0]})
        fix = f"leave it out, {leave}, or say that it is one, {say}"
        yield f"{listed_columns(ids)} of {where} looks like an id or an index, not like a feature; {fix}."


# Numbers that people write for "missing", and the fewest times that one of them looks like that.
CODES = tuple(sign * (10**digits - 1) for digits in range(1, 6) for sign in (-1, 1) if digits > 1 or sign < 0)
FEWEST_CODES = 3


def suspicious_codes(source: Source, where: str, is_text: bool) -> Iterator[str]:
    """A sentence about numbers that look like codes for missing entries: -9, -99, 99, -999, 999 and so on.

    Such a number occurs several times in a column, far from all its other values; ``is_text`` if the table can be read
    with further texts for missing entries. Like ids, they are searched for in memory, and in columns with names.
    """
    names, n_rows = source.feature_names, min(source.shape[0], MOST_ROWS)
    if names is None or n_rows < FEWEST_ROWS or not source.in_memory or source.n_stored is not None:
        return
    head = np.asarray(source.read(slice(0, n_rows)), dtype=np.float64)
    # What is far from all other values is the least or the largest of them, which may be searched for in all columns.
    ends = np.isin(np.stack([np.fmin.reduce(head), np.fmax.reduce(head)]), CODES).any(axis=0)
    found: dict[int, list[str]] = {}
    for column in np.flatnonzero(ends):
        values = head[np.isfinite(head[:, column]), column]
        coded = np.isin(values, CODES)
        for code, count in zip(*np.unique(values[coded], return_counts=True), strict=True):
            if count >= FEWEST_CODES and _is_far(code, values[~coded]):
                found.setdefault(int(code), []).append(f"{names[column]!r} ({count:,} times)")
    if found:
        said = ", ".join(f"{code} in {listed(columns)}" for code, columns in found.items())
        fix = f"give {in_python({'na_values': list(map(str, found))})}" if is_text else "write it as NaN"
        yield f"{where} has {said}, far from all other values there; if that stands for a missing entry, {fix}."


def _is_far(code: float, rest: np.ndarray) -> bool:
    """Whether a code is far outside the other values of its column, compared with their spread."""
    if len(rest) < FEWEST_ROWS or rest.min() == rest.max():
        return False
    low, high = float(rest.min()), float(rest.max())
    gap, middle = max(low - code, code - high), float(np.subtract(*np.quantile(rest, [0.75, 0.25])))
    # Where nothing else is negative, a negative number need not be as far away.
    return gap > max(3 * middle, (high - low) / 2) or (code < 0 <= low and gap > middle)
