"""Samples as they come in: one matrix, perhaps labels, perhaps names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import array_api_compat
import numpy as np
import scipy.sparse

from eigenmesh.arrays import to_numpy
from eigenmesh.errors import DataError

# np.ndarray (np.memmap too) or scipy.sparse.csr_array; scipy carries no types.
Samples: TypeAlias = Any


@dataclass(frozen=True, eq=False)
class Table:
    """Samples and what is known about them.

    Attributes
    ----------
    X : array or csr_array of shape (N, d)
        The samples.
    labels : array of shape (N,) or None
        What each sample is.
    feature_names : tuple of str or None
        Names of the d columns.
    """

    X: Samples
    labels: np.ndarray | None = None
    feature_names: tuple[str, ...] | None = None
    name: str = ""


def as_samples(X: object, what: str = "X") -> tuple[Samples, tuple[str, ...] | None]:
    """Samples as a 2-D NumPy array or a CSR array (copied only where they must be), and their feature names.

    Takes NumPy arrays, memory maps, anything sparse, data frames, nested lists and Array API arrays.
    """
    names = None
    if scipy.sparse.issparse(X):
        matrix = _as_csr(X, what)
    elif hasattr(X, "columns") and hasattr(X, "to_numpy"):
        names = tuple(str(column) for column in X.columns)
        matrix = _from_frame(X, what)
    elif isinstance(X, np.ma.MaskedArray):
        # np.asarray would drop the mask and pass hidden values off as data.
        matrix = np.ma.filled(X.astype(np.float64), np.nan)
    else:
        matrix = _as_array(X, what)
    _check(matrix, what)
    return matrix, names


def require_columns(table: Table, n_features: int, names: tuple[str, ...] | None, where: str, by: str) -> None:
    """Raise unless a table has as many columns as ``by`` has, in the same order if both have names.

    The first column that differs is named.
    """
    found = table.feature_names
    for column, (ours, theirs) in enumerate(zip(found or (), names or (), strict=False)):
        if ours != theirs:
            known = " (it is there, in another place)" if theirs in (found or ()) else ""
            raise DataError(
                f"column {column} of {where} is {ours!r}, but {by} has {theirs!r} there{known}; put the columns in "
                "that order."
            )
    if table.X.shape[1] != n_features:
        raise DataError(f"{where} has {table.X.shape[1]} columns, but {by} has {n_features}; make them equal.")


def _as_array(X: Any, what: str) -> np.ndarray:
    if not isinstance(X, np.ndarray) and array_api_compat.is_array_api_obj(X):
        return to_numpy(X)
    try:
        return np.asarray(X)
    except ValueError as error:
        raise DataError(f"{what} is not a matrix: its rows are of unequal length") from error


def _as_csr(X: Any, what: str) -> Samples:
    if X.ndim != 2:
        raise DataError(f"{what} must be 2-D (samples, features); got shape {X.shape}")
    matrix = scipy.sparse.csr_array(X)
    if not matrix.has_canonical_format:
        # Entries stored twice stand for their sum; a copy, for the caller's matrix is not ours to change.
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _from_frame(frame: Any, what: str) -> np.ndarray:
    values = np.asarray(frame.to_numpy())
    if values.dtype.kind != "O":
        return values
    try:
        # Nullable and mixed columns come out as objects; missing ones become NaN here.
        return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError) as error:
        dtypes = zip(frame.columns, frame.dtypes, strict=True)
        culprits = [f"{name!r} ({dtype})" for name, dtype in dtypes if getattr(dtype, "kind", "O") not in "biuf"]
        raise DataError(
            f"{what} has columns that are not numbers: {', '.join(culprits[:5])}; drop or encode them"
        ) from error


def _check(matrix: Samples, what: str) -> None:
    if matrix.ndim != 2:
        raise DataError(f"{what} must be 2-D (samples, features); got shape {matrix.shape}")
    if matrix.shape[1] == 0:
        raise DataError(f"{what} has no columns; got shape {matrix.shape}")
    if matrix.dtype.kind == "c":
        raise DataError(f"{what} is complex ({matrix.dtype}); PCA here is real: stack real and imaginary parts")
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"{what} is not numeric: dtype {matrix.dtype}; convert it with X.astype(float)")
