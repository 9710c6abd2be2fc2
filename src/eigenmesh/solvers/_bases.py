"""Where solvers start from: orthonormal bases that every node can draw for itself."""

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array


def random_basis(n_features: int, n_components: int, seed: int) -> np.ndarray:
    """Orthonormal columns drawn uniformly, the same for every node: (d, K)."""
    drawn = np.random.default_rng(seed).standard_normal((n_features, n_components))
    make_orthonormal(drawn[np.newaxis])
    return drawn


def make_orthonormal(X: Array) -> Array:
    """Write Q over ``X = Q R``, with a diagonal of R that is not negative, and give R: (1, d, k) -> (1, k, k)."""
    xp, R = ea.namespace(X), ea.qr_in_place(X)
    diagonal = xp.linalg.diagonal(R)
    signs = xp.where(diagonal < 0, -xp.ones_like(diagonal), xp.ones_like(diagonal))
    X *= signs[:, None, :]
    return R * signs[:, :, None]


def drawn_from(basis: np.ndarray, seed: int) -> np.ndarray | None:
    """S such that ``basis S`` are the Gaussian columns of ``random_basis``; None if the basis is another: (K, K).

    They are drawn in pieces, so that nothing of the size of the basis is needed beside it.
    """
    (d, k), rng, squares = basis.shape, np.random.default_rng(seed), 0.0
    gram, along = np.zeros((k, k)), np.zeros((k, k))
    for start in range(0, d, ea.PIECE):
        own = basis[start : start + ea.PIECE].astype(np.float64)
        drawn = rng.standard_normal(own.shape)
        gram += own.T @ own
        along += own.T @ drawn
        squares += float(np.vdot(drawn, drawn))
    S = np.linalg.solve(gram, along)
    # The square of what is not in the span.
    return S if squares - np.vdot(along, S) <= 1e-12 * squares else None


def fresh_directions(basis: np.ndarray, n_columns: int, seed: int) -> np.ndarray:
    """Gaussian columns beside a basis that make it this wide, the same for every node: (d, K) -> (d, n_columns - K)."""
    d, k = basis.shape
    return _beside(k, seed).standard_normal((d, n_columns - k))


def _beside(k: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, k])


def write_widened(room: Array, basis: Array, seed: int) -> Array:
    """Write Q of ``[basis, fresh directions] = Q R`` over room, and give R: (1, d, n), (1, d, K) -> (1, n, n)."""
    if ea.on_gpu(room):
        # For which a few columns take longer than the host needs for them.
        host = np.empty(room.shape)
        R = write_widened(host, ea.to_numpy(basis), seed)
        room[...] = ea.like(host, room)
        return ea.like(R, room)
    k, (_, d, n) = basis.shape[-1], room.shape
    room[:, :, :k], fresh = basis, _beside(k, seed)
    for piece in (slice(start, min(start + ea.PIECE, d)) for start in range(0, d, ea.PIECE)):
        room[:, piece, k:] = ea.like(fresh.standard_normal((1, piece.stop - piece.start, n - k)), room)
    return make_orthonormal(room)


def widened(basis: np.ndarray, n_columns: int, seed: int) -> np.ndarray:
    """The basis and random directions orthogonal to it: (d, K) -> (d, n_columns), orthonormal."""
    room = np.empty((1, len(basis), n_columns))
    write_widened(room, basis[np.newaxis], seed)
    return np.asarray(room[0])


def fade(sizes: Array, noise: float, largest: Array | None = None) -> Array:
    """0 for sizes at the level of noise, beside the largest that there can be, and from 100 times that on 1: (1, k).

    In between it grows evenly, so that no node decides alone. largest: a number; that of the sizes if None.
    """
    xp = ea.namespace(sizes)
    level = (64 * float(xp.finfo(sizes.dtype).eps) + 10 * noise) * (xp.max(sizes) if largest is None else largest)
    return xp.clip((sizes - level) / xp.where(level > 0, 99 * level, xp.ones_like(sizes)), 0.0, 1.0)


def faded(W: Array, noise: float, largest: Array | None = None) -> Array:
    """``P f R^T`` for ``W = P s R^T``, with f = 1 but for directions at the level of noise, which fade out: (1, w, k).

    Unlike the columns that QR makes of a block that has lost rank, it is a continuous function of W.
    """
    left, s, right = ea.namespace(W).linalg.svd(W, full_matrices=False)
    return (left * fade(s, noise, largest)[:, None, :]) @ right


def in_fixed_frame(Q: Array) -> Array:
    """Another orthonormal basis of the span of Q that depends on the span alone: (1, w, k) -> (1, w, k).

    Of all bases it is the nearest to a fixed random frame, so nodes whose last digits differ get the same one.
    """
    xp = ea.namespace(Q)
    frame = ea.like(np.random.default_rng(0).standard_normal((1, *Q.shape[1:])), Q)
    left, _, right = xp.linalg.svd(Q.mT @ frame, full_matrices=False)
    return Q @ (left @ right)
