"""Before anything else: do the data of all nodes match, and how many samples are there?"""

import hashlib

import numpy as np

from eigenmesh.data import Shards
from eigenmesh.errors import DataError
from eigenmesh.networks import Network


def match_nodes(shards: Shards, network: Network) -> int:
    """N over all nodes, by one average of one number; what must be equal everywhere rides in its messages.

    Every node raises the same error where columns, precision or feature names differ. Each fact goes with its negative,
    so that the maxima over all nodes show whether it is the same at all of them.
    """
    here = np.array([shards.n_features, shards.dtype == np.float32, _names_number(shards.feature_names)], dtype=float)
    # Nodes without feature names have no say about them.
    facts = np.where(np.isnan([here, -here]), -np.inf, [here, -here])
    counts = np.array([[float(block.n_rows)] for block in shards.blocks])
    everywhere = np.broadcast_to(facts, (len(shards.blocks), *facts.shape))
    mean, agreed = network.common_mean_and_worst(counts, everywhere)
    largest, smallest = agreed[0] * [[1], [-1]]
    if largest[0] != smallest[0]:
        raise DataError(
            f"nodes have unequal numbers of columns, from {smallest[0]:.0f} to {largest[0]:.0f}; "
            f"{shards.node_label(0)} has {shards.n_features}."
        )
    if largest[1] != smallest[1]:
        raise DataError(
            f"some nodes hold float32 and some wider numbers ({shards.node_label(0)} works in {shards.dtype}); convert "
            "all to one."
        )
    if np.isfinite(largest[2]) and largest[2] != smallest[2]:
        raise DataError("feature names or their order differ from node to node; put the columns in the same order.")
    return int(np.rint(shards.n_nodes * mean[0, 0]))


def _names_number(names: tuple[str, ...] | None) -> float:
    """A number that stands for the names in their order, small enough for float64 to hold it; NaN for none."""
    if names is None:
        return float("nan")
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    return float(int.from_bytes(digest[:6], "little"))
