"""What a site answers to a coordinator: sums over its rows, and the messages that carry them.

A coordinator sends a message to all sites, and each answers with sums over its own rows. Answers add up, in a tree or
one after the other. Sites keep nothing between messages. This module imports NumPy alone, because some federations
start a process for every message; sparse rows bring their own library.

A message is the length of its head (4 bytes, little-endian), the head in JSON, and arrays of little-endian float64 one
after the other, by rows. The page "A site that answers requests" of the documentation describes it with examples.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

# Version of messages.
FORMAT = 1
# The only type of arrays: float64, little-endian.
DTYPE = "<f8"
# Bytes of rows in float64 that are centred at a time for products, and for products of all pairs of columns.
CHUNK_BYTES, FORMING_BYTES = 2**21, 2**25
# Fewest rows at a time, where rows are long.
FEWEST_ROWS = 16
# With a larger share of stored entries, products of dense rows are faster than those of stored pairs.
MOST_STORED = 0.08
# Largest sum of squares that is sent.
LARGEST_SQUARES = 1e290

Head: TypeAlias = dict[str, Any]
Arrays: TypeAlias = list[np.ndarray]


class BadMessageError(ValueError):
    """Bytes that are not a message, or a message that cannot be answered."""


# Messages.


def encode(head: Head, *arrays: np.ndarray) -> bytes:
    """A message with this head and these arrays."""
    described = [{"dtype": DTYPE, "shape": list(np.shape(array))} for array in arrays]
    text = json.dumps({"format": FORMAT, **head, "arrays": described}).encode()
    # Spaces after the JSON, so that numbers begin at a multiple of eight bytes.
    text += b" " * (-(len(text) + 4) % 8)
    parts = [np.ascontiguousarray(array, dtype=DTYPE).tobytes() for array in arrays]
    return b"".join([struct.pack("<I", len(text)), text, *parts])


def decode(message: bytes) -> tuple[Head, Arrays]:
    """Head and arrays of a message, read-only; BadMessageError unless types and sizes are those that its head says."""
    if len(message) < 4:
        raise BadMessageError(f"a message has at least 4 bytes; got {len(message)}.")
    (length,) = struct.unpack_from("<I", message)
    start = 4 + length
    if start > len(message):
        raise BadMessageError(f"the head of a message should have {length} bytes; the message has {len(message)}.")
    try:
        head = json.loads(message[4:start])
    except ValueError as error:
        raise BadMessageError(f"the head of a message is not JSON: {error}.") from None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        version = head.get("format") if isinstance(head, dict) else None
        raise BadMessageError(f"the format of a message is {version!r}, and this is eigenmesh for format {FORMAT}.")
    arrays = []
    for described in head.get("arrays", ()):
        shape = _shape(described)
        size = 8 * int(np.prod(shape, dtype=object))
        if start + size > len(message):
            raise BadMessageError(f"a message of {len(message)} bytes ends within an array of shape {shape}.")
        arrays.append(np.frombuffer(message, DTYPE, size // 8, start).reshape(shape))
        start += size
    if start != len(message):
        raise BadMessageError(f"a message has {len(message) - start} bytes after its last array.")
    return head, arrays


def _shape(described: Any) -> tuple[int, ...]:
    dtype, shape = (described.get(key) for key in ("dtype", "shape")) if isinstance(described, dict) else (None, None)
    if dtype != DTYPE:
        raise BadMessageError(f"arrays of a message are of type {DTYPE!r}; got {dtype!r}.")
    if not isinstance(shape, list) or len(shape) > 2 or not all(type(size) is int and size >= 0 for size in shape):
        raise BadMessageError(f"the shape of an array must be at most two whole numbers; got {shape!r}.")
    return tuple(shape)


def add(answers: Sequence[bytes], as_one: bool = False) -> bytes:
    """The sum of answers in their order, itself an answer; the first of them that is an error, if there is one.

    With ``as_one`` they are of one part, which a site reads in pieces.
    """
    if not answers:
        raise BadMessageError("there are no answers to add.")
    decoded = []
    for message in answers:
        head, arrays = decode(message)
        if "error" in head:
            return message
        decoded.append((head, arrays))
    first, total = decoded[0]
    for head, arrays in decoded[1:]:
        for what, one, other in (
            ("columns", [first["n_features"]], [head["n_features"]]),
            ("columns", first.get("columns"), head.get("columns")),
            ("arrays", [array.shape for array in total], [array.shape for array in arrays]),
        ):
            if one != other:
                text = f"other {what} than {first['site']}: {_differing(one, other)}"
                return encode({"error": "BadMessageError", "text": text, "site": head["site"]})
    counts = {count: sum(head[count] for head, _ in decoded) for count in ("parts", "rows")}
    counts["parts"] = 1 if as_one else counts["parts"]
    each = zip(*(arrays for _, arrays in decoded), strict=True)
    # Sums may overflow, which the coordinator finds.
    with np.errstate(over="ignore", invalid="ignore"):
        return encode({**first, **counts}, *(reduce(np.add, parts) for parts in each))


def _differing(one: Any, other: Any) -> str:
    """The first entry that differs between two lists, in words."""
    if one is None or other is None or len(one) != len(other):
        return f"{len(other or ())} of them, not {len(one or ())}"
    at = next(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return f"{other[at]!r}, not {one[at]!r}"


# Rows, a few at a time.


class NotFiniteError(ValueError):
    """An entry that is NaN or infinite: its row, its column and its value."""


def _pieces(rows: Any, n_bytes: int, dense: bool = True) -> Iterator[tuple[int, Any]]:
    """Pairs (first row, rows) that cover all rows: arrays (n, d) or, unless ``dense``, sparse where they are."""
    step = max(FEWEST_ROWS, n_bytes // (8 * max(1, rows.shape[1])))
    for start in range(0, rows.shape[0], step):
        piece = rows[start : start + step]
        yield start, piece.toarray() if dense and _is_sparse(rows) else piece


def _is_sparse(rows: Any) -> bool:
    return hasattr(rows, "indptr")


def _centred(rows: Any, about: np.ndarray, fills: bool, n_bytes: int = CHUNK_BYTES) -> Iterator[np.ndarray]:
    """Rows minus the centre, dense and in float64, all in the same memory: (n, d) each.

    ``about``, (1 or 2, d), is the centre or a sum of two. With ``fills``, an entry that is not finite becomes 0.
    """
    out: np.ndarray | None = None
    for start, piece in _pieces(rows, n_bytes):
        # The first piece is the largest.
        out = np.empty(piece.shape) if out is None else out
        ready = np.subtract(piece, about[0], out=out[: len(piece)], dtype=np.float64)
        for rest in about[1:]:
            ready -= rest
        # A sum is finite only if all entries are, so only other pieces are searched.
        if not np.isfinite(ready.sum()):
            absent = ~np.isfinite(ready)
            if absent.any() and not fills:
                row, column = np.argwhere(absent)[0].tolist()
                raise NotFiniteError(start + row, column, float(piece[row, column]))
            ready[absent] = 0.0
        yield ready


def _stored(rows: Any, about: np.ndarray, fills: bool) -> Any:
    """Sparse rows in float64; with ``fills``, stored entries that are not finite become the centre."""
    rows = rows.astype(np.float64, copy=False)
    absent = ~np.isfinite(rows.data)
    if absent.any():
        if not fills:
            at = int(np.argmax(absent))
            row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
            raise NotFiniteError(row, int(rows.indices[at]), float(rows.data[at]))
        rows = rows.copy()
        rows.data[absent] = about.sum(axis=0)[rows.indices[absent]]
    return rows


# Verbs: functions of rows (n, d), of the head of a message, and of its arrays, that return sums over the rows.


def sums(rows: Any, head: Head, about: np.ndarray | None = None) -> Arrays:
    """Number, sums and sums of squares of each column, about 0 or a centre; with ``fills``, how many entries there are.

    The first array is (1 + 2 d,), or (1 + 3 d,) with ``fills``. The second, (3,), has what a choice of method needs:
    the stored entries of sparse rows, the bytes of all rows, and how many parts are sparse.
    """
    n, d = rows.shape
    fills, centre = bool(head.get("fills")), np.zeros((1, d)) if about is None else about
    exact, observed = np.zeros((2, d), dtype=np.longdouble), np.full(d, float(n))
    if _is_sparse(rows):
        held = rows.astype(np.float64, copy=False)
        absent, column = ~np.isfinite(held.data), held.indices
        if absent.any():
            held = _stored(rows, centre, fills)
            observed -= np.bincount(column[absent], minlength=d)
        values = held.data if about is None else held.data - centre.sum(axis=0)[column]
        # Entries that are not stored are zero: each deviates by minus the centre. Filled ones deviate by 0.
        zeros, shift = n - np.bincount(column, minlength=d), -centre.sum(axis=0)
        exact[0] = np.bincount(column, weights=values, minlength=d) + zeros * shift
        exact[1] = np.bincount(column, weights=values**2, minlength=d) + zeros * shift**2
    else:
        for ready, absent in _observed(rows, centre, fills):
            observed -= absent
            exact[0] += ready.sum(axis=0)
            exact[1] += np.einsum("nd,nd->d", ready, ready)
    # Squares that overflow lead to a second look, which names the column; until then they must stay finite.
    squares = np.minimum(exact[1].astype(float), LARGEST_SQUARES) if about is None else exact[1].astype(float)
    total = [[float(n)], exact[0].astype(float), squares, *([observed] if fills else [])]
    sparse = _is_sparse(rows)
    n_bytes = rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes if sparse else rows.nbytes
    return [np.concatenate(total), np.array([rows.nnz if sparse else 0, n_bytes, sparse], dtype=float)]


def _observed(rows: Any, about: np.ndarray, fills: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Centred rows, and how many entries of each column are missing from them."""
    if not fills:
        for ready in _centred(rows, about, fills):
            yield ready, np.zeros(rows.shape[1])
        return
    start = 0
    for ready in _centred(rows, about, fills):
        own = np.asarray(rows[start : start + len(ready)], dtype=np.float64)
        yield ready, np.count_nonzero(~np.isfinite(own), axis=0)
        start += len(ready)


def triangle(rows: Any, head: Head, about: np.ndarray) -> Arrays:
    """Sums of deviations from a centre and of their products: number and sums, (1 + d,), and the upper triangle.

    The triangle of ``(Y - about)^T (Y - about)`` is packed by rows: (d (d + 1) / 2,).
    """
    n, d = rows.shape
    fills, total, sum_of = bool(head.get("fills")), np.zeros((d, d)), np.zeros(d)
    if _is_sparse(rows) and rows.nnz <= MOST_STORED * n * d:
        centre = about.sum(axis=0)
        held = _stored(rows, about, fills)
        stored = np.asarray(held.sum(axis=0)).ravel()
        total += (held.T @ held).toarray()
        half = stored - n / 2 * centre
        total -= np.outer(half, centre) + np.outer(centre, half)
        sum_of += stored - n * centre
    else:
        for ready in _centred(rows, about, fills, FORMING_BYTES):
            sum_of += ready.sum(axis=0)
            total += ready.T @ ready
    packed = np.concatenate([total[row, row:] for row in range(d)]) if d else np.zeros(0)
    return [np.concatenate([[float(n)], sum_of]), packed]


def product(rows: Any, head: Head, about: np.ndarray, block: np.ndarray) -> Arrays:
    """``(Y - about)^T (Y - about) B`` for the block B: (d, k) -> (d, k). Sparse rows stay sparse."""
    fills, total = bool(head.get("fills")), np.zeros(block.shape)
    if _is_sparse(rows):
        centre, held = about.sum(axis=0), _stored(rows, about, fills)
        scores = held @ block - centre @ block
        return [held.T @ scores - np.outer(centre, scores.sum(axis=0))]
    for ready in _centred(rows, about, fills):
        total += ready.T @ (ready @ block)
    return [total]


def beyond(rows: Any, head: Head, about: np.ndarray, basis: np.ndarray, factor: np.ndarray) -> Arrays:
    """``|A (I - U U^T)|_F^2`` of ``A = (Y - about) factor`` for orthonormal U: (d, K), (d,) -> (1,)."""
    total = 0.0
    for ready in _centred(rows, about, bool(head.get("fills"))):
        rest = ready * factor
        # Twice, because the first difference may leave rounding along U.
        for _ in range(2):
            rest -= (rest @ basis) @ basis.T
        total += float(np.vdot(rest, rest))
    return [np.array([total])]


VERBS: dict[str, Callable[..., Arrays]] = {verb.__name__: verb for verb in (sums, triangle, product, beyond)}


def answer(
    message: bytes, rows: Any, site: str = "node 0", columns: Sequence[str] | None = None, first_row: int = 0
) -> bytes:
    """The answer of a site to a message of the coordinator.

    What goes wrong is an answer, too: the coordinator raises it, with the name of the site.

    Parameters
    ----------
    message : bytes
        What the coordinator has sent.
    rows : array or sparse matrix of shape (n, d)
        The rows of the site, or a part of them.
    site : str
        What the site is called in errors.
    columns : sequence of str or None
        Names of the columns, if the coordinator does not know them.
    first_row : int
        Number of the first row, for errors, if these are a piece of the rows.
    """
    try:
        rows = rows.tocsr() if hasattr(rows, "tocsr") else np.asarray(rows)
        head, arrays = decode(message)
        verb = VERBS.get(head.get("verb", ""))
        if verb is None:
            raise BadMessageError(f"unknown verb {head.get('verb')!r}; there are: {', '.join(VERBS)}.")
        _require_alike(rows, head, arrays)
        with np.errstate(over="ignore", invalid="ignore"):
            found = verb(rows, head, *arrays)
        about = {"site": site, "parts": 1, "rows": rows.shape[0], "n_features": rows.shape[1]}
        # Who asks without a number of columns does not know their names, either.
        named = columns is not None and head.get("n_features") is None
        return encode({**about, "columns": list(columns or ())} if named else about, *found)
    except NotFiniteError as error:
        row, column, value = error.args
        place = {"row": first_row + row, "column": column, "value": "NaN" if np.isnan(value) else str(value)}
        return encode({"error": "NotFiniteError", "text": str(error), "site": site, **place})
    except Exception as error:
        return refusal(error, site)


def refusal(error: Exception, site: str) -> bytes:
    """The answer of a site that cannot give one."""
    return encode({"error": type(error).__name__, "text": str(error), "site": site})


def _require_alike(rows: Any, head: Head, arrays: Arrays) -> None:
    """Raise unless rows and arrays have the columns that the coordinator asks for."""
    if len(rows.shape) != 2 or rows.dtype.kind not in "biuf":
        raise BadMessageError(f"rows must be numbers (n, d); they are {rows.dtype} of shape {rows.shape}.")
    d = head.get("n_features")
    if d not in (None, rows.shape[1]):
        raise BadMessageError(f"{rows.shape[1]} columns, and {d} were asked for.")
    for at, array in enumerate(arrays):
        if rows.shape[1] not in array.shape or not np.isfinite(array).all():
            raise BadMessageError(f"array {at} of the message has shape {array.shape} for {rows.shape[1]} columns.")
