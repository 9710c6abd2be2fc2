"""From what was typed to data, splits, graphs and settings, or an error that says what to type instead."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np

from eigenmesh import graphs
from eigenmesh._lookup import find_name
from eigenmesh.data import (
    DATASETS,
    LabelSplit,
    Shards,
    SizesSplit,
    Split,
    Table,
    is_dataset,
    load,
    read_table,
    split_by_name,
)
from eigenmesh.data._files import READERS, consecutive_rows
from eigenmesh.errors import InputError, UnknownNameError
from eigenmesh.fitting._topology import DEFAULT_NODES

DEFAULT_SPLIT = "random"
# Data sets whose samples are images, to draw components as such.
IMAGE_SHAPES = {"digits": (8, 8), "mnist": (28, 28), "cifar10": (32, 32)}


@dataclass(frozen=True)
class NamedData:
    """The data as they were named: one table to be split, or several files that are a node each."""

    name: str
    table: Table | None
    files: tuple[Path, ...] = ()
    label_column: str | int | None = None

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(rows, columns) where samples are images."""
        return IMAGE_SHAPES.get(self.name)


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
        raise InputError(
            f"--components {text} must be a whole number from 1 up, or a share of the variance strictly between "
            "0 and 1, such as 0.9."
        )
    return number


def parse_step_size(text: str) -> float | str:
    """A number, or "auto"; the solver checks the number."""
    try:
        return find_name(text, ["auto"]) or float(text)
    except ValueError as error:
        raise InputError(f"--step-size {text} must be a number above 0, or auto.") from error


def parse_split(split: str | None, by_label: bool, n_files: int, seed: int) -> Split | None:
    """The split that was asked for, or None where every file is a node."""
    if by_label:
        if split is not None and not isinstance(split_by_name(split), LabelSplit):
            raise InputError(f"--by-label is --split label, but --split {split} was given too; leave one out.")
        split = "label"
    if n_files > 1:
        if split is not None:
            raise InputError(f"{n_files} files are {n_files} nodes, one a file; leave out --split {split}.")
        return None
    return split_by_name(split or DEFAULT_SPLIT, seed)


def read_data(data: Sequence[str], label_column: str | None, share: tuple[int, int] | None = None) -> NamedData:
    """Load a named data set or one file; several files are looked at only when they are dealt out.

    ``share = (i, n)`` takes the i-th of n runs of its rows.
    """
    column = int(label_column) if label_column is not None and label_column.isdecimal() else label_column
    if len(data) > 1:
        named = [name for name in data if is_dataset(name) and not Path(name).is_file()]
        if named:
            raise InputError(
                f"{named[0]} is a data set, and {len(data)} sources were given; name it alone, or give files only."
            )
        return NamedData(f"{len(data)} files", None, tuple(Path(name) for name in data), column)
    (name,) = data
    if is_dataset(name):
        if column is not None:
            raise InputError(f"the data set {name} has labels of its own; leave out --label-column {label_column}.")
        table = load(name)
        return NamedData(table.name, table.take(consecutive_rows(table.n_samples, share)))
    if not Path(name).exists() and Path(name).suffix.lower() not in READERS and not _is_path(name):
        raise UnknownNameError("data set (and no file)", name, [*DATASETS, "synthetic:..."])
    return NamedData(Path(name).name, read_table(name, label_column=column, share=share), label_column=column)


def split_samples(data: NamedData, n_nodes: int | None, split: Split | None) -> Shards:
    """Samples of every node."""
    table = data.table
    if table is None or split is None:
        if n_nodes not in (None, len(data.files)):
            raise InputError(
                f"{data.name} are {len(data.files)} nodes, one a file, not {n_nodes}; leave out --nodes, or give a "
                f"network of {len(data.files)} nodes."
            )
        return Shards.from_files(data.files, label_column=data.label_column)
    shards = _one_label_a_node(table, n_nodes) if isinstance(split, LabelSplit) else None
    if shards is None:
        n_nodes = n_nodes or _nodes_for(split, table.n_samples)
        shards = Shards.from_array(table.source, n_nodes, split, table.labels)
    return shards


def _one_label_a_node(table: Table, n_nodes: int | None) -> Shards | None:
    """A node for each label, where that is the number of nodes there shall be."""
    if table.labels is None:
        raise InputError(
            f"{table.name} has no labels to split by; name its column of labels with --label-column, or split "
            "with --split random or --split contiguous."
        )
    if n_nodes not in (None, len(np.unique(table.labels))):
        return None
    return Shards.from_labels(table.source, table.labels)


def _nodes_for(split: Split, n_samples: int) -> int:
    return len(split.sizes) if isinstance(split, SizesSplit) else max(1, min(DEFAULT_NODES, n_samples // 2))


def read_edge_list(topology: str, n_nodes: int | None = None) -> nx.Graph | None:
    """Graph of an edge-list file, or None where the topology is a name."""
    if find_name(topology, graphs.TOPOLOGIES) is not None:
        return None
    if not (Path(topology).is_file() or _is_path(topology)):
        raise UnknownNameError("topology (and no file)", topology, graphs.TOPOLOGIES)
    graph = graphs.from_edge_list(topology)
    graphs.require_connected(graph)
    if n_nodes not in (None, graph.number_of_nodes()):
        raise InputError(f"{topology} links {graph.number_of_nodes()} nodes, not --nodes {n_nodes}; leave out --nodes.")
    return graph


def in_order_of(graph: nx.Graph, names: Sequence[str] | None) -> nx.Graph:
    """The graph with its nodes in the order of ``names``, where it calls them by those names; else as it is."""
    called = [graph.nodes[node].get("name") for node in range(graph.number_of_nodes())]
    if names is None or len(set(names)) != len(names) or set(called) != set(names):
        return graph
    ordered = nx.Graph()
    ordered.add_nodes_from(names)
    ordered.add_edges_from((called[a], called[b]) for a, b in graph.edges)
    return graphs.from_networkx(ordered)


def _is_path(text: str) -> bool:
    """Whether a text that may be a name looks like a path."""
    return bool(Path(text).suffix) or os.sep in text or "/" in text
