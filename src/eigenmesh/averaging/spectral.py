"""Gossip, plain or with Chebyshev acceleration. The number of rounds follows from the ends of the spectrum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import factorial
from typing import NamedTuple

import numpy as np

from eigenmesh import arrays as ea
from eigenmesh.arrays import Array
from eigenmesh.averaging.base import Average, LinearNetwork, LinearRound, Mixing, ToAccuracy, require_averaging
from eigenmesh.graphs import Weights, rounds_to_average


@dataclass(frozen=True)
class Gossip(ToAccuracy):
    """Apply W repeatedly: ``x <- W^L x`` with ``beta^L <= accuracy``.

    The simplest and slowest method: a baseline for the others.

    Parameters
    ----------
    accuracy : float
        Relative error of an average at which its rounds end.
    """

    def prepare(self, weights: Weights) -> GossipAverage:
        """Choose L from beta, the second largest modulus of an eigenvalue of W, or if W is not symmetric measure."""
        require_averaging(weights, "gossip")
        average = GossipAverage(LinearRound(weights.matrix), rounds_to_average(weights.spectrum, self.accuracy))
        return average if weights.symmetric else average.lengthened(self.accuracy)


@dataclass(frozen=True)
class GossipAverage(Mixing):
    """Plain gossip prepared for one network."""

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        for _ in range(self.rounds):
            (array,) = network.combine(self.mixing, array)
        return array


@dataclass(frozen=True)
class Chebyshev(ToAccuracy):
    """Apply the polynomial ``p_L(W)`` with ``p_L(1) = 1`` that is smallest on ``[lambda_M, lambda_2]``.

    With ``c`` and ``e`` the centre and half width of that interval and ``T_l`` the Chebyshev polynomials,

    ::

        p_L(w) = T_L((w - c) / e) / T_L((1 - c) / e).

    Both ends of the interval are used, because the symmetric interval [-beta, beta] would cost more rounds. If W is not
    symmetric, its eigenvalues do not lie on an interval, and plain gossip is used instead.

    Parameters
    ----------
    accuracy : float
        Relative error of an average at which its rounds end.
    """

    def prepare(self, weights: Weights) -> ChebyshevAverage | GossipAverage:
        """Choose L so that ``1 / T_L((1 - c) / e) <= accuracy``."""
        if not weights.symmetric:
            return Gossip(self.accuracy).prepare(weights)
        if weights.n_nodes == 1:
            return ChebyshevAverage.of_rounds(weights, 0)
        growth = ChebyshevAverage.of_rounds(weights, 1).growth
        return ChebyshevAverage.of_rounds(weights, max(1, math.ceil(math.acosh(1 / self.accuracy) / growth)))


@dataclass(frozen=True)
class ChebyshevAverage(Mixing):
    """Chebyshev averaging prepared for one network."""

    centre: float
    half_width: float

    @classmethod
    def of_rounds(cls, weights: Weights, rounds: int) -> ChebyshevAverage:
        """The polynomial of this many rounds, whatever its accuracy."""
        spectrum = weights.spectrum
        # On a complete graph all eigenvalues but the first are equal: the interval has width zero, and one round is
        # enough.
        half_width = max((spectrum.second - spectrum.smallest) / 2, 1e-15)
        return cls(LinearRound(weights.matrix), rounds, (spectrum.second + spectrum.smallest) / 2, half_width)

    @property
    def growth(self) -> float:
        """Increase of ``acosh(1 / accuracy)`` per round, without rounding errors."""
        return math.acosh((1 - self.centre) / self.half_width)

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        """Run the scaled recurrence: (nodes, ...) -> (nodes, ...).

        ``ratio_l = T_{l-1}(z) / T_l(z)`` at ``z = (1 - c) / e`` keeps every iterate an average of the input:
        ``x_{l+1} = 2 ratio_{l+1} / e (W - c) x_l - ratio_l ratio_{l+1} x_{l-1}``.
        """
        if self.rounds == 0:
            return array
        at_one = (1 - self.centre) / self.half_width
        (mixed,) = network.combine(self.mixing, array)
        previous, current = array, (mixed - self.centre * array) * (1 / (1 - self.centre))
        ratio = 1 / at_one
        for _ in range(self.rounds - 1):
            (mixed,) = network.combine(self.mixing, current)
            next_ratio = 1 / (2 * at_one - ratio)
            step = (2 * next_ratio / self.half_width) * (mixed - self.centre * current)
            previous, current = current, step - (ratio * next_ratio) * previous
            ratio = next_ratio
        return current


# The polynomial of W that averages in the fewest rounds over one-way links, where eigenvalues are complex.


# With more nodes, finding the polynomial takes longer than the rounds it saves.
MOST_NODES_ONE_WAY = 256


def arnoldi_factors(weights: Weights, accuracy: float, most: int) -> tuple[tuple[float, ...], ...]:
    """Factors of the residual polynomial of GMRES on ``A = I - W``: p(0) = 1 and ``|p(A) (I - 11^T/M)|`` least.

    Its roots are the harmonic Ritz values of Arnoldi's method on the matrices ``A^k (I - 11^T/M)``. In Leja order, each
    as far as possible from those before, they keep rounding small: 19 rounds to 1e-14 on a directed cycle of 20. A real
    root r gives the factor ``1 - A/r``, stored as (1/r,). A pair r, conj(r) gives ``1 - 2 Re(r)/|r|^2 A + A^2/|r|^2``,
    two numbers and two rounds. With more than 256 nodes the result is empty.
    """
    n_nodes = weights.n_nodes
    if n_nodes > MOST_NODES_ONE_WAY:
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


# Polynomial averaging: as few rounds as the spectrum of the network allows.


# With more nodes, computing all eigenvalues of W costs more than the rounds it saves.
MOST_NODES_TWO_WAY = 2048
# On long, thin graphs high degrees amplify rounding. An error up to this is accepted if it saves half the rounds.
ROUNDING_ALLOWED = 1e-10


@dataclass(frozen=True)
class Polynomial(ToAccuracy):
    """Apply the polynomial ``p(W)`` with ``p(1) = 1`` that is smallest on the actual eigenvalues of W.

    It is the residual polynomial of conjugate residuals on ``A = I - W``, which minimises ``sum_j p(w_j)^2`` over the
    distinct eigenvalues besides 1, so it is exact after as many rounds as there are of them: 10 on a cycle of 20, 6 on
    a hypercube of 64, the diameter on a path. Every node must know the graph, and computes its eigenvalues locally. The
    accuracy is measured in working precision. If the recurrence is too ill-conditioned, or Chebyshev needs no more
    rounds, or there are more than 2,048 nodes, Chebyshev is used instead. If W is not symmetric, it is the residual
    polynomial of GMRES, see ``arnoldi_factors``.

    Parameters
    ----------
    accuracy : float
        Relative error of an average at which its rounds end.
    """

    def prepare(self, weights: Weights) -> Average:
        """Choose the degree from the spectrum of W."""
        chebyshev = Chebyshev(self.accuracy).prepare(weights)
        if weights.n_nodes == 1 or weights.n_nodes > MOST_NODES_TWO_WAY:
            return chebyshev
        average = self._shortest(weights, most=chebyshev.rounds)
        is_shorter = average.rounds < chebyshev.rounds and average.accuracy <= self.accuracy
        is_half_as_long = 2 * average.rounds <= chebyshev.rounds and average.accuracy <= ROUNDING_ALLOWED
        return average if is_shorter or is_half_as_long else chebyshev

    def _shortest(self, weights: Weights, most: int) -> PolynomialAverage | ProductAverage:
        mixing = LinearRound(weights.matrix)
        if not weights.symmetric:
            factors = arnoldi_factors(weights, self.accuracy, most)
            return ProductAverage(mixing, sum(map(len, factors)), factors)
        steps, turns = _coefficients(distinct_eigenvalues(weights), self.accuracy, most)
        return PolynomialAverage(mixing, len(steps), steps, turns)


@dataclass(frozen=True)
class PolynomialAverage(Mixing):
    """Polynomial averaging prepared for one network, where ``rounds`` is the degree."""

    steps: tuple[float, ...]
    turns: tuple[float, ...]

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        """Run the recurrence ``r+ = r - a A p``, ``p+ = r+ + b p``: (nodes, ...) -> (nodes, ...)."""
        residual = direction = array
        for step, turn in zip(self.steps, self.turns, strict=True):
            (mixed,) = network.combine(self.mixing, direction)
            residual = residual - step * (direction - mixed)
            direction = residual + turn * direction
        return residual


@dataclass(frozen=True)
class ProductAverage(Mixing):
    """Polynomial averaging as a product of factors ``1 - a A`` and ``1 - a A + b A^2`` of ``A = I - W``.

    Each factor is (a,) or (a, b), and takes as many rounds as it has numbers.
    """

    factors: tuple[tuple[float, ...], ...]

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        for factor in self.factors:
            image, result = array, array
            for sign, coefficient in zip((-1, 1), factor, strict=False):
                (mixed,) = network.combine(self.mixing, image)
                image = image - mixed
                result = result + sign * coefficient * image
            array = result
        return array


def distinct_eigenvalues(weights: Weights) -> np.ndarray:
    """Distinct eigenvalues of W, without the 1 of the constant vectors, largest first: at most (M - 1,)."""
    matrix = weights.matrix if isinstance(weights.matrix, np.ndarray) else weights.matrix.toarray()
    values = np.linalg.eigvalsh(matrix)[-2::-1]
    # Equal eigenvalues differ by rounding only.
    return np.asarray(values[np.diff(values, prepend=np.inf) < -1e-12])


def _coefficients(eigenvalues: np.ndarray, accuracy: float, most: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Step and turn of each round of conjugate residuals on the diagonal matrix ``1 - eigenvalues``, (M,)."""
    # Extended precision if the platform has it: the coefficients are computed once and used many times.
    operator = 1 - eigenvalues.astype(np.longdouble)
    residual = np.ones_like(operator)
    direction, image = residual, operator * residual
    energy = residual @ (operator * residual)
    steps, turns = [], []
    for _ in range(min(most, len(operator))):
        step = energy / (image @ image)
        residual = residual - step * image
        next_energy = residual @ (operator * residual)
        turn = next_energy / energy
        steps.append(float(step))
        turns.append(float(turn))
        if np.max(np.abs(residual)) <= accuracy:
            break
        direction = residual + turn * direction
        image, energy = operator * direction, next_energy
    return tuple(steps), tuple(turns)


# Push sums: averages with weights that only conserve sums; random probes measure their accuracy.


# Random numbers per node that show the error of a push sum, and the chance that they understate it at any node. For a
# vector e of M weights, ``|e^T G|^2 / |e|^2`` is chi-squared with p = PROBES degrees of freedom: it is below x with a
# probability of at most ``(x / 2)^(p / 2) / (p / 2)!``.
PROBES, CHANCE = 16, 1e-13


class Probes(NamedTuple):
    """Random numbers known to all nodes and mixed with the data: their mean is known, and so is their error.

    start : (M, 16) standard normal numbers, from a seed that is not used twice.
    """

    start: np.ndarray

    @classmethod
    def drawn(cls, n_nodes: int, number: int) -> Probes:
        rows = [np.random.default_rng([0xA11, number, node]).standard_normal(PROBES) for node in range(n_nodes)]
        return cls(np.stack(rows))

    def error(self, mixed: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Bound of ``|e_i|``, where node i has ``mean + e_i^T (x - mean)``: (M,). It fails with chance CHANCE at most.

        The e_i are the same for everything that is mixed in the same rounds, whatever was lost or late.
        """
        deviation, half = mixed / y - self.start.mean(axis=0), PROBES // 2
        smallest = 2 * (factorial(half) * CHANCE / len(self.start)) ** (1 / half)
        return np.asarray(np.linalg.norm(deviation, axis=1) / np.sqrt(smallest))


@dataclass(frozen=True)
class PushSum(ToAccuracy):
    """Mix sums x and weights y, which start as ones, with columns that sum to one, and divide: ``x_i / y_i``.

    A node needs to know only its own links, so it works over links that are one-way, change or lose messages. On
    networks that change it continues until random numbers that are mixed in the same way have reached their mean, which
    all nodes know: this measures the accuracy of the average, and all nodes agree on it.

    Parameters
    ----------
    accuracy : float
        Relative error of an average at which its rounds end.
    """

    def prepare(self, weights: Weights) -> StaticPushSum:
        """Choose the number of rounds for fixed weights."""
        average = StaticPushSum(LinearRound(weights.matrix), rounds_to_average(weights.spectrum, self.accuracy))
        return average.lengthened(self.accuracy)


@dataclass(frozen=True)
class StaticPushSum(Mixing):
    """A push sum prepared for one network with fixed weights."""

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        xp = ea.namespace(array)
        y = xp.ones((array.shape[0], *[1] * (array.ndim - 1)), dtype=array.dtype, device=array.device)
        for _ in range(self.rounds):
            array, y = network.combine(self.mixing, array, y)
        return array / y

    def transposed_error(self, array: np.ndarray) -> np.ndarray:
        W, y = self.mixing.matrix, np.ones((len(array), 1))
        for _ in range(self.rounds):
            y = W @ y
        shares = array / y
        for _ in range(self.rounds):
            shares = W.T @ shares
        return np.asarray(shares - array.mean(axis=0))


@dataclass(frozen=True)
class PushSumAverage:
    """Cost of the last push sum on a changing network."""

    rounds: int
    messages: int
    in_turn: float
    accuracy: float

    def __call__(self, network: LinearNetwork, array: Array) -> Array:
        return network.reduced_mean(array)
