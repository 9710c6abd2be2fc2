"""The polynomial of W that averages in the fewest rounds over one-way links, where eigenvalues are complex."""

import numpy as np

from eigenmesh.graphs import Weights

# With more nodes, finding the polynomial takes longer than the rounds it saves.
LARGEST = 256


def arnoldi_factors(weights: Weights, accuracy: float, most: int) -> tuple[tuple[float, ...], ...]:
    """Factors of the residual polynomial of GMRES on ``A = I - W``: p(0) = 1 and ``|p(A) (I - 11^T/M)|`` least.

    Its roots are the harmonic Ritz values of Arnoldi's method on the matrices ``A^k (I - 11^T/M)``. In Leja order, each
    as far as possible from those before, they keep rounding small: 19 rounds to 1e-14 on a directed cycle of 20. A real
    root r gives the factor ``1 - A/r``, stored as (1/r,); a pair r, conj(r) gives ``1 - 2 Re(r)/|r|^2 A + A^2/|r|^2``,
    two numbers and two rounds. With more than 256 nodes the result is empty.
    """
    n_nodes = weights.n_nodes
    if n_nodes > LARGEST:
        return ()
    W = weights.matrix if isinstance(weights.matrix, np.ndarray) else weights.matrix.toarray()
    start = np.eye(n_nodes) - 1 / n_nodes
    size = float(np.linalg.norm(start))
    basis, H = [start / size], np.zeros((1, 0))
    for degree in range(1, min(most, n_nodes) + 1):
        image = basis[-1] - W @ basis[-1]
        column = np.zeros(degree + 1)
        for _ in range(2):
            for row, vector in enumerate(basis):
                coefficient = float(np.sum(vector * image))
                column[row] += coefficient
                image = image - coefficient * vector
        column[degree] = np.linalg.norm(image)
        H = np.hstack([np.vstack([H, np.zeros((1, degree - 1))]), column[:, np.newaxis]])
        first = np.eye(degree + 1)[0]
        residual = size * float(np.linalg.norm(first - H @ np.linalg.lstsq(H, first)[0]))
        if residual <= accuracy or column[degree] <= 1e-14:
            break
        basis.append(image / column[degree])
    return _factors(_leja(_harmonic_ritz(H)))


def _harmonic_ritz(H: np.ndarray) -> np.ndarray:
    """Roots of the residual polynomial: eigenvalues of ``H_k + h^2 H_k^-T e_k e_k^T``, (k + 1, k) -> (k,)."""
    square = H[:-1].copy()
    last = np.eye(len(square))[-1]
    square[:, -1] += H[-1, -1] ** 2 * np.linalg.solve(H[:-1].T, last)
    return np.linalg.eigvals(square)


def _leja(roots: np.ndarray) -> list[complex]:
    """Roots in the upper half plane in Leja order: each as far as possible from those before and their conjugates."""
    remaining = [complex(root) for root in roots if root.imag >= 0]
    ordered: list[complex] = []
    while remaining:
        chosen = [each for root in ordered for each in (root, root.conjugate())]
        far = [
            abs(root) if not chosen else sum(np.log(abs(root - each) + 1e-300) for each in chosen) for root in remaining
        ]
        ordered.append(remaining.pop(int(np.argmax(far))))
    return ordered


def _factors(roots: list[complex]) -> tuple[tuple[float, ...], ...]:
    return tuple(
        (1 / root.real,) if root.imag == 0 else (2 * root.real / abs(root) ** 2, 1 / abs(root) ** 2) for root in roots
    )
