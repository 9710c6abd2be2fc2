"""The part of the data that one process holds, where every process is a node."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from eigenmesh.cli._inputs import NamedData, parse_split, read_data, split_samples
from eigenmesh.data import ContiguousSplit, Shards, Table
from eigenmesh.errors import InputError

RANK = re.compile(r"\{rank(?::0(\d+)d)?\}")


def has_rank(text: str) -> bool:
    """Whether a name has a place for the number of the node: {rank}, or {rank:03d} with leading zeros."""
    return RANK.search(text) is not None


def with_rank(text: str, rank: int) -> str:
    """The name of one node's file."""
    return RANK.sub(lambda found: f"{rank:0{found.group(1) or 1}d}", text)


def may_be_the_same(one: str, other: str) -> bool:
    """Whether two names can mean the same file at some node."""
    patterns = [r"\d+".join(map(re.escape, RANK.sub("\0", name).split("\0"))) for name in (one, other)]
    plain = [RANK.sub("0", name) for name in (one, other)]
    return any(re.fullmatch(pattern, name) for pattern, name in zip(patterns, reversed(plain), strict=True))


def is_one_table(data: Sequence[str]) -> bool:
    """Whether one file or data set is to be dealt out, rather than a file a node."""
    return len(data) == 1 and not has_rank(data[0])


def files_of_all_nodes(data: Sequence[str], n_nodes: int | None) -> list[str]:
    """The names with {rank} filled in for all nodes, where one process holds them all."""
    if not has_rank(data[0]):
        return list(data)
    if n_nodes is None:
        raise InputError(f"{data[0]} names one file a node; say how many there are with --nodes.")
    return [with_rank(data[0], rank) for rank in range(n_nodes)]


def read_node_samples(
    data: Sequence[str], label_column: str | None, split: str | None, by_label: bool, seed: int, node: tuple[int, int]
) -> tuple[NamedData, Shards, str]:
    """Samples of node i of n, ``node = (i, n)``, and how they were dealt out, in words.

    One file a node where the name has {rank} or several files are given: no other file is looked at. Else a run of
    rows of the one file, or what ``split`` gives.
    """
    rank, size = node
    files = files_of_all_nodes(data, size)
    rule = parse_split(split, by_label, 1 if is_one_table(data) else 2, seed)
    if rule is None:
        if len(files) != size:
            raise InputError(
                f"{len(files)} files are {len(files)} nodes, one a file, but {size} processes were started."
            )
        source = replace(read_data([files[rank]], label_column), name=data[0] if len(data) == 1 else f"{size} files")
        names = [Path(file).stem for file in files]
        return source, _one_node(source.table, node, names if len(set(names)) == size else None), "one node per file"
    if not isinstance(rule, ContiguousSplit):
        source = read_data(data, label_column)
        words = "label" if by_label else str(split)
        return source, split_samples(source, size, rule).take([rank]), words
    source = read_data(data, label_column, share=node)
    return source, _one_node(source.table, node), "contiguous"


def _one_node(table: Table | None, node: tuple[int, int], names: Sequence[str] | None = None) -> Shards:
    if table is None:
        raise InputError("there are no data to read.")
    rank, size = node
    return Shards.from_list([table.source], ids=[rank], n_nodes=size, node_names=names)
