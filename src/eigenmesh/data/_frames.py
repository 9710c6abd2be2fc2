"""Data frames of any library that narwhals supports: pandas, polars, pyarrow and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from eigenmesh._text import one_line
from eigenmesh.data._source import MatrixSource, require_exact
from eigenmesh.data._table_options import NOT_NUMERIC, column_label
from eigenmesh.errors import DataError, MissingExtraError

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
    """Columns of a data frame; ``where`` is its name in messages, ``fix`` what to do with columns of other types."""

    frame: Any
    where: str
    fix: str = NOT_NUMERIC

    @classmethod
    def of(cls, X: Any, where: str, fix: str = NOT_NUMERIC) -> FrameColumns:
        return cls(as_narwhals(X, where), where, fix)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.frame.columns)

    @property
    def n_columns(self) -> int:
        return len(self.frame.columns)

    def features(self, positions: Sequence[int]) -> MatrixSource:
        return MatrixSource(self.numbers(positions), tuple(self.names[column] for column in positions))

    def numbers(self, positions: Sequence[int]) -> np.ndarray:
        """(n, columns) in their common dtype, in float64 if they differ; null becomes NaN."""
        self._require_exact(positions)
        arrays = [_numbers(self.frame[:, int(column)]) for column in positions]
        self._refuse([column for column, array in zip(positions, arrays, strict=True) if array is None])
        found = [array for array in arrays if array is not None]
        dtypes = {array.dtype for array in found}
        dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(np.float64)
        if list(positions) == list(range(self.n_columns)):
            # Without a copy if the library stores them contiguously.
            matrix = np.asarray(self.frame.to_numpy())
            if matrix.dtype == dtype:
                return matrix
        return np.column_stack([array.astype(dtype, copy=False) for array in found])

    def require_numbers(self) -> None:
        """Raise for columns that are not numbers, such as dates and words; reads only columns of objects."""
        kinds = enumerate(self.frame.schema.values())
        self._refuse([at for at, kind in kinds if not _is_number(kind) and _numbers(self.frame[:, at]) is None])
        self._require_exact(range(self.n_columns))

    def _require_exact(self, columns: Sequence[int]) -> None:
        """Raise if a whole number is too large for float64."""
        kinds = list(self.frame.schema.values())
        for column in columns:
            if kinds[column].is_integer():
                whole = self.frame[:, int(column)]
                values = np.asarray(whole.fill_null(0).to_numpy() if whole.null_count() else whole.to_numpy())
                require_exact(values, partial(self.place, column=int(column)))

    def _refuse(self, columns: Sequence[int]) -> None:
        if columns:
            kinds = list(self.frame.schema.values())
            listed = ", ".join(f"{self.names[column]!r} ({kinds[column]})" for column in columns[:SHOWN])
            more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
            raise DataError(f"{self.where} has columns that are not numbers: {listed}{more}; {self.fix}.")

    def values(self, position: int) -> np.ndarray:
        return np.asarray(self.frame[:, int(position)].to_numpy())

    def place(self, row: int, column: int) -> str:
        return f"row {row} of {self.where}, {column_label(self.names, column)},"


def _numbers(series: Any) -> np.ndarray | None:
    """The values of a column as numbers, null as NaN; None if they are not numbers."""
    import narwhals

    kind = series.dtype
    if not (_is_number(kind) or kind == narwhals.Object):
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


def _is_number(kind: Any) -> bool:
    import narwhals

    return bool(kind.is_numeric() or kind == narwhals.Boolean)
