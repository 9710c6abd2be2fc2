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
from typing import Any, NamedTuple, TypeAlias

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


class Rows:
    """Rows (n, d) of a site, dense or sparse, each of which may count as several equal ones.

    Parameters
    ----------
    rows : array or sparse matrix of shape (n, d)
        The rows.
    weights : array of shape (n,) or None
        How many equal rows each one stands for.
    first : int
        Number of the first row, for errors.

    Attributes
    ----------
    n_rows : int
        How many there are, also those of weight 0.
    count : float
        N, the number of rows, or the sum of their weights.
    """

    def __init__(self, rows: Any, weights: Any = None, first: int = 0) -> None:
        self.rows: Any = rows.tocsr() if hasattr(rows, "tocsr") else np.asarray(rows)
        shape, kind = self.rows.shape, self.rows.dtype
        if len(shape) != 2 or kind.kind not in "biuf":
            raise BadMessageError(f"rows must be numbers (n, d); they are {kind} of shape {shape}.")
        self.n_rows, self.d = shape
        self.is_sparse, self.count = hasattr(self.rows, "indptr"), float(self.n_rows)
        self.weights: np.ndarray | None = None
        self._numbers: Sequence[int] = range(first, first + self.n_rows)
        if weights is not None:
            self._weigh(np.asarray(weights).reshape(-1))

    def _weigh(self, weights: np.ndarray) -> None:
        """Take the weights, and leave out the rows of weight 0, whose entries may be anything."""
        if len(weights) != self.n_rows or weights.dtype.kind not in "biuf":
            raise BadMessageError(f"{len(weights):,} weights of type {weights.dtype} for {self.n_rows:,} rows.")
        weights = weights.astype(np.float64)
        if (wrong := ~((weights >= 0) & np.isfinite(weights))).any():
            at = int(np.argmax(wrong))
            raise BadMessageError(f"row {self._numbers[at]} has weight {weights[at]:g}; give 0 or a positive number.")
        if not (weights > 0).all():
            kept = np.flatnonzero(weights)
            self.rows, weights, self._numbers = self.rows[kept], weights[kept], (kept + self._numbers[0]).tolist()
        self.weights, self.count = weights, float(weights.sum())

    def not_finite(self, row: int, column: int, value: Any) -> NotFiniteError:
        return NotFiniteError(self._numbers[row], column, float(value))

    def centred(self, about: np.ndarray, fills: bool, n_bytes: int = CHUNK_BYTES) -> Iterator[Centred]:
        """All rows minus the centre, a few at a time, in the same memory.

        ``about``, (1 or 2, d), is the centre or a sum of two. With ``fills``, an entry that is not finite becomes 0.
        """
        out: np.ndarray | None = None
        step = max(FEWEST_ROWS, n_bytes // (8 * max(1, self.d)))
        for start in range(0, self.rows.shape[0], step):
            piece = self.rows[start : start + step]
            piece = piece.toarray() if self.is_sparse else piece
            # The first piece is the largest.
            out = np.empty(piece.shape) if out is None else out
            ready = np.subtract(piece, about[0], out=out[: len(piece)], dtype=np.float64)
            for rest in about[1:]:
                ready -= rest
            absent = None
            # A sum is finite only if all entries are, so only other pieces are searched.
            if not np.isfinite(ready.sum()):
                absent = ~np.isfinite(ready)
                if absent.any() and not fills:
                    row, column = np.argwhere(absent)[0].tolist()
                    raise self.not_finite(start + row, column, piece[row, column])
                ready[absent] = 0.0
            weights = None if self.weights is None else self.weights[start : start + step]
            if weights is not None:
                ready *= np.sqrt(weights)[:, np.newaxis]
            yield Centred(ready, weights, absent)

    def stored(self, about: np.ndarray, fills: bool) -> tuple[Any, np.ndarray]:
        """Sparse rows in float64, and which stored entries were missing: with ``fills`` these become the centre."""
        rows = self.rows.astype(np.float64, copy=False)
        absent = ~np.isfinite(rows.data)
        if absent.any():
            if not fills:
                at = int(np.argmax(absent))
                row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
                raise self.not_finite(row, int(rows.indices[at]), rows.data[at])
            rows = rows.copy()
            rows.data[absent] = about.sum(axis=0)[rows.indices[absent]]
        return rows, absent

    def of_stored(self) -> np.ndarray:
        """The weight of each stored entry of sparse rows."""
        weights = np.ones(self.rows.shape[0]) if self.weights is None else self.weights
        return np.repeat(weights, np.diff(self.rows.indptr))


class Centred(NamedTuple):
    """Some rows (n, d) minus the centre, times the roots of their weights (n,) if they have any.

    ``absent`` says which entries were missing; it is None if all are there.
    """

    ready: np.ndarray
    weights: np.ndarray | None
    absent: np.ndarray | None

    def sums(self) -> np.ndarray:
        """Sums over the rows: (d,)."""
        return np.asarray(self.ready.sum(axis=0) if self.weights is None else np.sqrt(self.weights) @ self.ready)

    def n_absent(self) -> np.ndarray | float:
        """How many entries of each column are missing: (d,)."""
        if self.absent is None:
            return 0.0
        return np.asarray(self.absent.sum(axis=0) if self.weights is None else self.weights @ self.absent)


# Verbs: functions of the rows, of the head of a message, and of its arrays, that return sums over the rows.


def sums(rows: Rows, head: Head, about: np.ndarray | None = None) -> Arrays:
    """Number, sums and sums of squares of each column, about 0 or a centre; with ``fills``, how many entries there are.

    The first array is (1 + 2 d,), or (1 + 3 d,) with ``fills``. The second, (3,), has what a choice of method needs:
    the stored entries of sparse rows, the bytes of all rows, and how many parts are sparse.
    """
    d, fills = rows.d, bool(head.get("fills"))
    centre = np.zeros((1, d)) if about is None else about
    exact, observed = np.zeros((2, d), dtype=np.longdouble), np.full(d, rows.count)
    if rows.is_sparse:
        (held, absent), weights = rows.stored(centre, fills), rows.of_stored()
        column = held.indices
        observed -= np.bincount(column[absent], weights[absent], minlength=d)
        values = held.data if about is None else held.data - centre.sum(axis=0)[column]
        # Entries that are not stored are zero: each deviates by minus the centre. Filled ones deviate by 0.
        zeros, shift = rows.count - np.bincount(column, weights, minlength=d), -centre.sum(axis=0)
        exact[0] = np.bincount(column, weights * values, minlength=d) + zeros * shift
        exact[1] = np.bincount(column, weights * values**2, minlength=d) + zeros * shift**2
    else:
        for piece in rows.centred(centre, fills):
            observed -= piece.n_absent()
            exact[0] += piece.sums()
            exact[1] += np.einsum("nd,nd->d", piece.ready, piece.ready)
    # Squares that overflow lead to a second look, which names the column; until then they must stay finite.
    squares = np.minimum(exact[1].astype(float), LARGEST_SQUARES) if about is None else exact[1].astype(float)
    total = [[rows.count], exact[0].astype(float), squares, *([observed] if fills else [])]
    held, sparse = rows.rows, rows.is_sparse
    n_bytes = held.data.nbytes + held.indices.nbytes + held.indptr.nbytes if sparse else held.nbytes
    return [np.concatenate(total), np.array([held.nnz if sparse else 0, n_bytes, sparse], dtype=float)]


def triangle(rows: Rows, head: Head, about: np.ndarray) -> Arrays:
    """Sums of deviations from a centre and of their products: number and sums, (1 + d,), and the upper triangle.

    The triangle of ``(Y - about)^T (Y - about)`` is packed by rows: (d (d + 1) / 2,).
    """
    d, fills = rows.d, bool(head.get("fills"))
    total, sum_of = np.zeros((d, d)), np.zeros(d)
    if rows.is_sparse and rows.rows.nnz <= MOST_STORED * rows.rows.shape[0] * d:
        centre, (held, _) = about.sum(axis=0), rows.stored(about, fills)
        weighed = held
        if rows.weights is not None:
            weighed = held.copy()
            weighed.data *= rows.of_stored()
        stored = np.asarray(weighed.sum(axis=0)).ravel()
        total += (held.T @ weighed).toarray()
        half = stored - rows.count / 2 * centre
        total -= np.outer(half, centre) + np.outer(centre, half)
        sum_of += stored - rows.count * centre
    else:
        for piece in rows.centred(about, fills, FORMING_BYTES):
            sum_of += piece.sums()
            total += piece.ready.T @ piece.ready
    packed = np.concatenate([total[row, row:] for row in range(d)]) if d else np.zeros(0)
    return [np.concatenate([[rows.count], sum_of]), packed]


def product(rows: Rows, head: Head, about: np.ndarray, block: np.ndarray) -> Arrays:
    """``(Y - about)^T (Y - about) B`` for the block B: (d, k) -> (d, k). Sparse rows stay sparse."""
    fills, total = bool(head.get("fills")), np.zeros(block.shape)
    if rows.is_sparse:
        centre, (held, _) = about.sum(axis=0), rows.stored(about, fills)
        scores = held @ block - centre @ block
        if rows.weights is not None:
            scores *= rows.weights[:, np.newaxis]
        return [held.T @ scores - np.outer(centre, scores.sum(axis=0))]
    for piece in rows.centred(about, fills):
        total += piece.ready.T @ (piece.ready @ block)
    return [total]


def beyond(rows: Rows, head: Head, about: np.ndarray, basis: np.ndarray, factor: np.ndarray) -> Arrays:
    """``|A (I - U U^T)|_F^2`` of ``A = (Y - about) factor`` for orthonormal U: (d, K), (d,) -> (1,)."""
    total = 0.0
    for piece in rows.centred(about, bool(head.get("fills"))):
        rest = piece.ready * factor
        # Twice, because the first difference may leave rounding along U.
        for _ in range(2):
            rest -= (rest @ basis) @ basis.T
        total += float(np.vdot(rest, rest))
    return [np.array([total])]


VERBS: dict[str, Callable[..., Arrays]] = {verb.__name__: verb for verb in (sums, triangle, product, beyond)}


def answer(
    message: bytes,
    rows: Any,
    site: str = "node 0",
    columns: Sequence[str] | None = None,
    first_row: int = 0,
    weights: Any = None,
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
    weights : array of shape (n,) or None
        How many equal rows each one stands for, 0 or more.
    """
    try:
        held = Rows(rows, weights, first_row)
        head, arrays = decode(message)
        verb = VERBS.get(head.get("verb", ""))
        if verb is None:
            raise BadMessageError(f"unknown verb {head.get('verb')!r}; there are: {', '.join(VERBS)}.")
        _require_alike(held.d, head, arrays)
        with np.errstate(over="ignore", invalid="ignore"):
            found = verb(held, head, *arrays)
        about = {"site": site, "parts": 1, "rows": held.n_rows, "n_features": held.d}
        # Who asks without a number of columns does not know their names, either.
        named = columns is not None and head.get("n_features") is None
        return encode({**about, "columns": list(columns or ())} if named else about, *found)
    except NotFiniteError as error:
        row, column, value = error.args
        place = {"row": row, "column": column, "value": "NaN" if np.isnan(value) else str(value)}
        return encode({"error": "NotFiniteError", "text": str(error), "site": site, **place})
    except Exception as error:
        return refusal(error, site)


def refusal(error: Exception, site: str) -> bytes:
    """The answer of a site that cannot give one."""
    return encode({"error": type(error).__name__, "text": str(error), "site": site})


def _require_alike(d: int, head: Head, arrays: Arrays) -> None:
    """Raise unless the rows and the arrays of a message have the same columns."""
    if head.get("n_features") not in (None, d):
        raise BadMessageError(f"{d} columns, and {head['n_features']} were asked for.")
    for at, array in enumerate(arrays):
        if d not in array.shape or not np.isfinite(array).all():
            raise BadMessageError(f"array {at} of the message has shape {array.shape} for {d} columns.")
