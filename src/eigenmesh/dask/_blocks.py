"""Dask data as blocks of samples: apply a function to every block, and sum the results."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse

from eigenmesh.data import Block, Shards, as_source
from eigenmesh.data._pooled_moments import NodePart
from eigenmesh.data._table_options import column_label, listed_columns, require_distinct
from eigenmesh.errors import DataError, InputError, import_extra
from eigenmesh.networks import Traffic

# Operands of one sum: more make fewer tasks, but a worker has to hold that many arrays at once.
FAN_IN = 8

# A function of a block, as Dask holds it, and of the block's number.
BlockPart: TypeAlias = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Layout:
    """Number of blocks, and names of the columns."""

    n_blocks: int
    feature_names: tuple[str, ...] | None = None

    def shards(self, block: Any, number: int) -> Shards | None:
        """A block as the samples of one of n_blocks nodes; None if it is empty."""
        source = as_source(scipy_or_dense(block))
        if source.shape[0] == 0:
            return None
        return Shards((Block(source),), self.n_blocks, (number,), self.feature_names)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of rows, one node each: a dask array of one column of blocks, either samples or operators made of them."""

    array: Any
    layout: Layout
    traffic: Traffic = field(default_factory=Traffic)
    # Two fits must not share a key: Dask would reuse the result of the first.
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, X: Any, traffic: Traffic) -> Blocks:
        """Blocks of a dask array, its column chunks merged, or of a dask data frame; reads nothing."""
        names = None
        if is_frame(X):
            names = tuple(str(name) for name in X.columns)
            require_distinct(names, "the dask data frame")
            X = X.map_partitions(_frame_samples, names=names, meta=_frame_samples(X._meta, names))
        is_array = isinstance(X, import_extra("dask.array", "dask", "fitting dask data").Array)
        if not is_array or X.ndim != 2:
            kind = f"{type(X).__module__}.{type(X).__name__}" + (f" of shape {X.shape}" if is_array else "")
            raise InputError(f"dask data must be a 2-D dask array or a dask data frame; got {kind}.")
        if np.isnan(X.shape[1]) or X.shape[1] == 0:
            raise DataError(f"the dask array has shape {X.shape}; the number of columns must be known and not 0.")
        array = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        return cls(array, Layout(array.numblocks[0], names), traffic)

    @property
    def n_features(self) -> int:
        return int(self.array.shape[1])

    @property
    def n_blocks(self) -> int:
        return self.layout.n_blocks

    @property
    def is_sparse(self) -> bool:
        """Whether the array declares sparse blocks."""
        return bool(scipy.sparse.issparse(self.array._meta)) or _is_pydata_sparse(self.array._meta)

    def column_label(self, column: int) -> str:
        return column_label(self.layout.feature_names, column)

    def n_bytes(self) -> int:
        """Size of the samples; costs a pass over them if chunk sizes are unknown."""
        if not self.is_sparse and not np.isnan(self.array.nbytes):
            return int(self.array.nbytes)
        return int(self.total_of_samples(_size_of_node)[0])

    def first(self) -> Blocks:
        return replace(self, array=self.array.blocks[:1], layout=replace(self.layout, n_blocks=1))

    def kept(self) -> Blocks:
        """The same blocks in the memory of the workers; Dask recomputes them if a worker is lost."""
        return replace(self, array=self.array.persist())

    def each(self, part: BlockPart, name: str) -> Blocks:
        """Blocks of the part's results; nothing is computed yet."""
        return replace(self, array=self._mapped(part, name))

    def total_of_samples(self, part: NodePart) -> np.ndarray:
        """Sum over all blocks of a summary of their samples."""
        name = getattr(getattr(part, "func", part), "__name__", "part").strip("_").replace("_", "-")
        summary = partial(_summary, layout=self.layout, part=part)
        total = self.total(summary, name, sent_bytes=8 * self.n_features)
        # If all blocks are empty, the sum is a scalar 0, because an empty block does not know the shape.
        return np.atleast_1d(total)

    def total(self, part: BlockPart, name: str, sent_bytes: int) -> np.ndarray:
        """Sum over all blocks of the part's results: one pass, a tree of sums, and one array returned here.

        It counts as a round of at most 2 M messages: the part's input (sent_bytes) goes to every block, and every
        block's array goes into the sum once, the last one to this process. Messages inside a worker cost nothing.
        """
        dask = import_extra("dask", "dask", "fitting dask data")
        mapped = self._mapped(part, name)
        # Merges reading and computing into one task, so that no block stays in memory in between.
        level = list(mapped.to_delayed(optimize_graph=True).ravel())
        add, key, height = dask.delayed(_sum, pure=False), self._key(f"{name}-sum"), 0
        while len(level) > 1:
            groups = [level[start : start + FAN_IN] for start in range(0, len(level), FAN_IN)]
            level = [add(group, dask_key_name=(key, height, number)) for number, group in enumerate(groups)]
            height += 1
        total = np.asarray(level[0].compute())
        self.traffic.rounds += 1
        self.traffic.messages += 2 * self.n_blocks
        self.traffic.matrices += int(total.ndim == 2)
        self.traffic.bytes += self.n_blocks * (sent_bytes + total.nbytes)
        return total

    def _mapped(self, part: BlockPart, name: str) -> Any:
        """The part applied to every block, in tasks whose names a dashboard can group."""
        delayed = import_extra("dask", "dask", "fitting dask data").delayed
        shared = delayed(part, name=self._key(f"{name}-input"), traverse=False)
        made = {"chunks": ((1,) * self.n_blocks, (1,)), "meta": np.empty((0, 0))}
        return self.array.map_blocks(_at_block, part=shared, name=self._key(name), **made)

    def _key(self, name: str) -> str:
        """A task key that is unique for the round and the fit; Dask's dashboard groups by its first words."""
        return f"eigenmesh-{name}-{self.traffic.rounds}-{self.token}"


def is_frame(X: Any) -> bool:
    # Importing dask.dataframe needs pandas, which users of arrays may not have.
    if not type(X).__module__.startswith(("dask.dataframe", "dask_expr")):
        return False
    return isinstance(X, import_extra("dask.dataframe", "dask", "fitting dask data frames").DataFrame)


def scipy_or_dense(block: Any) -> Any:
    """The block, converted to scipy if it is an array of the package ``sparse``."""
    return block.tocsr() if _is_pydata_sparse(block) else block


def _is_pydata_sparse(block: Any) -> bool:
    return type(block).__module__.startswith("sparse.")


def _summary(block: Any, number: int, layout: Layout, part: NodePart) -> np.ndarray:
    shards = layout.shards(block, number)
    return np.zeros(()) if shards is None else part(shards, 0)


def _at_block(block: Any, *, part: BlockPart, block_id: tuple[int, int]) -> Any:
    return part(block, block_id[0])


def _sum(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Sum in order, so that the same blocks give the same bits on any worker."""
    return np.asarray(reduce(np.add, arrays))


def _size_of_node(shards: Shards, position: int) -> np.ndarray:
    return np.asarray(float(shards.blocks[position].n_bytes))


def _frame_samples(frame: Any, names: tuple[str, ...], partition_info: Any = None) -> np.ndarray:
    """The samples of a partition, which must have the columns that the whole data frame declares, in their order."""
    found = tuple(str(name) for name in frame.columns)
    whole = "the dask data frame"
    where = whole if partition_info is None else f"partition {partition_info['number']} of {whole}"
    if sorted(found) == sorted(names) and found != names:
        at = next(place for place, name in enumerate(found) if name != names[place])
        wrong = f"has {column_label(found, at)} where the data frame has {names[at]!r}"
        raise DataError(f"{where} {wrong}; give all partitions the same order of columns.")
    if found != names:
        lacking, more = [
            [name for name in ours if name not in theirs] for ours, theirs in ((names, found), (found, names))
        ]
        words = [f"{verb} {listed_columns(some)}" for verb, some in (("lacks", lacking), ("also has", more)) if some]
        raise DataError(f"{where} {' and '.join(words)}; give all partitions the same columns.")
    return np.asarray(as_source(frame, where).read(slice(0, len(frame))))
