"""What each node tells all the others: a table of bytes, one row per node."""

from collections.abc import Mapping

import numpy as np

from eigenmesh.networks import Network

# Bytes per number on the way: float64 holds 48 bits exactly.
WORD = 6


def tell_all(network: Network, own: Mapping[int, bytes]) -> list[bytes | None]:
    """What each node sends, at every node, by one exchange of maxima; None from a node that sent nothing.

    ``own`` has the bytes of each node held here, of one length at all nodes.
    """
    length = len(next(iter(own.values())))
    table = np.full((len(network.ids), network.n_nodes, words_for(length)), -1.0)
    for row, node in enumerate(network.ids):
        padded = own[node].ljust(WORD * table.shape[2], b"\0")
        table[row, node] = [int.from_bytes(padded[i : i + WORD], "big") for i in range(0, len(padded), WORD)]
    rows = np.asarray(network.worst(table))[0]
    texts = [b"".join(int(word).to_bytes(WORD, "big") for word in row) if (row >= 0).all() else None for row in rows]
    return [None if text is None else text[:length] for text in texts]


def words_for(length: int) -> int:
    """Numbers that so many bytes take."""
    return -(-length // WORD)
