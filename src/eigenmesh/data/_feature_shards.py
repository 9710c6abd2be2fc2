"""The columns of the nodes in this process, if every node has different features of the same samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from eigenmesh.data._block import Block
from eigenmesh.data._columns import require_distinct_ids, take_columns
from eigenmesh.data._files import expand, read_table, warn_of_same
from eigenmesh.data._shards import Shards, ids_of
from eigenmesh.data._source import Source, as_source
from eigenmesh.data._splits import RandomSplit, Split, rows_by_value
from eigenmesh.errors import DataError, InputError


@dataclass(frozen=True, eq=False)
class FeatureShards(Shards):
    """Columns of the nodes in this process: all M in a simulation, one at a peer.

    blocks : Y_j (N, d_j) of the nodes in this process; columns : positions of the columns of each node among all
    columns in this process, in the order in which they were given; sample_ids : (N,) of each node, or None if it has
    none.
    """

    columns: tuple[np.ndarray, ...] = ()
    sample_ids: tuple[np.ndarray | None, ...] = ()

    def _check_alike(self) -> None:
        rows = [block.n_rows for block in self.blocks]
        if len(set(rows)) > 1:
            common = max(rows, key=rows.count)
            odd = ", ".join([f"{self.node_label(i)} has {n:,}" for i, n in enumerate(rows) if n != common][:5])
            raise DataError(f"nodes have unequal numbers of samples: {odd}, the others {common:,}; all need the same.")
        if rows[0] < 2:
            raise DataError(f"n_samples = {rows[0]}; a covariance needs at least 2 samples.")
        for position, ids in enumerate(self.sample_ids):
            if ids is not None and len(ids) != rows[0]:
                raise DataError(f"{self.node_label(position)} has {len(ids):,} ids for {rows[0]:,} samples.")
            if ids is not None:
                self._check_ids(position, ids)
        self._check_names()

    def _check_ids(self, position: int, ids: np.ndarray) -> None:
        """Raise if two samples have one id: nodes that have them in another order would not notice."""
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
        """Number of columns in this process."""
        return sum(block.n_features for block in self.blocks)

    def weighted(self, weights: Sequence[object | None]) -> Self:
        _refuse_weights(weights)
        return self

    @property
    def order(self) -> np.ndarray:
        """Permutation (d,) that puts columns, one node after another, in the order in which they were given."""
        return np.argsort(np.concatenate(self.columns))

    @property
    def n_samples(self) -> int:
        """N, the same at every node."""
        return self.blocks[0].n_rows

    def take(self, ids: Sequence[int]) -> Self:
        """Only the columns of the nodes with these global numbers, as at a peer."""
        where = self._positions(ids)
        blocks = tuple(self.blocks[position] for position in where)
        return replace(
            self,
            blocks=blocks,
            ids=tuple(ids),
            feature_names=_names_of(blocks),
            columns=_in_a_row(blocks),
            sample_ids=tuple(self.sample_ids[position] for position in where),
        )

    @classmethod
    def from_array(
        cls,
        X: object,
        n_nodes: int,
        split: Split | None = None,
        labels: object | None = None,
        weights: object | None = None,
    ) -> Self:
        """Split the columns of one matrix X (N, d) over the nodes, at random by default; ``labels`` (d,) of columns."""
        _refuse_weights([weights])
        source = as_source(X)
        columns = (split or RandomSplit()).rows(
            source.shape[1], n_nodes, None if labels is None else np.asarray(labels)
        )
        return cls._of_columns(source, [np.arange(source.shape[1])[part] for part in columns])

    @classmethod
    def from_labels(cls, X: object, nodes: object) -> Self:
        """One node per distinct value of ``nodes`` (d,), which has one entry per column; in sorted order."""
        source, values = as_source(X), np.asarray(nodes)
        if values.shape != (source.shape[1],):
            raise DataError(f"nodes must have one entry for each of {source.shape[1]} columns; got {values.shape}.")
        names, columns = rows_by_value(values, "nodes")
        return replace(cls._of_columns(source, columns), node_names=tuple(map(str, names)))

    @classmethod
    def from_list(
        cls,
        matrices: Sequence[object],
        *,
        ids: Sequence[int] | None = None,
        n_nodes: int | None = None,
        node_names: Sequence[str] | None = None,
        sources_at: Sequence[object] | None = None,
        sample_ids: Sequence[np.ndarray | None] | None = None,
    ) -> Self:
        """One node per matrix [Y_1, .., Y_M], of the same samples in the same order.

        A peer passes only its own matrix, its id and the number of nodes M. Where ``sample_ids`` are given, nodes
        compare them before the first product.
        """
        held = ids_of(matrices, ids)
        where = sources_at or [f"X at node {node}" for node in held]
        blocks = tuple(Block(as_source(X, str(place))) for place, X in zip(where, matrices, strict=True))
        names = None if node_names is None else tuple(node_names)
        known = [None] * len(blocks) if sample_ids is None else list(sample_ids)
        size = len(matrices) if n_nodes is None else n_nodes
        return cls(blocks, size, held, _names_of(blocks), names, columns=_in_a_row(blocks), sample_ids=tuple(known))

    @classmethod
    def from_files(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        n_nodes: int | None = None,
        split: Split | None = None,
        **options: Any,
    ) -> Self:
        """One file: its columns are split over n_nodes. Several: one node per file, with the ids of ``id_column``."""
        files = expand([paths] if isinstance(paths, str | os.PathLike) else paths)
        if len(files) == 1 and n_nodes is not None:
            table = read_table(files[0], **options)
            return cls.from_array(table.source, n_nodes, split, weights=table.weights)
        if len(files) < 2 or split is not None or n_nodes not in (None, len(files)):
            raise InputError(f"{len(files)} files are {len(files)} nodes; give one file and n_nodes, or several files.")
        warn_of_same(files)
        tables = [read_table(file, **options) for file in files]
        _refuse_weights([table.weights for table in tables])
        sources, names, known = zip(*((table.source, table.name, table.ids) for table in tables), strict=True)
        return cls.from_list(sources, node_names=names, sources_at=files, sample_ids=known)

    @classmethod
    def _of_columns(cls, source: Source, columns: Sequence[np.ndarray]) -> Self:
        blocks = tuple(Block(take_columns(source, part.tolist())) for part in columns)
        size, none = len(blocks), (None,) * len(blocks)
        names = source.feature_names
        return cls(blocks, size, tuple(range(size)), names, columns=tuple(columns), sample_ids=none)


def _refuse_weights(weights: Sequence[object | None]) -> None:
    if any(given is not None for given in weights):
        raise InputError('weights of samples are for partition="samples"; where columns are split, repeat the rows.')


def _in_a_row(blocks: Sequence[Block]) -> tuple[np.ndarray, ...]:
    ends = np.cumsum([block.n_features for block in blocks])
    return tuple(np.arange(end - block.n_features, end) for end, block in zip(ends, blocks, strict=True))


def _names_of(blocks: Sequence[Block]) -> tuple[str, ...] | None:
    """Names of all columns of the blocks, None unless all have names."""
    names = [block.feature_names for block in blocks]
    return tuple(name for part in names for name in part or ()) if all(names) else None
