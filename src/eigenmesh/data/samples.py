"""The samples of the nodes in this process."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from eigenmesh.data.block import Block, all_aligned, require_distinct_ids, take_columns
from eigenmesh.data.source import HOST, Place, Source, as_source, by_rows, source_at
from eigenmesh.data.split import RandomSplit, Rows, Split, rows_by_value
from eigenmesh.data.table import expand, read_table, warn_of_same
from eigenmesh.data.table_options import column_label
from eigenmesh.errors import DataError, InputError

# Weights of rows: a row of weight w counts as w equal samples, so the sum of the weights replaces N.


# Smallest weight, relative to the largest at a node: a smaller one would be lost in rounding.
SMALLEST_WEIGHT = 1e-9
# Tolerances for counts that must be whole numbers without weights; the second is for inaccurate averages.
NEARLY_WHOLE, LOOSELY_WHOLE = 1e-9, 2e-8
# What the nodes have parts of, by the axis of a matrix.
SPLIT = ("samples", "columns")


def checked_weights(given: object, n_rows: int, where: str, fewest: int = 1) -> np.ndarray:
    """Weights as float64, (n_rows,): finite, not negative, and at least ``fewest`` of them positive."""
    weights = np.asarray(given)
    if weights.shape != (n_rows,) or weights.dtype.kind not in "biuf":
        found = f"{weights.dtype} of shape {weights.shape}"
        raise DataError(f"weights of {where} must be one number for each of {n_rows:,} rows; got {found}.")
    weights = weights.astype(np.float64)
    wrong = ~((weights >= 0) & np.isfinite(weights))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"weight {weights[row]:g} of {where}, row {row}, must be finite and not negative; correct it.")
    positive = weights[weights > 0]
    if len(positive) < fewest:
        raise DataError(f"all weights of {where} are zero; give one of its rows a weight, or leave it out.")
    if len(positive) and positive.min() < SMALLEST_WEIGHT * positive.max():
        share = f"{positive.min():g} is less than {SMALLEST_WEIGHT:g} of the largest, {positive.max():g}"
        raise DataError(f"a weight of {where}, {share}: it would be lost to rounding; set it to 0.")
    return weights


def whole_count(total: float) -> float:
    """A number of samples, rounded to an int if it is one up to rounding; unchanged for other sums of weights."""
    nearest = round(total)
    return nearest if abs(total - nearest) <= LOOSELY_WHOLE * total else total


def whole_counts(counts: np.ndarray, n_samples: float) -> np.ndarray:
    """The same for numbers of entries that are not missing, out of ``n_samples``: (d,)."""
    nearest = np.rint(counts)
    return np.where(np.abs(counts - nearest) <= NEARLY_WHOLE * n_samples, nearest, counts)


@dataclass(frozen=True, eq=False)
class Partition:
    """Samples of the nodes in this process, all M in a simulation, one at a peer: split by rows or by columns.

    Parameters
    ----------
    blocks : tuple of Block
        Y_i of the nodes in this process.
    n_nodes : int
        M, of the whole network.
    ids : tuple of int
        Numbers of the nodes in this process, in 0 .. M - 1.
    feature_names : tuple of str or None
        Names of the columns in this process.
    node_names : tuple of str or None
        Names of all M nodes.
    """

    blocks: tuple[Block, ...]
    n_nodes: int
    ids: tuple[int, ...]
    feature_names: tuple[str, ...] | None = None
    node_names: tuple[str, ...] | None = None
    # The axis of a matrix that is split over the nodes.
    axis: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not self.blocks:
            raise DataError("there are no nodes: give at least one matrix.")
        ids_of(self.blocks, self.ids)
        if len(set(self.ids)) != len(self.ids) or not all(0 <= node < self.n_nodes for node in self.ids):
            raise InputError(f"node ids must be distinct and in 0..{self.n_nodes - 1}; got {list(self.ids)}.")
        if self.node_names is not None and len(self.node_names) != self.n_nodes:
            raise InputError(f"{len(self.node_names)} node names for {self.n_nodes} nodes; give one per node.")
        for position, block in enumerate(self.blocks):
            if block.n_rows == 0:
                raise DataError(f"{self.node_label(position)} has no rows; every node needs at least one sample.")
        other = 1 - self.axis
        sizes = [block.shape[other] for block in self.blocks]
        if len(set(sizes)) > 1:
            common = max(sizes, key=sizes.count)
            odd = ", ".join([f"{self.node_label(i)} has {n:,}" for i, n in enumerate(sizes) if n != common][:5])
            rest = f"while {self.node_label(sizes.index(common))} has {common:,}; make them equal"
            rest = rest if other else f"the others {common:,}; all need the same"
            raise DataError(f"nodes have unequal numbers of {SPLIT[other]}: {odd}, {rest}.")

    @property
    def n_features(self) -> int:
        """Number of columns in this process."""
        raise NotImplementedError

    @property
    def is_sparse(self) -> bool:
        return self.blocks[0].is_sparse

    def node_label(self, position: int) -> str:
        """Name for messages of the node at this position in ``ids``: ``node 3 (hospital_c)``."""
        node = self.ids[position]
        return f"node {node}" if self.node_names is None else f"node {node} ({self.node_names[node]})"

    def column_label(self, column: int) -> str:
        return column_label(self.feature_names, column)

    def take(self, ids: Sequence[int]) -> Self:
        """Only the nodes with these global numbers, as at a peer."""
        return replace(self, blocks=tuple(self.blocks[position] for position in self._positions(ids)), ids=tuple(ids))

    def _positions(self, ids: Sequence[int]) -> list[int]:
        """Positions of the nodes with these global numbers among those in this process."""
        missing = [node for node in ids if node not in self.ids]
        if missing:
            raise InputError(f"nodes {missing} are not in this process; choose from {list(self.ids)}.")
        return [self.ids.index(node) for node in ids]

    @property
    def device(self) -> Any:
        """Device of the samples of the first node; None for NumPy."""
        return self.blocks[0].device

    def bytes_at(self, place: Place) -> int:
        """Upper bound of the bytes that ``moved`` takes; 0 if a GPU does not have the memory."""
        sources = {id(block.source): block.source for block in self.blocks}.values()
        n_bytes = sum(math.prod(source.shape) * np.dtype(source.dtype).itemsize for source in sources)
        return n_bytes if place.has_room(n_bytes) else 0

    def moved(self, place: Place) -> Self:
        """The same samples on a device; each source is moved once, and on a GPU the rows of a node are made contiguous.

        On the CPU, arrays from which scattered rows are gathered are stored row after row. Sources that cannot be moved
        completely stay where they are, and are moved in chunks when they are read; so do all of them if a GPU does not
        have the memory.
        """
        if not self.bytes_at(place):
            return self
        sources = {id(block.source): block.source for block in self.blocks}
        if place == HOST and any(isinstance(block.rows, np.ndarray) for block in self.blocks):
            sources = {key: by_rows(source) for key, source in sources.items()}
        there = {key: source_at(source, place) for key, source in sources.items()}
        if not place.is_gpu and all(id(source) == key for key, source in there.items()):
            return self
        blocks = (replace(block, source=there[id(block.source)]) for block in self.blocks)
        return replace(self, blocks=tuple(block.gathered() if place.is_gpu else block for block in blocks))

    def weighted(self, weights: Sequence[object | None]) -> Self:
        """The same rows with weights (N_i,) for each node in this process: a row of weight w counts as w equal samples.

        None for a node without weights. Rows of weight 0 are left out.
        """
        _require_rows(self.axis, weights)
        pairs = zip(self.blocks, weights, strict=True)
        blocks = [
            block if given is None else block.weighted(checked_weights(given, block.n_rows, self.node_label(position)))
            for position, (block, given) in enumerate(pairs)
        ]
        return replace(self, blocks=tuple(blocks))

    def weighted_rows(self, weights: object | None) -> Self:
        """The same for weights (N,) of all rows of the one source that the nodes share."""
        if weights is None:
            return self
        checked = checked_weights(weights, self.blocks[0].source.shape[0], "the data", fewest=0)
        return self.weighted([checked[block.rows] for block in self.blocks])

    def thinned(self, n_rows: int) -> Self:
        """About ``n_rows`` rows over the nodes in this process, evenly spread; at least one of each node."""
        share = min(1.0, n_rows / sum(block.n_rows for block in self.blocks))
        return replace(self, blocks=tuple(block.thinned(math.ceil(share * block.n_rows)) for block in self.blocks))

    @classmethod
    def of_parts(cls, source: Source, parts: Sequence[Rows]) -> Self:
        """Each node has one part of the rows or columns of one source.

        Parameters
        ----------
        source : Source
            Samples of all nodes.
        parts : sequence of slices or arrays of int
            The rows or columns of each node.
        """
        raise NotImplementedError

    @classmethod
    def from_array(
        cls,
        X: object,
        n_nodes: int,
        split: Split | None = None,
        labels: object | None = None,
        weights: object | None = None,
    ) -> Self:
        """Split the rows or columns of one matrix X (N, d) over the nodes; copies nothing that is not in memory.

        Parameters
        ----------
        X : matrix, data frame or Source
            All samples.
        n_nodes : int
            Number of nodes.
        split : Split or None
            How to split them, by default at random.
        labels : array or None
            Labels of what is split, for a split that needs them.
        weights : array of shape (N,) or None
            Numbers of samples that the rows stand for. Rows of weight 0 are left out.
        """
        _require_rows(cls.axis, [weights])
        source, known = as_source(X), None if labels is None else np.asarray(labels)
        counted: Any = slice(None)
        if weights is not None:
            counted = np.flatnonzero(checked_weights(weights, source.shape[0], "the data"))
        n_split = source.shape[cls.axis] if weights is None else len(counted)
        parts = (split or RandomSplit()).rows(n_split, n_nodes, None if known is None else known[counted])
        return cls.of_parts(source, parts if weights is None else [counted[part] for part in parts]).weighted_rows(
            weights
        )

    @classmethod
    def from_labels(cls, X: object, nodes: object) -> Self:
        """One node per distinct value of ``nodes``, in sorted order.

        Parameters
        ----------
        X : matrix, data frame or Source
            All samples.
        nodes : array of shape (N,) or (d,)
            The node of each row, or of each column if columns are split.
        """
        source, values = as_source(X), np.asarray(nodes)
        due = source.shape[cls.axis]
        if values.shape != (due,):
            raise DataError(f"nodes must have one entry for each of {due} {SPLIT[cls.axis]}; got {values.shape}.")
        names, parts = rows_by_value(values, "nodes")
        return replace(cls.of_parts(source, parts), node_names=tuple(map(str, names)))

    @classmethod
    def from_list(
        cls,
        matrices: Sequence[object],
        *,
        ids: Sequence[int] | None = None,
        n_nodes: int | None = None,
        node_names: Sequence[str] | None = None,
        sources_at: Sequence[object] | None = None,
        **more: Any,
    ) -> Self:
        """One node per matrix, [Y_1, .., Y_M]. A peer passes only its own matrix, its id and the number of nodes M.

        Rows of samples have their named columns put in the order of the first matrix that has names. Split columns are
        of the same samples in the same order.

        Parameters
        ----------
        matrices : sequence of matrices, data frames or Sources
            Those of the nodes in this process.
        ids : sequence of int or None
            Numbers of these nodes, by default 0 .. M - 1.
        n_nodes : int or None
            M, by default the number of matrices.
        node_names : sequence of str or None
            Names of all nodes.
        sources_at : sequence or None
            Names of the matrices in messages, by default their nodes.
        more : dict
            ``sample_ids`` of split columns: (N,) of each node, or None. Nodes compare them before the first product.
        """
        held = ids_of(matrices, ids)
        where = [f"node {node}" for node in held]
        sources = [as_source(X, f"X at {place}") for place, X in zip(where, matrices, strict=True)]
        if cls.axis == 0:
            sources = all_aligned(sources, sources_at or where)
        blocks = tuple(map(Block, sources))
        names = None if node_names is None else tuple(node_names)
        columns = next((block.feature_names for block in blocks if block.feature_names is not None), None)
        return cls(blocks, len(matrices) if n_nodes is None else n_nodes, held, columns, names, **more)

    @classmethod
    def from_files(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        n_nodes: int | None = None,
        split: Split | None = None,
        **options: Any,
    ) -> Self:
        """One file is split over n_nodes. Several, or a pattern such as ``site-*.csv``, are one node each.

        The nodes are named after their files. With split columns, the ids of ``id_column`` are compared.

        Parameters
        ----------
        paths : path or sequence of paths
            Files of samples.
        n_nodes : int or None
            Number of nodes, for one file.
        split : Split or None
            How to split one file, by default at random.
        options : dict
            Those of ``read_table``.
        """
        files = expand([paths] if isinstance(paths, str | os.PathLike) else paths)
        if not files:
            raise InputError("no files were given; give at least one path.")
        by_rows = cls.axis == 0
        if len(files) == 1:
            if n_nodes is None:
                raise InputError(f"{files[0]} is one file; give the number of nodes to split it over, n_nodes.")
            table = read_table(files[0], **options)
            # Labels belong to samples, so they cannot split columns.
            return cls.from_array(table.source, n_nodes, split, table.labels if by_rows else None, table.weights)
        if split is not None or n_nodes not in (None, len(files)):
            n = len(files)
            raise InputError(f"{n} files make {n} nodes; leave out n_nodes (got {n_nodes}) and split, or give 1 file.")
        warn_of_same(files)
        tables = [read_table(file, **options) for file in files]
        more: dict[str, Any] = {} if by_rows else {"sample_ids": tuple(table.ids for table in tables)}
        names, sources = [table.name for table in tables], [table.source for table in tables]
        parts = cls.from_list(sources, node_names=names, sources_at=files, **more)
        return parts.weighted([table.weights for table in tables])


def ids_of(matrices: Sequence[object], ids: Sequence[int] | None) -> tuple[int, ...]:
    """Numbers of the nodes that have these matrices: the given ones, one for each, or 0 .. M - 1."""
    held = tuple(range(len(matrices))) if ids is None else tuple(ids)
    if len(held) != len(matrices):
        raise InputError(f"{len(matrices)} matrices but {len(held)} node ids; give one id per matrix.")
    return held


@dataclass(frozen=True, eq=False)
class Shards(Partition):
    """Samples of the nodes in this process: Y_i (N_i, d), with the same columns at every node."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({block.is_sparse for block in self.blocks}) > 1:
            sparse = ", ".join([self.node_label(i) for i, block in enumerate(self.blocks) if block.is_sparse][:5])
            raise DataError(f"some nodes are sparse ({sparse}) and some dense; make all sparse or all dense.")
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            names = f"{len(self.feature_names)} feature names for {self.n_features} columns"
            raise DataError(f"{names}; give one per column.")

    @property
    def n_features(self) -> int:
        return self.blocks[0].n_features

    @classmethod
    def of_parts(cls, source: Source, parts: Sequence[Rows]) -> Self:
        blocks = tuple(Block(source, part) for part in parts)
        return cls(blocks, len(blocks), tuple(range(len(blocks))), source.feature_names)


@dataclass(frozen=True, eq=False)
class FeatureShards(Partition):
    """Columns of the nodes in this process: Y_j (N, d_j), of the same samples at every node.

    Parameters
    ----------
    columns : tuple of arrays of int
        Positions of the columns of each node among all columns in this process, in the order in which they were given;
        by default one node after another.
    sample_ids : tuple of arrays of shape (N,)
        Ids of the samples at each node, None for a node that has none.
    """

    columns: tuple[np.ndarray, ...] = ()
    sample_ids: tuple[np.ndarray | None, ...] = ()
    axis: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_samples < 2:
            raise DataError(f"n_samples = {self.n_samples}; a covariance needs at least 2 samples.")
        names = [block.feature_names for block in self.blocks]
        # Names of all columns, if all have names; of one source that is split, they are in its order.
        together = tuple(name for part in names for name in part or ()) if all(names) else None
        if not self.columns:
            ends = np.cumsum([block.n_features for block in self.blocks])
            columns = [np.arange(end - block.n_features, end) for end, block in zip(ends, self.blocks, strict=True)]
            object.__setattr__(self, "columns", tuple(columns))
            object.__setattr__(self, "feature_names", together)
        object.__setattr__(self, "sample_ids", tuple(self.sample_ids) or (None,) * len(self.blocks))
        for position, ids in enumerate(self.sample_ids):
            self._check_ids(position, ids)
        self._check_names()

    def _check_ids(self, position: int, ids: np.ndarray | None) -> None:
        """Raise if two samples have one id: nodes that have them in another order would not notice."""
        if ids is None:
            return
        if len(ids) != self.n_samples:
            raise DataError(f"{self.node_label(position)} has {len(ids):,} ids for {self.n_samples:,} samples.")
        # As they are compared between nodes.
        texts = [str(value).strip() for value in ids.tolist()]
        require_distinct_ids(texts, lambda row: f"the id of row {row} at {self.node_label(position)}")

    def _check_names(self) -> None:
        """Raise if a column of one node has the name of a column of another node in this process."""
        seen: dict[str, int] = {}
        for position, block in enumerate(self.blocks):
            for name in block.feature_names or ():
                first = seen.setdefault(name, position)
                if first != position:
                    nodes = f"{self.node_label(first)} and {self.node_label(position)}"
                    raise DataError(f"{nodes} both have a column {name!r}; rename it at one of them, or leave it out.")

    @property
    def n_features(self) -> int:
        return sum(block.n_features for block in self.blocks)

    @property
    def n_samples(self) -> int:
        """N, the same at every node."""
        return self.blocks[0].n_rows

    @property
    def order(self) -> np.ndarray:
        """Permutation (d,) that puts columns, one node after another, in the order in which they were given."""
        return np.argsort(np.concatenate(self.columns))

    def take(self, ids: Sequence[int]) -> Self:
        where = self._positions(ids)
        blocks, known = zip(*((self.blocks[at], self.sample_ids[at]) for at in where), strict=True)
        return replace(self, blocks=blocks, ids=tuple(ids), columns=(), sample_ids=known)

    @classmethod
    def of_parts(cls, source: Source, parts: Sequence[Rows]) -> Self:
        columns = tuple(np.arange(source.shape[1])[part] for part in parts)
        blocks = tuple(Block(take_columns(source, part.tolist())) for part in columns)
        return cls(blocks, len(blocks), tuple(range(len(blocks))), source.feature_names, columns=columns)


def _require_rows(axis: int, weights: Sequence[object | None]) -> None:
    """Raise for weights of samples where it is the columns that are split."""
    if axis == 1 and any(given is not None for given in weights):
        raise InputError('weights of samples are for partition="samples"; where columns are split, repeat the rows.')
