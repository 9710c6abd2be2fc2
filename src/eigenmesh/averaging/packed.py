"""Columns of numbers in few bits: each column has its own unit, and carries a bound of its error."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eigenmesh.errors import DataError

# Bits of a number that is sent as it is, and the numbers of bits that may be sent instead.
ALL_BITS = 64
FEWER_BITS = tuple(range(6, 53))
# So many numbers end at the end of a byte, whatever their bits.
GROUP = 8
# A row begins with the unit and the bound, unless its numbers have all their bits.
HEADER_BYTES = 16
# Covers the rounding of the error itself.
SLACK = 1 + 2.0**-30
# Units below this would lose their own digits.
LEAST_UNIT = float(np.finfo(np.float64).tiny)


def packed_bytes(n_rows: int, n_columns: int, bits: int) -> int:
    """Bytes of a packed (n_rows, n_columns) array."""
    if bits == ALL_BITS:
        return n_columns * n_rows * bits // 8
    return n_columns * (-(-n_rows // GROUP) * bits + HEADER_BYTES)


def pack(columns: np.ndarray, errors: np.ndarray, bits: int) -> np.ndarray:
    """Columns as bytes: (n, d, b) with bounds of their errors, (n, b) -> (n, bytes) uint8.

    A column is rounded to multiples of its own unit, so that its largest number has all the bits. What rounding takes
    away is measured, and its norm is added to the bound of the column's error.
    """
    rows = np.ascontiguousarray(np.swapaxes(columns, -1, -2))
    n = len(rows)
    if bits == ALL_BITS:
        return rows.view(np.uint8).reshape(n, -1)
    largest = np.abs(rows).max(axis=-1, initial=0.0)
    if not np.isfinite(largest).all():
        raise _not_finite()
    units = np.maximum(largest / (2.0 ** (bits - 1) - 1), LEAST_UNIT)[..., np.newaxis]
    steps = rows / units
    whole = np.rint(steps)
    # In units, because the squares of tiny numbers would underflow.
    left = np.abs(steps - whole) + 2.0**-52 * np.abs(steps)
    lost = units[..., 0] * np.sqrt(np.sum(left * left, axis=-1)) * SLACK
    header = np.stack([units[..., 0], (errors + lost) * SLACK], axis=-1)
    streams = _joined(whole, bits)
    return np.concatenate([header.astype("<f8").view(np.uint8), streams], axis=-1).reshape(n, -1)


def _joined(whole: np.ndarray, bits: int) -> np.ndarray:
    """Whole numbers (n, b, d) as streams of their lowest bits, one after the other: (n, b, bytes)."""
    n, b, d = whole.shape
    words = np.zeros((GROUP, n, b, -(-d // GROUP)), np.int64)
    for at in range(GROUP):
        own = whole[..., at::GROUP]
        words[at, ..., : own.shape[-1]] = own
    streams = np.zeros((n, b, words.shape[-1], bits), np.uint8)
    for at, byte, shift in _overlaps(bits):
        part = words[at] << np.int64(shift) if shift >= 0 else words[at] >> np.int64(-shift)
        # A byte may end within a number: the bits above are those of the next one.
        mask = min(8, shift + bits)
        streams[..., byte] |= (part & np.int64(2**mask - 1)).astype(np.uint8)
    return streams.reshape(n, b, -1)


def _parted(streams: np.ndarray, n_rows: int, bits: int) -> np.ndarray:
    """Whole numbers (n, b, d) from such streams, (n, b, bytes)."""
    n, b, _ = streams.shape
    groups = streams.reshape(n, b, -1, bits)
    whole = np.zeros((n, b, groups.shape[2], GROUP), np.uint64)
    for at, byte, shift in _overlaps(bits):
        part = groups[..., byte].astype(np.uint64)
        whole[..., at] |= part >> np.uint64(shift) if shift >= 0 else part << np.uint64(-shift)
    # Up and down again, which removes what is not theirs and repeats the sign.
    above = 64 - bits
    signed = (whole << np.uint64(above)).view(np.int64) >> np.int64(above)
    return np.asarray(signed.reshape(n, b, -1)[..., :n_rows])


def _overlaps(bits: int) -> Iterator[tuple[int, int, int]]:
    """Numbers of a group, bytes that they are in, and how many bits later than the byte they begin."""
    for at in range(GROUP):
        for byte in range(at * bits // 8, ((at + 1) * bits - 1) // 8 + 1):
            yield at, byte, at * bits - 8 * byte


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
        whole = _parted(rows[..., HEADER_BYTES:], n_rows, bits)
        values = whole * units[..., np.newaxis]
    if not (np.isfinite(values).all() and np.isfinite(errors).all()):
        raise _not_finite()
    return np.swapaxes(values, -1, -2), np.array(errors)


def _not_finite() -> DataError:
    return DataError("a product with the covariance is not finite: the samples of a node are not, or are too large.")
