"""Checks that all nodes have matching data, by maxima over the nodes."""

import hashlib

import numpy as np

from eigenmesh.errors import DataError


def facts_to_match(feature_names: tuple[str, ...] | None, *more: float) -> np.ndarray:
    """Numbers that must be the same at all nodes, and their negatives: maxima over the nodes show whether they are.

    (2 n,), where n counts feature names and ``more``; NaN means that this node matches any value.
    """
    here = np.array([names_number(feature_names), *more], dtype=float)
    # Nodes without feature names match any.
    return np.where(np.isnan([here, -here]), -np.inf, [here, -here]).ravel()


def require_match(agreed: np.ndarray, *more: str) -> None:
    """Raise at every node if feature names differ; different numbers of columns fail earlier.

    ``more``: the message for each further number that differs.
    """
    largest, smallest = agreed.reshape(2, -1) * [[1], [-1]]
    if np.isfinite(largest[0]) and largest[0] != smallest[0]:
        raise DataError("feature names or their order differ between nodes; use the same columns in the same order.")
    for number, message in enumerate(more, start=1):
        if np.isfinite(largest[number]) and largest[number] != smallest[number]:
            raise DataError(message)


def names_number(names: tuple[str, ...] | None) -> float:
    """A hash of the names in their order that float64 represents exactly; NaN for no names."""
    if names is None:
        return float("nan")
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    return float(int.from_bytes(digest[:6], "little"))
