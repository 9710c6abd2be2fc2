"""Columns of numbers in few bits: each column has its own unit, and carries a bound of its error."""

from __future__ import annotations

import numpy as np

from eigenmesh.errors import DataError

# Bits of a number that is sent as it is, and the numbers of bits that may be sent instead.
ALL_BITS = 64
FEWER_BITS = tuple(range(8, 57, 8))
# A row begins with the unit and the bound, unless its numbers have all their bits.
HEADER_BYTES = 16
# Covers the rounding of the error itself.
SLACK = 1 + 2.0**-30
# Units below this would lose their own digits.
LEAST_UNIT = float(np.finfo(np.float64).tiny)


def packed_bytes(n_rows: int, n_columns: int, bits: int) -> int:
    """Bytes of a packed (n_rows, n_columns) array."""
    return n_columns * (n_rows * bits // 8 + (0 if bits == ALL_BITS else HEADER_BYTES))


def pack(columns: np.ndarray, errors: np.ndarray, bits: int) -> np.ndarray:
    """Columns as bytes: (n, d, b) with bounds of their errors, (n, b) -> (n, bytes) uint8.

    A column is rounded to multiples of its own unit, so that its largest number has all the bits. What rounding takes
    away is measured, and its norm is added to the bound of the column's error.
    """
    rows = np.ascontiguousarray(np.swapaxes(columns, -1, -2))
    n, b, d = rows.shape
    if bits == ALL_BITS:
        return rows.view(np.uint8).reshape(n, -1)
    largest = np.abs(rows).max(axis=-1, initial=0.0)
    units = np.maximum(largest / (2.0 ** (bits - 1) - 1), LEAST_UNIT)[..., np.newaxis]
    steps = rows / units
    whole = np.rint(steps)
    # In units, because the squares of tiny numbers would underflow.
    left = np.abs(steps - whole) + 2.0**-52 * np.abs(steps)
    lost = units[..., 0] * np.sqrt(np.sum(left * left, axis=-1)) * SLACK
    header = np.stack([units[..., 0], (errors + lost) * SLACK], axis=-1)
    with np.errstate(invalid="ignore"):
        low = whole.astype("<i8").view(np.uint8).reshape(n, b, d, 8)[..., : bits // 8]
    return np.concatenate([header.astype("<f8").view(np.uint8), low.reshape(n, b, -1)], axis=-1).reshape(n, -1)


def unpack(packed: np.ndarray, n_rows: int, n_columns: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns (n, n_rows, n_columns) and bounds of their errors (n, n_columns) from bytes (n, bytes).

    Raises DataError if a number is not finite.
    """
    n = len(packed)
    rows = np.ascontiguousarray(packed).reshape(n, n_columns, -1)
    if bits == ALL_BITS:
        values, errors = rows.view("<f8"), np.zeros((n, n_columns))
    else:
        units, errors = np.moveaxis(np.ascontiguousarray(rows[..., :HEADER_BYTES]).view("<f8"), -1, 0)
        words = np.zeros((n, n_columns, n_rows, 8), np.uint8)
        words[..., 8 - bits // 8 :] = rows[..., HEADER_BYTES:].reshape(n, n_columns, n_rows, bits // 8)
        whole = words.view("<i8")[..., 0] >> np.int64(64 - bits)
        values = whole * units[..., np.newaxis]
    if not (np.isfinite(values).all() and np.isfinite(errors).all()):
        raise DataError("a product with the covariance is not finite: the samples of a node are not, or are too large.")
    return np.swapaxes(values, -1, -2), np.array(errors)
