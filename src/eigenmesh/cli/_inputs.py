"""Parse arguments of the command line into data, splits, graphs and settings; errors say what to type instead."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np

from eigenmesh import graphs
from eigenmesh._lookup import canonical_name, find_name
from eigenmesh.data import FeatureShards, LabelSplit, Shards, SizesSplit, Split, Table, TableOptions, split_by_name
from eigenmesh.data._datasets import DATASETS, is_dataset, load
from eigenmesh.data._files import READERS, consecutive_rows, kind_of, read_table
from eigenmesh.errors import DataError, InputError, UnknownNameError
from eigenmesh.fitting._topology import DEFAULT_NODES
from eigenmesh.solvers import SOLVERS, Solver, solver_by_name

DEFAULT_SPLIT = "random"


def parse_components(text: str | None) -> int | float | None:
    """K as a whole number, or as a share of the variance strictly between 0 and 1; None stays None."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if number >= 1 and number.is_integer() and "." not in text:
        return int(number)
    if not 0 < number < 1:
        raise InputError(f"--components {text} must be a whole number of at least 1, or a share between 0 and 1.")
    return number


def parse_solver(name: str, step_size: str) -> Solver | str:
    """The solver of this name, with this step if it has one; "auto" for the choice of the planner."""
    step: float | str | None = find_name(step_size, ["auto"])
    if step is None:
        try:
            step = float(step_size)
        except ValueError:
            step = np.nan
        if not step > 0:
            raise InputError(f"--step-size {step_size} must be a number above 0, or auto.")
    known = canonical_name("solver", name, ["auto", *SOLVERS])
    return known if known == "auto" else solver_by_name(known, step_size=step)


def split_name(split: str | None, by_label: bool) -> str | None:
    """The name of the split that --split and --by-label ask for."""
    if by_label and split is not None and not isinstance(split_by_name(split), LabelSplit):
        raise InputError(f"--by-label is --split label, but --split {split} was given too; leave one out.")
    return "label" if by_label else split


def parse_split(split: str | None, n_files: int, seed: int) -> Split | None:
    """The split that was asked for; None if there is one file per node."""
    if n_files == 1:
        return split_by_name(split or DEFAULT_SPLIT, seed)
    if split is not None:
        raise InputError(f"{n_files} files are {n_files} nodes, one per file; leave out --split {split}.")
    return None


def read_data(
    data: Sequence[str], options: TableOptions, n_nodes: int | None, split: Split | None, kind: type[Shards] = Shards
) -> tuple[str, Shards]:
    """A name for the data, and the samples of every node: from one table that is split, or from one file per node."""
    if split is not None:
        table = read_one(data[0], options)
        return table.name, split_table(table, n_nodes, split, kind)
    for name in data:
        if is_dataset(name) and not Path(name).is_file():
            raise InputError(
                f"{name} is a data set, but {len(data)} sources were given; give only this data set, or only files."
            )
    if n_nodes not in (None, len(data)):
        fix = f"leave out --nodes, or give a network of {len(data)} nodes"
        raise InputError(f"{len(data)} files are {len(data)} nodes, one per file, not {n_nodes}; {fix}.")
    return f"{len(data)} files", kind.from_files(list(data), **vars(options))


def read_one(name: str, options: TableOptions, share: tuple[int, int] | None = None) -> Table:
    """A data set or the table in a file, by name; ``share = (i, n)`` takes the i-th of n runs of its rows."""
    if is_dataset(name):
        if options != TableOptions():
            fix = "leave out --label-column, --drop and the other options of tables"
            raise InputError(f"the data set {name} has its own labels, and all its columns are used; {fix}.")
        table = load(name)
        return table.take(consecutive_rows(table.n_samples, share))
    if not Path(name).exists() and kind_of(Path(name)) not in READERS and not _is_path(name):
        raise UnknownNameError("data set (and no file)", name, [*DATASETS, "synthetic:..."])
    return replace(read_table(name, share=share, **vars(options)), name=Path(name).name)


def split_table(table: Table, n_nodes: int | None, split: Split, kind: type[Shards] = Shards) -> Shards:
    """The samples of every node. A split by label has one node per label, unless another number is asked for."""
    if table.n_samples == 0:
        raise DataError(f"{table.name} has columns but no samples; give a file with at least one.")
    if issubclass(kind, FeatureShards):
        usual = len(split.sizes) if isinstance(split, SizesSplit) else max(1, min(DEFAULT_NODES, table.source.shape[1]))
        return kind.from_array(table.source, n_nodes or usual, split, weights=table.weights)
    if isinstance(split, LabelSplit):
        if table.labels is None:
            fix = "name their column with --label-column, or use --split random or --split contiguous"
            raise InputError(f"{table.name} has no labels to split by; {fix}.")
        if n_nodes in (None, len(np.unique(table.labels))):
            return Shards.from_labels(table.source, table.labels).weighted_rows(table.weights)
    usual = len(split.sizes) if isinstance(split, SizesSplit) else max(1, min(DEFAULT_NODES, table.n_samples // 2))
    return Shards.from_array(table.source, n_nodes or usual, split, table.labels, table.weights)


def read_edge_list(topology: str, n_nodes: int | None = None) -> nx.Graph | None:
    """Graph of an edge-list file; None if the topology is a name."""
    if find_name(topology, graphs.TOPOLOGIES) is not None:
        return None
    if not (Path(topology).is_file() or _is_path(topology)):
        raise UnknownNameError("topology (and no file)", topology, graphs.TOPOLOGIES)
    graph = graphs.from_edge_list(topology)
    graphs.require_connected(graph)
    if n_nodes not in (None, graph.number_of_nodes()):
        raise InputError(f"{topology} links {graph.number_of_nodes()} nodes, not --nodes {n_nodes}; leave out --nodes.")
    return graph


def _is_path(text: str) -> bool:
    """Whether the text looks like a path rather than a name."""
    return bool(Path(text).suffix) or os.sep in text or "/" in text
