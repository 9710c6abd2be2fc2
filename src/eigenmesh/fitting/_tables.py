"""All-gather of bytes: each node sends a row, and every node receives all rows."""

from collections.abc import Mapping

import numpy as np

from eigenmesh.networks import Network

# Bytes per float64 in a message: it represents 48 bits exactly.
WORD = 6


def gather_bytes(network: Network, own: Mapping[int, bytes]) -> list[bytes | None]:
    """The bytes of every node at every node, by one exchange of maxima; None for a node that sent nothing.

    ``own`` has the bytes of each node in this process; they have the same length at all nodes.
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
    """Numbers that this many bytes take."""
    return -(-length // WORD)
