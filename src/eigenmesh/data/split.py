"""Splits of samples over nodes. The rows of each node are in ascending order, so that files are read forwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from eigenmesh.errors import DataError, InputError
from eigenmesh.words import lookup

Rows: TypeAlias = slice | np.ndarray
# With at least this many rows per node, drawing the node of each row is faster than shuffling.
MANY_ROWS = 2048


@runtime_checkable
class Split(Protocol):
    """A rule that splits n_samples rows into n_nodes parts: disjoint, complete, none empty."""

    def rows(self, n_samples: int, n_nodes: int, labels: np.ndarray | None = None) -> Sequence[Rows]:
        """Rows of each node, a slice or an ascending index array."""


@dataclass(frozen=True)
class ContiguousSplit:
    """Runs of consecutive rows, of equal length to within one."""

    def rows(self, n_samples: int, n_nodes: int, labels: np.ndarray | None = None) -> Sequence[slice]:
        ends = np.cumsum(_even_sizes(n_samples, n_nodes))
        return [slice(int(start), int(end)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@dataclass(frozen=True)
class RandomSplit:
    """Rows drawn at random, in equal numbers to within one: every node is like the pooled data.

    Parameters
    ----------
    seed : int
        Seed of the draw.
    """

    seed: int = 0

    def rows(self, n_samples: int, n_nodes: int, labels: np.ndarray | None = None) -> Sequence[Rows]:
        return _shuffled(_even_sizes(n_samples, n_nodes), self.seed)


@dataclass(frozen=True)
class LabelSplit:
    """As few labels per node as possible, so that nodes differ the most.

    With as many nodes as labels, each node has one label. With more nodes, the label with the most samples per
    node gets the next node, and its samples are split into runs of equal length to within one. With fewer nodes,
    each takes a run of whole labels in sorted order, of equal number to within one.
    """

    def rows(self, n_samples: int, n_nodes: int, labels: np.ndarray | None = None) -> Sequence[Rows]:
        _check_counts(n_samples, n_nodes)
        groups = _rows_by_label(labels, n_samples)
        if n_nodes <= len(groups):
            runs = np.array_split(np.arange(len(groups)), n_nodes)
            return [np.sort(np.concatenate([groups[label] for label in run])) for run in runs]
        counts = np.array([len(group) for group in groups])
        shares = np.ones_like(counts)
        for _ in range(n_nodes - len(groups)):
            shares[np.argmax(counts / shares)] += 1
        return [part for group, share in zip(groups, shares, strict=True) for part in np.array_split(group, share)]


@dataclass(frozen=True)
class DirichletSplit:
    """Each label is split in proportions drawn from Dirichlet(alpha, .., alpha): label skew.

    With small alpha a label is at few nodes; with large alpha nodes are similar. An empty node takes one sample from
    the largest node.

    Parameters
    ----------
    alpha : float
        Concentration, above 0.
    seed : int
        Seed of the draw.
    """

    alpha: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.alpha > 0 or not np.isfinite(self.alpha):
            raise InputError(f"alpha of a Dirichlet split must be positive and finite; got {self.alpha}.")

    def rows(self, n_samples: int, n_nodes: int, labels: np.ndarray | None = None) -> Sequence[Rows]:
        _check_counts(n_samples, n_nodes)
        rng = np.random.default_rng(self.seed)
        owner = np.empty(n_samples, dtype=np.intp)
        for group in _rows_by_label(labels, n_samples):
            shares = rng.dirichlet(np.full(n_nodes, self.alpha))
            cuts = np.minimum(np.cumsum(shares)[:-1] * len(group), len(group)).astype(np.intp)
            sizes = np.diff(cuts, prepend=0, append=len(group))
            owner[rng.permutation(group)] = np.repeat(np.arange(n_nodes), sizes)
        counts = np.bincount(owner, minlength=n_nodes)
        for empty in np.flatnonzero(counts == 0):
            donor = np.argmax(counts)
            owner[np.flatnonzero(owner == donor)[0]] = empty
            counts[[donor, empty]] += [-1, 1]
        return _rows_by_owner(owner, n_nodes)


@dataclass(frozen=True)
class SizesSplit:
    """Rows drawn at random in given sizes.

    Parameters
    ----------
    sizes : sequence of float
        Whole numbers that sum to N, or proportions that sum to 1.
    seed : int
        Seed of the draw.
    """

    sizes: Sequence[float]
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        if not all(size > 0 and np.isfinite(size) for size in self.sizes):
            raise InputError(f"every size of a split must be positive and finite; got {list(self.sizes)}.")

    def rows(self, n_samples: int, n_nodes: int, labels: np.ndarray | None = None) -> Sequence[Rows]:
        _check_counts(n_samples, n_nodes)
        if len(self.sizes) != n_nodes:
            raise InputError(f"the split has {len(self.sizes)} sizes but there are {n_nodes} nodes; make them equal.")
        whole, total = all(isinstance(size, Integral) for size in self.sizes), sum(self.sizes)
        if whole and total != n_samples:
            raise InputError(f"the sizes sum to {total} but there are {n_samples} samples; make them equal.")
        if not whole and abs(total - 1) > 1e-6:
            raise InputError(f"the proportions sum to {total:g}, not to 1; divide them by their sum.")
        ideal = np.asarray(self.sizes) / total * n_samples
        counts = np.asarray(self.sizes if whole else np.floor(ideal)).astype(np.intp)
        counts[np.argsort(counts - ideal, kind="stable")[: n_samples - counts.sum()]] += 1
        for empty in np.flatnonzero(counts == 0):
            counts[[np.argmax(counts), empty]] += [-1, 1]
        return _shuffled(counts, self.seed)


# Text of a missing value, in lower case; "NA" may be a name.
NO_VALUE = frozenset({"", "nan", "none", "<na>", "nat"})


def split_by_name(name: str | Split, seed: int = 0) -> Split:
    """The split that a user names.

    Parameters
    ----------
    name : str or Split
        ``random``, ``contiguous``, ``label``, ``dirichlet:0.1`` or ``sizes:10,20,30``. A Split is returned as it is.
    seed : int
        Seed of a random split.
    """
    if isinstance(name, Split) and not isinstance(name, type):
        return name
    kind, _, argument = name.partition(":") if isinstance(name, str) else (name, "", "")
    build, form = lookup("split", kind, SPLITS, also="a Split object")
    if argument and form is None:
        raise InputError(f"this split takes no argument; leave out {argument!r}.")
    try:
        return build(argument, seed)
    except ValueError as error:
        raise InputError(f"this split is written {form}; got {argument!r}.") from error


def rows_by_value(values: np.ndarray, what: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Distinct values in sorted order, and the ascending rows of each; raises DataError if one is missing."""
    try:
        distinct, inverse = np.unique(values, return_inverse=True)
    except TypeError as error:
        # None and NaN cannot be sorted with text.
        _require_present(values, values, what)
        raise DataError(f"{what} cannot be sorted ({error}); give values of one type.") from error
    _require_present(distinct, values, what)
    return distinct, _rows_by_owner(inverse, len(distinct))


def _require_present(distinct: np.ndarray, values: np.ndarray, what: str) -> None:
    for value in distinct.tolist():
        if str(value).strip().lower() in NO_VALUE:
            row = next(row for row, other in enumerate(values.tolist()) if str(other) == str(value))
            raise DataError(f"row {row} has no entry in {what} ({value!r}); give one, or leave the row out.")


def _rows_by_label(labels: np.ndarray | None, n_samples: int) -> list[np.ndarray]:
    if labels is None:
        raise InputError("this split needs labels; give them, or split with 'random' or 'contiguous'.")
    labels = np.asarray(labels)
    if labels.shape != (n_samples,):
        raise DataError(f"labels must be 1-D, one for each of {n_samples} samples; got shape {labels.shape}.")
    return rows_by_value(labels, "labels")[1]


def _rows_by_owner(owner: np.ndarray, n_owners: int) -> list[np.ndarray]:
    order = np.argsort(owner, kind="stable")
    # A few searches, where counting the rows of each would take longer than sorting them.
    return np.split(order, np.searchsorted(owner, np.arange(1, n_owners, dtype=owner.dtype), sorter=order))


def _shuffled(sizes: np.ndarray, seed: int) -> Sequence[Rows]:
    """A draw from all splits into parts of these sizes, each with the same probability."""
    rng, n_nodes, total = np.random.default_rng(seed), len(sizes), int(sizes.sum())
    # NumPy sorts small integer types in one pass.
    small = np.min_scalar_type(n_nodes)
    if total < MANY_ROWS * n_nodes:
        owner = np.repeat(np.arange(n_nodes, dtype=small), sizes)
        rng.shuffle(owner)
        return _rows_by_owner(owner, n_nodes)
    # To draw the node of each row by itself takes a tenth of the time. Then rows drawn from the nodes with too many go
    # to the others. Both treat all rows alike, as a permutation does.
    parts = _rows_by_owner(rng.integers(n_nodes, size=total, dtype=small), n_nodes)
    surplus = np.array([len(part) for part in parts]) - sizes
    spare = [rng.choice(len(part), max(0, more), replace=False) for part, more in zip(parts, surplus, strict=True)]
    moved = rng.permutation(np.concatenate([part[some] for part, some in zip(parts, spare, strict=True)]))
    given = np.split(moved, np.cumsum(np.maximum(-surplus, 0))[:-1])
    return [_exchanged(*each) for each in zip(parts, spare, given, strict=True)]


def _exchanged(part: np.ndarray, spare: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Ascending rows without those at the positions ``spare``, and with those in ``given``."""
    kept, given = np.delete(part, spare), np.sort(given)
    return np.insert(kept, np.searchsorted(kept, given), given)


def _even_sizes(n_samples: int, n_nodes: int) -> np.ndarray:
    _check_counts(n_samples, n_nodes)
    return n_samples // n_nodes + (np.arange(n_nodes) < n_samples % n_nodes).astype(np.intp)


def _check_counts(n_samples: int, n_nodes: int) -> None:
    if n_nodes < 1:
        raise InputError(f"n_nodes must be at least 1; got {n_nodes}.")
    if n_nodes > n_samples:
        raise DataError(f"n_nodes = {n_nodes} is more than the {n_samples} samples; every node needs at least one.")


def _sizes(argument: str, seed: int) -> Split:
    return SizesSplit([int(part) if part.strip().isdecimal() else float(part) for part in argument.split(",")], seed)


# To add a split: a class above, a row here, with the form of its argument if it has one.
SPLITS: dict[str, tuple[Callable[[str, int], Split], str | None]] = {
    "random": (lambda argument, seed: RandomSplit(seed), None),
    "contiguous": (lambda argument, seed: ContiguousSplit(), None),
    "label": (lambda argument, seed: LabelSplit(), None),
    "dirichlet": (lambda argument, seed: DirichletSplit(float(argument), seed), "'dirichlet:0.1', alpha > 0"),
    "sizes": (_sizes, "'sizes:10,20,30' or 'sizes:0.2,0.8', all positive"),
}
