"""Factored averaging: about as many matrices as the diameter, on the links of the graph, whose product averages."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.atomic_write import cache_folder, save_arrays
from eigenmesh.averaging.base import DEFAULT_ACCURACY, Average, Exchanges, LinearNetwork, LinearRound, reaches
from eigenmesh.averaging.spectral import Polynomial
from eigenmesh.averaging.tree import Tree
from eigenmesh.graphs import Weights

# With more unknowns a search takes minutes.
LARGEST_POLYNOMIAL = 3000
# A search succeeds at a residual of SOLVED. Each node measures the accuracy again, and accepts up to ACCURACY, so that
# rounding does not make one node reject what the others use.
SOLVED, ACCURACY = 1e-14, 1e-13
# Noise of each start: some searches miss a solution with little noise, others with much.
STARTS = (0.03, 1.0, 0.1, 0.03, 0.3, 0.03)
# A search continues as long as every WINDOW steps divide the residual by FALL, up to STEPS steps.
STEPS, WINDOW, FALL = 60, 10, 4.0
# With more damping a step is too short to matter.
MOST_DAMPING = 1e6

_in_memory: dict[str, np.ndarray] = {}
_searching = threading.Lock()


@dataclass(frozen=True)
class Factored:
    """Apply L matrices on the links of the graph whose product is ``1 1^T / M``, L the diameter or one more.

    No exact average takes fewer rounds than the diameter. A tree takes up to twice as many. The matrices come from a
    Levenberg-Marquardt search on ``|W_L ... W_1 - 1 1^T / M|^2``, once per graph, and are stored in the user's cache.
    Every round sends a message over all links, so a tree sends fewer bytes. A tree or a polynomial, whichever takes
    fewer rounds, is used instead if it needs no more rounds, if the search fails, or with more than 3,000 unknowns.

    On another processor the search may find other matrices, so all nodes must use the same ``factors`` (L, messages +
    M), entries row by row: with a transport, all nodes use those of the root of the tree.

    Parameters
    ----------
    factors : array of shape (L, messages + M), optional
        Entries of the matrices, the same at all nodes. By default they are searched for.
    """

    factors: np.ndarray | None = field(default=None, compare=False, repr=False)

    def prepare(self, weights: Weights) -> Average:
        factors, fallback = self.found(weights), _fallback(weights)
        if not 0 < len(factors) < fallback.rounds:
            return fallback
        matrices = _matrices(factors, _places(weights), weights.n_nodes)
        average = FactoredAverage(tuple(map(LinearRound, matrices)), weights.n_nodes)
        return average if average.accuracy <= ACCURACY else fallback

    def found(self, weights: Weights) -> np.ndarray:
        """The given factors, else those in the cache, else those of a new search, or (0, ...) if there are none."""
        if self.factors is not None:
            return self.factors
        places, fewest = _places(weights), weights.diameter
        if fewest * len(places) > LARGEST_POLYNOMIAL or _fallback(weights).rounds <= fewest:
            return np.empty((0, len(places)))
        name, most = _file_name(places), Tree().prepare(weights).rounds
        # If nodes are threads, one of them searches and the others wait for its result.
        with _searching:
            if name not in _in_memory:
                stored = _read(name, places)
                _store(name, _search(places, range(fewest, min(fewest + 2, most))) if stored is None else stored)
            return _in_memory[name]

    def shared(self, network: LinearNetwork, weights: Weights) -> Factored:
        """The same averaging with the factors of the root, sent down the tree. All nodes must call it together."""
        own = self.found(weights)
        # All nodes know this shape; rows of zeros are factors that are not needed.
        sent = np.zeros((1, weights.diameter + 1, own.shape[1]))
        sent[0, : len(own)] = own
        sent = Tree().prepare(weights).broadcast(network, sent)
        return Factored(_store(_file_name(_places(weights)), sent[0][sent[0].any(axis=1)]))


class FactoredAverage(Exchanges):
    """Factored averaging prepared for one network: an exchange for each factor."""

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        """``x <- W_l x`` for each factor: (nodes, ...) -> (nodes, ...)."""
        for factor in self.exchanges:
            (array,) = network.combine(factor, array)
        return array


def _fallback(weights: Weights) -> Average:
    """A tree, or a polynomial if that takes fewer rounds and is accurate."""
    tree = Tree().prepare(weights)
    if not weights.averages:
        return tree
    polynomial = Polynomial().prepare(weights)
    return polynomial if polynomial.rounds < tree.rounds and reaches(polynomial, DEFAULT_ACCURACY) else tree


def _places(weights: Weights) -> np.ndarray:
    """Row and column of the entries of a factor that may be nonzero, the links and the diagonal: (messages + M, 2)."""
    graph, nodes = weights.graph, np.arange(weights.n_nodes)
    # A link (sender, receiver) is the entry in row receiver, column sender.
    links = np.array(graph.edges if graph.is_directed() else graph.to_directed().edges, dtype=int).reshape(-1, 2)
    places = np.concatenate([links[:, ::-1], np.stack([nodes, nodes], axis=1)])
    return places[np.lexsort(places.T[::-1])]


def _matrices(factors: np.ndarray, places: np.ndarray, n_nodes: int) -> np.ndarray:
    """Entries (L, places) as matrices (L, M, M)."""
    matrices = np.zeros((len(factors), n_nodes, n_nodes))
    matrices[:, places[:, 0], places[:, 1]] = factors
    return matrices


def _file_name(places: np.ndarray) -> str:
    return f"factors-{hashlib.sha256(places.astype('<i8').tobytes()).hexdigest()[:32]}.npz"


def _read(name: str, places: np.ndarray) -> np.ndarray | None:
    """Factors in the user's cache, (L, places), or None if the file is missing, broken or wrong."""
    try:
        with open(cache_folder() / name, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            factors = np.asarray(arrays["factors"], dtype=float).reshape(-1, len(places))
    except Exception:  # broken files make NumPy and zipfile raise many kinds of exceptions
        return None
    is_correct = len(factors) == 0 or _Products(factors, places).size <= ACCURACY
    return factors if is_correct else None


def _store(name: str, factors: np.ndarray) -> np.ndarray:
    """Store factors (L, places) in memory and, if possible, in the user's cache, and return them."""
    _in_memory[name] = factors
    with contextlib.suppress(OSError, RuntimeError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        save_arrays(cache_folder() / name, {"factors": factors})
    return factors


def _search(places: np.ndarray, numbers: range) -> np.ndarray:
    """The first solution with one of these numbers of factors: (L, places), where L = 0 if there is none."""
    for n_factors, start in product(numbers, range(len(STARTS))):
        if n_factors * len(places) <= LARGEST_POLYNOMIAL and (factors := _solve(places, n_factors, start)) is not None:
            return factors
    return np.empty((0, len(places)))


class _Products:
    """Partial products of factors (L, places), and the residual ``W_L ... W_1 - 1 1^T / M``."""

    def __init__(self, factors: np.ndarray, places: np.ndarray) -> None:
        self.factors, self.places = factors, places
        n_nodes = int(places[-1, 0]) + 1
        matrices = _matrices(factors, places, n_nodes)
        self.before = [np.eye(n_nodes)]
        for matrix in matrices:
            self.before.append(matrix @ self.before[-1])
        self.after = [np.eye(n_nodes)]
        for matrix in matrices[:0:-1]:
            self.after.insert(0, self.after[0] @ matrix)
        self.residual = self.before.pop() - 1 / n_nodes
        self.size = float(np.linalg.norm(self.residual))

    def normal_equations(self) -> tuple[np.ndarray, np.ndarray]:
        """``J^T J`` and ``J^T r``. Entry (i, j) of factor l changes the product by ``after_l[:, i] before_l[j, :]``."""
        n_nodes, (rows, columns) = len(self.residual), self.places.T
        after, before = np.hstack(self.after), np.vstack(self.before)
        shift = n_nodes * np.arange(len(self.factors))[:, np.newaxis]
        i, j = (shift + rows).ravel(), (shift + columns).ravel()
        gradient = [(a.T @ self.residual @ b.T)[rows, columns] for a, b in zip(self.after, self.before, strict=True)]
        square = (after.T @ after)[i].take(i, axis=1)
        square *= (before @ before.T)[j].take(j, axis=1)
        return square, np.concatenate(gradient)


def _solve(places: np.ndarray, n_factors: int, start: int) -> np.ndarray | None:
    """Levenberg-Marquardt from row averages and noise: (n_factors, places), or None without a solution."""
    noise = STARTS[start] * np.random.default_rng(start).standard_normal((n_factors, len(places)))
    now = _Products((1 + noise) / np.bincount(places[:, 0])[places[:, 0]], places)
    damping, sizes = 1.0, [now.size]
    while now.size > SOLVED:
        stuck = len(sizes) > WINDOW and now.size > sizes[-1 - WINDOW] / FALL
        if stuck or len(sizes) > STEPS:
            return None
        then, damping = _step(now, damping)
        damping /= 8 if then.size < 0.7 * now.size else 3
        now = then
        sizes.append(now.size)
    return now.factors


def _step(now: _Products, damping: float) -> tuple[_Products, float]:
    """Better factors, and the damping that gave them, or the same factors if there are none."""
    from scipy.linalg import cho_factor, cho_solve

    square, gradient = now.normal_equations()
    diagonal = square.diagonal().copy()
    while damping < MOST_DAMPING:
        np.fill_diagonal(square, diagonal + damping)
        # With too little damping, rounding makes the matrix indefinite.
        with contextlib.suppress(np.linalg.LinAlgError):
            step = cho_solve(cho_factor(square, lower=True, check_finite=False), gradient, check_finite=False)
            then = _Products(now.factors - step.reshape(now.factors.shape), now.places)
            if then.size < now.size:
                return then, damping
        damping *= 4
    return now, damping
