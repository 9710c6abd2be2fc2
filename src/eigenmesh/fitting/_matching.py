"""Checks that all nodes have matching data, by maxima over the nodes."""

import hashlib
from typing import Protocol

import numpy as np

from eigenmesh.errors import DataError


class Matchable(Protocol):
    """The properties of samples that must match, and the name of the first node in this process, for messages."""

    @property
    def dtype(self) -> np.dtype: ...
    @property
    def feature_names(self) -> tuple[str, ...] | None: ...
    def node_label(self, position: int) -> str: ...


def facts_to_match(shards: Matchable, *more: float) -> np.ndarray:
    """Numbers that must be the same at all nodes, and their negatives: maxima over the nodes show whether they are.

    (2 n,), where n counts precision, feature names and ``more``; NaN means that this node matches any value.
    """
    here = np.array([shards.dtype == np.float32, names_number(shards.feature_names), *more], dtype=float)
    # Nodes without feature names match any.
    return np.where(np.isnan([here, -here]), -np.inf, [here, -here]).ravel()


def require_match(agreed: np.ndarray, shards: Matchable, *more: str) -> None:
    """Raise at every node if precision or feature names differ; different numbers of columns fail earlier.

    ``more``: the message for each further number that differs.
    """
    (largest, smallest), label = agreed.reshape(2, -1) * [[1], [-1]], shards.node_label(0)
    if largest[0] != smallest[0]:
        raise DataError(f"some nodes hold float32, others wider numbers ({label}: {shards.dtype}); convert all to one.")
    if np.isfinite(largest[1]) and largest[1] != smallest[1]:
        raise DataError("feature names or their order differ between nodes; use the same columns in the same order.")
    for number, message in enumerate(more, start=2):
        if np.isfinite(largest[number]) and largest[number] != smallest[number]:
            raise DataError(message)


def names_number(names: tuple[str, ...] | None) -> float:
    """A hash of the names in their order that float64 represents exactly; NaN for no names."""
    if names is None:
        return float("nan")
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    return float(int.from_bytes(digest[:6], "little"))
