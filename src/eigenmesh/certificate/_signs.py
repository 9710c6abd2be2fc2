"""One sign convention at all nodes: the largest entry of a component is positive."""

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.networks import Network


def agree_on_signs(network: Network, X: Array) -> Array:
    """Flip columns so that the entry at a row all nodes agree on is positive: (nodes, d, K) -> (nodes, d, K).

    The row is where a column is largest in modulus; where nodes see a near tie differently, the last such row
    is taken by all, and there every node's entry is far from zero.
    """
    xp = ea.namespace(X)
    rows = xp.astype(xp.argmax(xp.abs(X), axis=-2), X.dtype)
    agreed = ea.to_numpy(network.worst(rows)[0, ...]).astype(int)
    entries = xp.stack([X[:, int(row), k] for k, row in enumerate(agreed)], axis=1)
    return X * _signs(entries)


def own_signs(X: Array) -> Array:
    """Signs that make the largest entry of each column positive: (1, d, K) -> (1, 1, K).

    Of entries that are as large up to rounding the first counts, so that nodes whose last digits differ agree.
    """
    return _signs(ea.namespace(X).stack([_leading_entry(X[:, :, k]) for k in range(X.shape[-1])], axis=1))


def _leading_entry(column: Array) -> Array:
    """The first of the largest entries: (1, d) -> (1,)."""
    xp, sizes = ea.namespace(column), ea.namespace(column).abs(column)
    large = xp.astype(sizes >= 0.999 * xp.max(sizes), xp.int32)
    # Not by a number of Python's, for which a GPU would have to be waited for.
    return xp.take(column, xp.argmax(large, axis=-1), axis=-1)[:, 0]


def _signs(entries: Array) -> Array:
    xp = ea.namespace(entries)
    return xp.where(entries < 0, -xp.ones_like(entries), xp.ones_like(entries))[:, None, :]
