"""Rows of Arrow tables, in which Ray and Spark hand blocks to Python: columns of numbers, or one column of vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from eigenmesh import data
from eigenmesh.errors import DataError, InputError, import_extra
from eigenmesh.words import listed

# Fields of a vector of Spark's machine learning library.
VECTOR_FIELDS = ["type", "size", "indices", "values"]


@dataclass(frozen=True)
class RowColumns:
    """The columns of a table whose numbers are rows of samples.

    Parameters
    ----------
    names : tuple of str
        Columns of numbers, each a feature; or one column whose entries are rows.
    vector : bool
        Whether it is one column of lists, tensors or vectors.
    whole : str
        What the whole data are called in errors.
    weight : str or None
        The column of weights of the rows, which is no feature.
    """

    names: tuple[str, ...]
    vector: bool
    whole: str
    weight: str | None = None

    @classmethod
    def of(cls, schema: Any, whole: str, weight: Any = None) -> RowColumns:
        """The columns of a schema; raises DataError, before anything is read, unless all are numbers."""
        names = tuple(map(str, schema.names))
        if weight is not None:
            require_column(weight, names, whole)
            schema = schema.remove(schema.get_field_index(weight))
            names = tuple(map(str, schema.names))
        vectors = [str(field.name) for field in schema if is_vector(field.type)]
        if vectors and len(names) > 1:
            raise DataError(
                f"{whole} has a column of vectors, {vectors[0]!r}, besides {len(names) - 1} others; select only it."
            )
        data.require_distinct(names, whole)
        if not vectors:
            cls(names, False, whole).rows(schema.empty_table(), whole)
        return cls(names, bool(vectors), whole, weight)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return None if self.vector else self.names

    def rows(self, table: Any, where: str) -> Any:
        """The rows of a table, an array (n, d) or, from sparse vectors, a csr_array; errors name it as ``where``."""
        if self.vector:
            return vectors_of(table.column(self.names[0]), where)
        features = table if self.weight is None else table.drop_columns([self.weight])
        source = data.aligned(data.as_source(features, where), len(self.names), self.names, where, self.whole)
        return source.read(slice(0, table.num_rows))

    def weights(self, table: Any) -> np.ndarray | None:
        """The weights of these rows, NaN where one is missing: (n,); None without a column of weights."""
        return None if self.weight is None else table.column(self.weight).to_numpy()


def require_column(name: Any, names: tuple[str, ...], whole: str) -> None:
    """Raise unless weights are the name of one of the columns."""
    if not isinstance(name, str) or name not in names:
        raise InputError(f"sample_weight = {name!r} must be the name of a column of {whole}: {listed(names)}.")


def is_vector(kind: Any) -> bool:
    """Whether entries of a type of Arrow are rows: lists, tensors of one axis, or vectors of Spark."""
    pa = import_extra("pyarrow", "parquet", "Arrow tables")
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return len(getattr(kind, "shape", ())) == 1
    if types.is_struct(kind):
        return [kind.field(at).name for at in range(kind.num_fields)] == VECTOR_FIELDS
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def vectors_of(column: Any, where: str) -> Any:
    """Rows of a column of lists, tensors or vectors: (n, d), a csr_array if some are sparse."""
    pa = import_extra("pyarrow", "parquet", "Arrow tables")
    if column.null_count:
        raise DataError(f"{where} has {column.null_count} rows without a vector; drop or fill them.")
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    if isinstance(column.type, pa.BaseExtensionType):
        return whole.to_numpy(zero_copy_only=False)
    if pa.types.is_struct(column.type):
        kinds, sizes, indices, values = whole.flatten()
        return _of_vectors(kinds, sizes, indices, values, where)
    counts = np.asarray(whole.value_lengths())
    _require_equal(counts, where)
    return np.asarray(whole.flatten().to_numpy(zero_copy_only=False)).reshape(len(counts), -1)


def _require_equal(counts: np.ndarray, where: str) -> None:
    if len(counts) and (counts != counts[0]).any():
        row = int(np.argmax(counts != counts[0]))
        raise DataError(f"{where}: row {row} has {counts[row]} numbers, and the first has {counts[0]}.")


def _of_vectors(kinds: Any, sizes: Any, indices: Any, values: Any, where: str) -> Any:
    """Rows of Spark's vectors, sparse (type 0) or dense (type 1), from the fields of their records."""
    is_sparse, numbers = np.asarray(kinds) == 0, np.asarray(values.flatten())
    if not is_sparse.any():
        counts = np.asarray(values.value_lengths())
        _require_equal(counts, where)
        return numbers.reshape(len(counts), -1)
    d = int(np.asarray(sizes.drop_null())[0])
    widths = np.where(is_sparse, np.asarray(sizes.fill_null(0)), np.asarray(values.value_lengths()))
    _require_equal(widths, where)
    counts = np.asarray(values.value_lengths()).astype(np.int64)
    stored, among_sparse = np.empty(len(numbers), dtype=np.int32), np.repeat(is_sparse, counts)
    stored[among_sparse] = np.asarray(indices.flatten())
    stored[~among_sparse] = np.tile(np.arange(d, dtype=np.int32), int(np.count_nonzero(~is_sparse)))
    return scipy.sparse.csr_array((numbers, stored, np.concatenate([[0], np.cumsum(counts)])), shape=(len(counts), d))
