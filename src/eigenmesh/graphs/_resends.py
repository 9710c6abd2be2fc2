"""Cost of trees on networks that change or lose messages, where each message is resent until it arrives."""

import numpy as np

from eigenmesh.graphs._over_time import NetworkSequence

# Rounds from which the share of working links is estimated, and the longest wait that is considered.
SAMPLED_ROUNDS, LONGEST_WAIT = 128, 100_000


def tree_rounds(sequence: NetworkSequence) -> float:
    """Expected rounds of an average over a tree, up and down; infinite if the network is not connected.

    A link works in a round with a probability of the share of rounds in which it is up, times the share of messages
    that arrive. The root is the node with the smallest distances to and from its farthest nodes. A level of the tree
    waits for its slowest link.
    """
    from scipy.sparse import csgraph

    works = np.mean([sequence.weights_at(round_) > 0 for round_ in range(SAMPLED_ROUNDS)], axis=0) * (1 - sequence.loss)
    np.fill_diagonal(works, 0.0)
    # Senders in rows, the convention of csgraph; 0 means no link.
    waits = np.divide(1.0, works, out=np.zeros_like(works), where=works > 0).T
    away, towards = csgraph.dijkstra(waits), csgraph.dijkstra(waits.T)
    farthest = away.max(axis=1) + towards.max(axis=1)
    root = int(np.argmin(farthest))
    if not np.isfinite(farthest[root]):
        return np.inf
    return _tree_rounds(waits, root) + _tree_rounds(waits.T, root)


def _tree_rounds(waits: np.ndarray, root: int) -> float:
    """Expected rounds from the root to all nodes, summed over the levels of the tree of shortest waits (M, M)."""
    from scipy.sparse import csgraph

    _, before = csgraph.dijkstra(waits, indices=root, return_predecessors=True)
    levels: dict[int, list[float]] = {}
    for node in range(len(waits)):
        depth, ancestor = 0, node
        while ancestor != root:
            depth, ancestor = depth + 1, int(before[ancestor])
        if depth:
            levels.setdefault(depth, []).append(1.0 / waits[before[node], node])
    return sum(_slowest(np.array(shares)) for shares in levels.values())


def _slowest(shares: np.ndarray) -> float:
    """Expected rounds until links with these success probabilities, (links,), have all worked once."""
    expected, left = 0.0, np.ones_like(shares)
    for _ in range(LONGEST_WAIT):
        missing = 1.0 - float(np.prod(1.0 - left))
        expected += missing
        if missing < 1e-9:
            break
        left = left * (1.0 - shares)
    return expected
