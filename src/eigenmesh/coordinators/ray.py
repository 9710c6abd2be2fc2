"""Ray: datasets and lists of object references; a task for every block answers, and tasks add the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from eigenmesh.coordinators import verbs
from eigenmesh.coordinators.arrow import RowColumns
from eigenmesh.coordinators.coordinator import FAN_IN, Coordinator
from eigenmesh.errors import EigenmeshError, InputError, TransportError, import_extra

PURPOSE = "fitting data of Ray"
WHOLE = "the Ray dataset"


class RayBlocks(Coordinator):
    """Blocks of a Ray dataset, or arrays, sparse matrices or Arrow tables behind object references.

    Parameters
    ----------
    X : ray.data.Dataset, or list of ray.ObjectRef
        The samples. A dataset is computed with the first request, and its rows stay in Ray's object store.
    weights : str, list or None
        Weights of the rows: the name of a column of the dataset, or as many references, or arrays, as X has.
    """

    name, request_s = "ray", 0.04

    def __init__(self, X: Any, weights: Any = None) -> None:
        self._given, self._columns, self._weights = X, None, weights
        if isinstance(X, list):
            self.n_parts = len(X)
            if weights is not None and (not isinstance(weights, list) or len(weights) != len(X)):
                raise InputError(f"sample_weight must be a list of {len(X)} references or arrays, as X is.")
            return
        if not hasattr(X, "to_arrow_refs"):
            raise InputError(f"Ray data must be a Dataset or a list of object references; got {type(X).__name__}.")
        pa, schema = import_extra("pyarrow", "ray", PURPOSE), X.schema()
        if schema is None:
            raise InputError(f"{WHOLE} has no rows.")
        types = zip(schema.names, schema.types, strict=True)
        self._columns = RowColumns.of(pa.schema([pa.field(name, kind) for name, kind in types]), WHOLE, weights)
        self.feature_names = self._columns.feature_names
        if self.feature_names is not None:
            self.n_features = len(self.feature_names)

    @cached_property
    def _parts(self) -> list[tuple[Any, Any]]:
        """References to the rows of each block, and to their weights or None."""
        if isinstance(self._given, list):
            return list(zip(self._given, self._weights or [None] * len(self._given), strict=True))
        blocks, rows, weights = self._given.to_arrow_refs(), self._task(_rows_of), self._task(_weights_of)
        return [
            (rows.remote(block, self._columns, f"node {at}"), self._weights and weights.remote(block, self._columns))
            for at, block in enumerate(blocks)
        ]

    def _task(self, function: Callable[..., Any]) -> Any:
        return import_extra("ray", "ray", PURPOSE).remote(function)

    def ask(self, message: bytes) -> bytes:
        ray = import_extra("ray", "ray", PURPOSE)
        if not ray.is_initialized():
            raise TransportError(
                "Ray is not running in this process; start it with ray.init(), and load the data again."
            )
        try:
            answer, add, shared = self._task(verbs.answer), self._task(_added), ray.put(message)
            level = [
                answer.remote(shared, rows, f"node {at}", weights=weights)
                for at, (rows, weights) in enumerate(self._parts)
            ]
            while len(level) > 1:
                level = [add.remote(*level[start : start + FAN_IN]) for start in range(0, len(level), FAN_IN)]
            return bytes(ray.get(level[0]))
        except ray.exceptions.RayTaskError as error:
            # An error of ours, which says everything, without the stack of the worker.
            if isinstance(error.cause, EigenmeshError):
                raise error.cause from None
            raise TransportError(f"Ray could not answer: {type(error.cause).__name__}: {error.cause}") from None
        except ray.exceptions.RayError as error:
            raise TransportError(f"Ray could not answer: {str(error).splitlines()[0]}") from error

    def scores(self, project: Callable[[Any, str], Any], names: Sequence[str]) -> Any:
        """A dataset with a column for each component, computed lazily; for references, references to scores (n, K)."""
        if isinstance(self._given, list):
            task = self._task(_projected)
            return [task.remote(rows, project, f"node {at}") for at, rows in enumerate(self._given)]
        columns: Any = self._columns

        def projected(table: Any) -> dict[str, np.ndarray]:
            found = project(_rows_of(table, columns, "a block"), "a block")
            return dict(zip(names, found.T, strict=True))

        return self._given.map_batches(projected, batch_format="pyarrow", batch_size=None)


coordinator = RayBlocks


def _added(*answers: bytes) -> bytes:
    return verbs.add(answers)


def _projected(rows: Any, project: Callable[[Any, str], Any], where: str) -> Any:
    return project(rows, where)


def _rows_of(table: Any, columns: RowColumns, where: str) -> Any:
    return columns.rows(table, where)


def _weights_of(table: Any, columns: RowColumns) -> Any:
    return columns.weights(table)
