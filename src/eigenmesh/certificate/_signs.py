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
    xp = ea.namespace(X)
    sizes = xp.abs(X)
    rows = xp.argmax(xp.astype(sizes >= 0.999 * xp.max(sizes, axis=-2, keepdims=True), xp.int32), axis=-2)
    return _signs(xp.stack([X[:, int(row), k] for k, row in enumerate(ea.to_numpy(rows)[0])], axis=1))


def _signs(entries: Array) -> Array:
    xp = ea.namespace(entries)
    return xp.where(entries < 0, -xp.ones_like(entries), xp.ones_like(entries))[:, None, :]
