"""Spark: data frames of numbers, or of one column of vectors or arrays; the Python worker of a partition answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse

from eigenmesh.coordinators import verbs
from eigenmesh.coordinators.arrow import RowColumns
from eigenmesh.coordinators.coordinator import Coordinator
from eigenmesh.errors import EigenmeshError, InputError, TransportError, import_extra

PURPOSE = "fitting data frames of Spark"
WHOLE = "the Spark data frame"
# Rows as bytes, in which they stay in Spark's memory: sparse ones have places and counts, and some have weights, too.
PIECES = "number int, type string, n int, d int, numbers binary, places binary, counts binary, weights binary"
# Bytes of one piece: Spark hands many to Python at a time.
PIECE_BYTES = 2**23
# Bytes of the answers that the driver takes: by default it refuses 1 GiB.
ANSWERED_BYTES = 2**29


class SparkFrame(Coordinator):
    """Partitions of a data frame of Spark, whose columns are all numbers, or which has one column of rows.

    Parameters
    ----------
    X : pyspark.sql.DataFrame
        The samples. For products, their bytes stay in Spark's memory, or on its disk, until the end of the fit.
    weights : str or None
        The column of weights of the rows.
    """

    name, request_s = "spark", 1.5

    def __init__(self, X: Any, weights: Any = None) -> None:
        if not hasattr(X, "mapInArrow"):
            raise InputError(
                f"Spark data must be a DataFrame; got {type(X).__name__}. Use to_spark() of pandas frames."
            )
        self._given, self._kept, self._answers = X, None, 1
        with _told():
            first = X.limit(1).toArrow()
        self._columns = RowColumns.of(first.schema, WHOLE, weights)
        self.feature_names = self._columns.feature_names
        if first.num_rows == 0:
            raise InputError(f"{WHOLE} has no rows.")
        self.n_features = int(self._columns.rows(first, "its first row").shape[1])

    def ask(self, message: bytes) -> bytes:
        frame = self._given if self._kept is None else self._kept
        columns = self._columns if self._kept is None else None
        with _told():
            found = frame.mapInArrow(_answered(message, columns), "part int, answer binary").collect()
        self._answers = len(found)
        # In the order of the partitions, so that the same partitions give the same bits.
        return verbs.add([bytes(row.answer) for row in sorted(found, key=lambda row: row.part)])

    @property
    def largest_answer(self) -> int:
        """The driver gets one from each partition."""
        return ANSWERED_BYTES // max(1, self._answers)

    def keep(self, n_bytes: int, asked: bool) -> None:
        """Keep the rows as bytes, which Spark hands to Python faster than its own rows, and on its disk if need be."""
        if self._kept is None:
            with _told():
                self._kept = self._given.mapInArrow(_packed(self._columns), PIECES).persist()

    def scores(self, project: Callable[[Any, str], Any], names: Sequence[str]) -> Any:
        """A data frame with a column for each component, computed when it is used."""
        schema = ", ".join(f"`{name}` double" for name in names)
        return self._given.mapInArrow(_projected(self._columns, project, list(names)), schema)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.unpersist()
            self._kept = None


coordinator = SparkFrame


@contextmanager
def _told() -> Iterator[None]:
    """Turn an error of Spark into one line, without the stacks of Java and Python."""
    try:
        yield
    except EigenmeshError:
        raise
    except AttributeError as error:
        # What is left of a session that was stopped has no attributes.
        raise TransportError("the Spark session is not running; start one, and load the data again.") from error
    except Exception as error:
        # Errors at workers are text when they arrive here; ours come first in it.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        ours = [line for line in lines if line.startswith("eigenmesh.errors.")]
        if ours:
            raise InputError(ours[0].partition(": ")[2]) from None
        causes = [line for line in lines if "Exception: " in line or "Error: " in line]
        text = (causes or lines or [type(error).__name__])[0]
        raise TransportError(f"Spark could not answer: {text[:300]}") from None


# What runs at the workers. Functions within functions, because Spark sends them with what they need.


def _partition() -> int:
    context = import_extra("pyspark", "spark", PURPOSE).TaskContext.get()
    return int(context.partitionId())


def _packed(columns: RowColumns) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function that turns batches of a partition into pieces of rows as bytes."""

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        pa, number = import_extra("pyarrow", "spark", PURPOSE), 0
        for whole, weights in _rows_of(batches, columns, f"node {_partition()}"):
            step = max(1, PIECE_BYTES * max(1, whole.shape[0]) // max(1, _n_bytes(whole)))
            for start in range(0, whole.shape[0], step):
                piece, own = whole[start : start + step], None if weights is None else weights[start : start + step]
                yield pa.RecordBatch.from_pylist([_as_bytes(piece, own, number)], schema=_schema(pa))
                number += 1

    return pack


def _answered(message: bytes, columns: RowColumns | None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function that answers a message for all rows of a partition, or for all pieces of them if they are bytes."""

    def answer(batches: Iterator[Any]) -> Iterator[Any]:
        pa, part, start = import_extra("pyarrow", "spark", PURPOSE), _partition(), 0
        answers: list[bytes] = []
        for rows, weights in _rows_of(batches, columns, f"node {part}"):
            own = verbs.answer(message, rows, f"node {part}", first_row=start, weights=weights)
            # Added at once, so that a worker holds two answers at most.
            answers, start = [verbs.add([*answers, own], as_one=True)], start + rows.shape[0]
        if answers:
            found = [pa.array([part], pa.int32()), pa.array(answers, pa.binary())]
            yield pa.RecordBatch.from_arrays(found, ["part", "answer"])

    return answer


def _rows_of(batches: Iterator[Any], columns: RowColumns | None, where: str) -> Iterator[tuple[Any, Any]]:
    """The rows of batches, or the pieces in them, each with its weights or None."""
    pa = import_extra("pyarrow", "spark", PURPOSE)
    for batch in batches:
        if columns is not None:
            table = pa.Table.from_batches([batch])
            yield columns.rows(table, where), columns.weights(table)
            continue
        for at in range(batch.num_rows):
            yield _of_bytes({name: batch.column(name)[at] for name in batch.schema.names})


def _projected(
    columns: RowColumns, project: Callable[[Any, str], Any], names: list[str]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function from batches of samples to batches of scores."""

    def projected(batches: Iterator[Any]) -> Iterator[Any]:
        pa, where = import_extra("pyarrow", "spark", PURPOSE), f"node {_partition()}"
        for batch in batches:
            found = project(columns.rows(pa.Table.from_batches([batch]), where), where).astype(float)
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in found.T], names)

    return projected


def _n_bytes(rows: Any) -> int:
    return int(rows.data.nbytes + rows.indices.nbytes if scipy.sparse.issparse(rows) else rows.nbytes)


def _schema(pa: Any) -> Any:
    kinds = {"int": pa.int32(), "string": pa.string(), "binary": pa.binary()}
    return pa.schema([(name, kinds[kind]) for name, kind in (column.split() for column in PIECES.split(", "))])


def _as_bytes(rows: Any, weights: np.ndarray | None, number: int) -> dict[str, Any]:
    values = rows.data if scipy.sparse.issparse(rows) else np.ascontiguousarray(rows)
    own = {"number": number, "type": values.dtype.str, "n": rows.shape[0], "d": rows.shape[1]}
    own |= {"numbers": values.tobytes(), "places": None, "counts": None}
    own["weights"] = None if weights is None else weights.astype("<f8").tobytes()
    if scipy.sparse.issparse(rows):
        own |= {"places": rows.indices.astype("<i4").tobytes(), "counts": rows.indptr.astype("<i8").tobytes()}
    return own


def _of_bytes(own: dict[str, Any]) -> tuple[Any, np.ndarray | None]:
    """The rows of a piece and their weights, without a copy."""
    shape = own["n"].as_py(), own["d"].as_py()
    values = np.frombuffer(own["numbers"].as_buffer(), own["type"].as_py())
    weights = np.frombuffer(own["weights"].as_buffer(), "<f8") if own["weights"].is_valid else None
    if not own["places"].is_valid:
        return values.reshape(shape), weights
    places, counts = (
        np.frombuffer(own[name].as_buffer(), kind) for name, kind in (("places", "<i4"), ("counts", "<i8"))
    )
    return scipy.sparse.csr_array((values, places, counts), shape=shape), weights
