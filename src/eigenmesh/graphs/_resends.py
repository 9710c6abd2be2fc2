"""Trees on networks that change or lose messages, where each message is sent again until it arrives."""

import numpy as np

from eigenmesh.graphs._over_time import NetworkSequence

# Rounds that are looked at to see how often each link works, and the longest wait that is reckoned with.
LOOKED_AT, LONGEST_WAIT = 128, 100_000


def tree_rounds(sequence: NetworkSequence) -> float:
    """Rounds that an average over a tree is expected to take, up and down; infinite where there is no way to or fro.

    A link works in a round with the share of rounds in which it is up, times the share of messages that arrive. Of all
    roots the one counts whose farthest nodes are nearest. A level waits for its slowest link.
    """
    from scipy.sparse import csgraph

    works = np.mean([sequence.weights_at(round_) > 0 for round_ in range(LOOKED_AT)], axis=0) * (1 - sequence.loss)
    np.fill_diagonal(works, 0.0)
    # Senders in rows, as csgraph has it; 0 is no link.
    waits = np.divide(1.0, works, out=np.zeros_like(works), where=works > 0).T
    away, towards = csgraph.dijkstra(waits), csgraph.dijkstra(waits.T)
    farthest = away.max(axis=1) + towards.max(axis=1)
    root = int(np.argmin(farthest))
    if not np.isfinite(farthest[root]):
        return np.inf
    return _tree_rounds(waits, root) + _tree_rounds(waits.T, root)


def _tree_rounds(waits: np.ndarray, root: int) -> float:
    """Expected rounds from the root to all, level by level of the tree of shortest waits, (M, M)."""
    from scipy.sparse import csgraph

    _, before = csgraph.dijkstra(waits, indices=root, return_predecessors=True)
    levels: dict[int, list[float]] = {}
    for node in range(len(waits)):
        depth, place = 0, node
        while place != root:
            depth, place = depth + 1, int(before[place])
        if depth:
            levels.setdefault(depth, []).append(1.0 / waits[before[node], node])
    return sum(_slowest(np.array(shares)) for shares in levels.values())


def _slowest(shares: np.ndarray) -> float:
    """Expected rounds until links that work with these shares, (links,), have all worked once."""
    expected, left = 0.0, np.ones_like(shares)
    for _ in range(LONGEST_WAIT):
        missing = 1.0 - float(np.prod(1.0 - left))
        expected += missing
        if missing < 1e-9:
            break
        left = left * (1.0 - shares)
    return expected
