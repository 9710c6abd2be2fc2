"""What must be the same at all nodes, found by maxima over them."""

import hashlib
from typing import Protocol

import numpy as np

from eigenmesh.errors import DataError


class Alike(Protocol):
    """Samples of nodes, as far as they must be alike, and the name of the first one held here for messages."""

    @property
    def dtype(self) -> np.dtype: ...
    @property
    def feature_names(self) -> tuple[str, ...] | None: ...
    def node_label(self, position: int) -> str: ...


def facts_to_match(shards: Alike, *more: float) -> np.ndarray:
    """What must be the same at all nodes, each number with its negative: maxima over all nodes show whether it is.

    (2 n,) where n counts precision, feature names and ``more``; NaN stands for a node that has no say.
    """
    here = np.array([shards.dtype == np.float32, names_number(shards.feature_names), *more], dtype=float)
    # Nodes without feature names have no say about them.
    return np.where(np.isnan([here, -here]), -np.inf, [here, -here]).ravel()


def require_match(agreed: np.ndarray, shards: Alike, *more: str) -> None:
    """Raise, at every node alike, where precision or feature names differ; unequal columns never get that far.

    ``more``: what to say where one of the further numbers differs.
    """
    (largest, smallest), label = agreed.reshape(2, -1) * [[1], [-1]], shards.node_label(0)
    if largest[0] != smallest[0]:
        raise DataError(f"some nodes hold float32, others wider numbers ({label}: {shards.dtype}); convert all to one.")
    if np.isfinite(largest[1]) and largest[1] != smallest[1]:
        raise DataError("feature names or their order differ from node to node; put the columns in the same order.")
    for number, message in enumerate(more, start=2):
        if np.isfinite(largest[number]) and largest[number] != smallest[number]:
            raise DataError(message)


def names_number(names: tuple[str, ...] | None) -> float:
    """A number that stands for the names in their order, small enough for float64 to hold it; NaN for none."""
    if names is None:
        return float("nan")
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    return float(int.from_bytes(digest[:6], "little"))
