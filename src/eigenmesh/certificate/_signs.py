"""One sign convention for all nodes: the largest entry of a component is positive."""

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.networks import Network


def agree_on_signs(network: Network, X: Array) -> Array:
    """Flip columns so that the entry in one row, agreed on by all nodes, is positive: (nodes, d, K) -> (nodes, d, K).

    It is the row with the largest modulus in the column. On a near tie nodes may pick different rows; all take the last
    of them, where every node's entry is far from zero.
    """
    xp = ea.namespace(X)
    rows = xp.astype(xp.argmax(xp.abs(X), axis=-2), X.dtype)
    agreed = ea.to_numpy(network.worst(rows)[0, ...]).astype(int)
    entries = xp.stack([X[:, int(row), k] for k, row in enumerate(agreed)], axis=1)
    return X * _signs(entries)


def own_signs(X: Array) -> Array:
    """Signs that make the largest entry of each column positive: (1, d, K) -> (1, 1, K).

    If several entries are the largest up to rounding, the first one counts, so that nodes whose last digits differ
    agree.
    """
    return _signs(ea.namespace(X).stack([_leading_entry(X[:, :, k]) for k in range(X.shape[-1])], axis=1))


def _leading_entry(column: Array) -> Array:
    """The first of the largest entries: (1, d) -> (1,)."""
    xp, sizes = ea.namespace(column), ea.namespace(column).abs(column)
    large = xp.astype(sizes >= 0.999 * xp.max(sizes), xp.int32)
    # An index on the device: a Python number would have to wait for the GPU.
    return xp.take(column, xp.argmax(large, axis=-1), axis=-1)[:, 0]


def _signs(entries: Array) -> Array:
    xp = ea.namespace(entries)
    return xp.where(entries < 0, -xp.ones_like(entries), xp.ones_like(entries))[:, None, :]
