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
    n, d, b = columns.shape
    if bits == ALL_BITS:
        return np.ascontiguousarray(np.swapaxes(columns, -1, -2)).view(np.uint8).reshape(n, -1)
    packed = np.empty((n, b, packed_bytes(d, 1, bits)), np.uint8)
    # One after the other, because temporary arrays are as large as what is packed.
    for at in range(b):
        steps = columns[:, :, at]
        largest = np.maximum(steps.max(axis=-1), -steps.min(axis=-1))
        if not np.isfinite(largest).all():
            raise _not_finite()
        units = np.maximum(largest / (2.0 ** (bits - 1) - 1), LEAST_UNIT)
        steps = steps / units[:, np.newaxis]
        whole = np.rint(steps)
        # In units, because the squares of tiny numbers would underflow.
        left = np.abs(steps - whole) + 2.0**-52 * np.abs(steps)
        lost = units * np.sqrt(np.sum(left * left, axis=-1)) * SLACK
        header = np.stack([units, (errors[:, at] + lost) * SLACK], axis=-1).astype("<f8")
        packed[:, at, :HEADER_BYTES] = header.view(np.uint8)
        packed[:, at, HEADER_BYTES:] = _joined(whole, bits)
    return packed.reshape(n, -1)


def unpack(packed: np.ndarray, n_rows: int, n_columns: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns (n, n_rows, n_columns) and bounds of their errors (n, n_columns) from bytes (n, bytes).

    Raises DataError if a number is not finite.
    """
    n = len(packed)
    rows = np.ascontiguousarray(packed).reshape(n, n_columns, -1)
    values, errors = np.empty((n, n_columns, n_rows)), np.zeros((n, n_columns))
    for at in range(n_columns):
        if bits == ALL_BITS:
            values[:, at] = np.ascontiguousarray(rows[:, at]).view("<f8")
            continue
        header = np.ascontiguousarray(rows[:, at, :HEADER_BYTES]).view("<f8")
        errors[:, at] = header[:, 1]
        np.multiply(_parted(rows[:, at, HEADER_BYTES:], n_rows, bits), header[:, :1], out=values[:, at])
    if not all(np.isfinite(part).all() for part in (errors, values.max(axis=-1), values.min(axis=-1))):
        raise _not_finite()
    return np.swapaxes(values, -1, -2), errors


def _joined(whole: np.ndarray, bits: int) -> np.ndarray:
    """Whole numbers (n, d) as streams of their lowest bits, one after the other: (n, bytes)."""
    n, d = whole.shape
    words = np.zeros((n, -(-d // GROUP), GROUP), np.int64)
    words.reshape(n, -1)[:, :d] = whole
    streams = np.zeros((n, words.shape[1], bits), np.uint8)
    for at, byte, shift in _overlaps(bits):
        own = words[..., at]
        part = own << np.int64(shift) if shift >= 0 else own >> np.int64(-shift)
        # A number may end within a byte: the bits above are those of the next one.
        streams[..., byte] |= (part & np.int64(2 ** min(8, shift + bits) - 1)).astype(np.uint8)
    return streams.reshape(n, -1)


def _parted(streams: np.ndarray, n_rows: int, bits: int) -> np.ndarray:
    """Whole numbers (n, d) from such streams, (n, bytes)."""
    groups = streams.reshape(len(streams), -1, bits)
    whole = np.zeros((*groups.shape[:2], GROUP), np.uint64)
    for at, byte, shift in _overlaps(bits):
        part = groups[..., byte].astype(np.uint64)
        whole[..., at] |= part >> np.uint64(shift) if shift >= 0 else part << np.uint64(-shift)
    # Up and down again, which removes the bits of the next number, and repeats the sign.
    signed = (whole << np.uint64(64 - bits)).view(np.int64) >> np.int64(64 - bits)
    return np.asarray(signed.reshape(len(streams), -1)[:, :n_rows])


def _overlaps(bits: int) -> Iterator[tuple[int, int, int]]:
    """Numbers of a group, bytes that they are in, and how many bits later than the byte they begin."""
    for at in range(GROUP):
        for byte in range(at * bits // 8, ((at + 1) * bits - 1) // 8 + 1):
            yield at, byte, at * bits - 8 * byte


def _not_finite() -> DataError:
    return DataError("a product with the covariance is not finite: the samples of a node are not, or are too large.")
