"""Dask arrays and data frames: every block answers where it lies, and answers are added in Dask's graph."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from eigenmesh import data
from eigenmesh.coordinators import verbs
from eigenmesh.coordinators.arrow import require_column
from eigenmesh.coordinators.coordinator import FAN_IN, Coordinator
from eigenmesh.errors import DataError, InputError, import_extra

WHOLE = "the dask data frame"
# Share of the workers' memory that the samples may take.
MEMORY_SHARE = 0.3
# Bytes of samples that are kept without a cluster, in this process.
KEPT_BYTES = 256 * 2**20


class DaskBlocks(Coordinator):
    """Blocks of rows of a dask array, its column chunks merged, or partitions of a dask data frame.

    Parameters
    ----------
    X : dask array of shape (n, d), or dask data frame
        The samples; nothing is read before the first request.
    weights : array of shape (n,), str or None
        Weights of the rows: a dask or NumPy array, or the name of a column of a data frame.
    """

    name, request_s = "dask", 0.08

    def __init__(self, X: Any, weights: Any = None) -> None:
        self._given = X
        if is_frame(X):
            names = tuple(str(name) for name in X.columns)
            data.require_distinct(names, WHOLE)
            if isinstance(weights, str):
                require_column(weights, names, WHOLE)
                names, weights = tuple(name for name in names if name != weights), _numbers_of(X[[weights]], (weights,))
                X = X[list(names)]
            self.feature_names, X = names, _numbers_of(X, names)
        is_array = isinstance(X, import_extra("dask.array", "dask", "fitting dask data").Array)
        if not is_array or X.ndim != 2:
            kind = f"{type(X).__module__}.{type(X).__name__}" + (f" of shape {X.shape}" if is_array else "")
            raise InputError(f"dask data must be a 2-D dask array or a dask data frame; got {kind}.")
        if np.isnan(X.shape[1]) or X.shape[1] == 0:
            raise DataError(f"the dask array has shape {X.shape}; the number of columns must be known and not 0.")
        self.array = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        self.n_parts, self.n_features = self.array.numblocks[0], int(X.shape[1])
        self.weights = None if weights is None else self._beside(weights)
        # Two fits must not share a key: Dask would reuse the result of the first.
        self._token, self._asked = uuid.uuid4().hex, 0

    def _beside(self, weights: Any) -> Any:
        """Weights of rows as an array (n, 1) with the blocks of the samples."""
        array, sizes = import_extra("dask.array", "dask", "fitting dask data"), self.array.chunks[0]
        weights = weights.to_dask_array() if hasattr(weights, "to_dask_array") else array.asarray(weights)
        weights = weights[:, np.newaxis] if weights.ndim == 1 else weights
        # Sizes that are not known are NaN.
        if weights.ndim == 2 and weights.shape[0] == self.array.shape[0]:
            weights = weights.rechunk((sizes, -1))
        if weights.ndim != 2 or weights.numblocks != (len(sizes), 1):
            wanted = f"one number for each row of {self.array.shape}, in blocks as these have"
            raise InputError(f"sample_weight of shape {weights.shape} must have {wanted}.")
        return weights

    def ask(self, message: bytes) -> bytes:
        return self._sum(message, self.array, self.weights)

    def ask_some(self, message: bytes) -> bytes:
        """The first block alone, if the sizes of the others are known and it has rows."""
        meta, sizes = self.array._meta, self.array.chunks[0]
        known = not (scipy.sparse.issparse(meta) or type(meta).__module__.startswith("sparse."))
        # NaN is a size that nobody knows.
        if known and not np.isnan(sizes).any() and sizes[0] > 0:
            return self._sum(message, self.array.blocks[:1], None if self.weights is None else self.weights.blocks[:1])
        return self.ask(message)

    def _sum(self, message: bytes, array: Any, weights: Any) -> bytes:
        """The sum of the answers of all blocks: one pass, a tree of sums, and one answer returned here."""
        dask = import_extra("dask", "dask", "fitting dask data")
        map_blocks = import_extra("dask.array", "dask", "fitting dask data").map_blocks
        verb, self._asked = verbs.decode(message)[0]["verb"], self._asked + 1
        shared = dask.delayed(message, name=self._key(f"{verb}-input"), traverse=False)
        made = {"chunks": ((1,) * array.numblocks[0], (1,)), "meta": np.empty((0, 0))}
        given = (array,) if weights is None else (array, weights)
        mapped = map_blocks(_answer, *given, message=shared, name=self._key(verb), **made)
        # Merges reading and computing into one task, so that no block stays in memory in between.
        level = list(mapped.to_delayed(optimize_graph=True).ravel())
        add, key, height = dask.delayed(verbs.add, pure=False), self._key(f"{verb}-sum"), 0
        while len(level) > 1:
            groups = [level[start : start + FAN_IN] for start in range(0, len(level), FAN_IN)]
            level = [add(group, dask_key_name=(key, height, number)) for number, group in enumerate(groups)]
            height += 1
        return bytes(level[0].compute())

    def _key(self, name: str) -> str:
        """A task key that is unique for the request and the fit; Dask's dashboard groups by its first words."""
        return f"eigenmesh-{name}-{self._asked}-{self._token}"

    def keep(self, n_bytes: int, asked: bool) -> None:
        """Keep the blocks in the memory of the workers; Dask computes them again if a worker is lost."""
        if asked or n_bytes <= self._memory[0]:
            self.array = self.array.persist()
            self.weights = self.weights if self.weights is None else self.weights.persist()

    @property
    def largest_answer(self) -> int:
        """Every running task has the matrix, its product and its answer."""
        share, n_threads = self._memory
        return share // (2 * n_threads + 4)

    @cached_property
    def _memory(self) -> tuple[int, int]:
        """Bytes that samples may take, and number of tasks that run at once.

        Those of the workers if there is a cluster, otherwise the limit for a fit in this process.
        """
        # There can be a client only if distributed was imported.
        distributed = sys.modules.get("distributed")
        try:
            client = None if distributed is None else distributed.default_client()
        except ValueError:
            client = None
        if client is None:
            return KEPT_BYTES, import_extra("dask.system", "dask", "fitting dask data").CPU_COUNT
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [worker["memory_limit"] or data.MEMORY_BYTES for worker in workers]
        return int(MEMORY_SHARE * sum(limits)), max(1, sum(worker["nthreads"] for worker in workers))

    def scores(self, project: Callable[[Any, str], Any], names: Sequence[str]) -> Any:
        """A dask array (n, K), float32 if the samples are."""
        array, kept = self.array, data.kept_dtype(self.array.dtype)
        made: dict[str, Any] = {"chunks": (array.chunks[0], (len(names),)), "meta": np.empty((0, 0), dtype=kept)}
        return array.map_blocks(_scores, project=project, kept=kept, token="eigenmesh-scores", **made)

    def collected(self) -> Any:
        return self._given.compute()


coordinator = DaskBlocks


def is_frame(X: Any) -> bool:
    """Whether X is a dask data frame."""
    # Importing dask.dataframe needs pandas, which users of arrays may not have.
    if not type(X).__module__.startswith(("dask.dataframe", "dask_expr")):
        return False
    return isinstance(X, import_extra("dask.dataframe", "dask", "fitting dask data frames").DataFrame)


def _answer(block: Any, weights: Any = None, *, message: bytes, block_id: tuple[int, int]) -> bytes:
    return verbs.answer(message, block, f"node {block_id[0]}", weights=weights)


def _scores(block: Any, project: Callable[[Any, str], Any], kept: np.dtype) -> np.ndarray:
    return np.asarray(project(block, "a dask block").astype(kept, copy=False))


def _numbers_of(frame: Any, names: tuple[str, ...]) -> Any:
    """The columns of a dask data frame as a dask array."""
    return frame.map_partitions(_frame_samples, names=names, meta=_frame_samples(frame._meta, names))


def _frame_samples(frame: Any, names: tuple[str, ...], partition_info: Any = None) -> np.ndarray:
    """The samples of a partition, with its columns in the order in which the whole data frame declares them."""
    where = WHOLE if partition_info is None else f"partition {partition_info['number']} of {WHOLE}"
    source = data.aligned(data.as_source(frame, where), len(names), names, where, WHOLE)
    return np.asarray(source.read(slice(0, len(frame))))
