"""Starting bases of solvers: orthonormal, random, and the same at every node without communication."""

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array


def random_basis(n_features: int, n_components: int, seed: int) -> np.ndarray:
    """Orthonormal columns, uniformly distributed and the same at every node: (d, K)."""
    drawn = np.random.default_rng(seed).standard_normal((n_features, n_components))
    orthonormalise_in_place(drawn[np.newaxis])
    return drawn


def orthonormalise_in_place(X: Array) -> Array:
    """Overwrite X by Q of ``X = Q R``, where R has a nonnegative diagonal, and return R: (1, d, k) -> (1, k, k)."""
    xp, R = ea.namespace(X), ea.qr_in_place(X)
    diagonal = xp.linalg.diagonal(R)
    signs = xp.where(diagonal < 0, -xp.ones_like(diagonal), xp.ones_like(diagonal))
    X *= signs[:, None, :]
    return R * signs[:, :, None]


def gaussian_coefficients(basis: np.ndarray, seed: int) -> np.ndarray | None:
    """S with ``basis S = G``, the Gaussian columns that ``random_basis`` drew, (K, K); None for any other basis.

    G is drawn again in pieces, so that no second array of the size of the basis is needed.
    """
    (d, k), rng, squares = basis.shape, np.random.default_rng(seed), 0.0
    gram, along = np.zeros((k, k)), np.zeros((k, k))
    for start in range(0, d, ea.PIECE):
        own = basis[start : start + ea.PIECE]
        drawn = rng.standard_normal(own.shape)
        gram += own.T @ own
        along += own.T @ drawn
        squares += float(np.vdot(drawn, drawn))
    S = np.linalg.solve(gram, along)
    # |G - basis S|^2, the squared norm of the part of G outside the span of the basis.
    return S if squares - np.vdot(along, S) <= 1e-12 * squares else None


def fresh_directions(basis: np.ndarray, n_columns: int, seed: int) -> np.ndarray:
    """Gaussian columns that widen a basis to ``n_columns``, the same at every node: (d, K) -> (d, n_columns - K)."""
    d, k = basis.shape
    return _fresh_generator(k, seed).standard_normal((d, n_columns - k))


def _fresh_generator(k: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, k])


def write_widened(out: Array, basis: Array, seed: int) -> Array:
    """Write Q of ``[basis, fresh directions] = Q R`` into out, and return R: (1, d, n), (1, d, K) -> (1, n, n)."""
    if ea.on_gpu(out):
        # QR of a few columns is faster on the host than on the GPU.
        host = np.empty(out.shape)
        R = write_widened(host, ea.to_numpy(basis), seed)
        out[...] = ea.like(host, out)
        return ea.like(R, out)
    k, (_, d, n) = basis.shape[-1], out.shape
    out[:, :, :k], fresh = basis, _fresh_generator(k, seed)
    for piece in (slice(start, min(start + ea.PIECE, d)) for start in range(0, d, ea.PIECE)):
        out[:, piece, k:] = ea.like(fresh.standard_normal((1, piece.stop - piece.start, n - k)), out)
    return orthonormalise_in_place(out)


def widened(basis: np.ndarray, n_columns: int, seed: int) -> np.ndarray:
    """The basis and random directions, together orthonormal: (d, K) -> (d, n_columns)."""
    out = np.empty((1, len(basis), n_columns))
    write_widened(out, basis[np.newaxis], seed)
    return np.asarray(out[0])


def fade(sizes: Array, noise: float, largest: Array | None = None) -> Array:
    """Factor that removes noise: 0 for sizes up to the noise level, 1 from 100 times that level on: (1, k).

    The level is relative to ``largest``, by default the largest of the sizes. In between the factor grows linearly: a
    sharp threshold could fall differently at nodes whose last digits differ.
    """
    xp = ea.namespace(sizes)
    level = (64 * ea.EPS + 10 * noise) * (xp.max(sizes) if largest is None else largest)
    return xp.clip((sizes - level) / xp.where(level > 0, 99 * level, xp.ones_like(sizes)), 0.0, 1.0)


def faded(W: Array, noise: float, largest: Array | None = None) -> Array:
    """``P f R^T`` for ``W = P s R^T``, where f is 1 but fades to 0 for directions near the noise level: (1, w, k).

    Unlike the Q factor of a block without full rank, it is a continuous function of W.
    """
    left, s, right = ea.namespace(W).linalg.svd(W, full_matrices=False)
    return (left * fade(s, noise, largest)[:, None, :]) @ right


def in_fixed_frame(Q: Array) -> Array:
    """Orthonormal basis of the span of Q that depends only on the span: (1, w, k) -> (1, w, k).

    Of all such bases it is the nearest to a fixed random frame, so nodes whose last digits differ get the same one.
    """
    xp = ea.namespace(Q)
    frame = ea.like(np.random.default_rng(0).standard_normal((1, *Q.shape[1:])), Q)
    left, _, right = xp.linalg.svd(Q.mT @ frame, full_matrices=False)
    return Q @ (left @ right)
