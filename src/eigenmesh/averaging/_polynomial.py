"""Polynomial averaging: as few rounds as the spectrum of the network allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenmesh.arrays import Array
from eigenmesh.averaging._arnoldi import arnoldi_factors
from eigenmesh.averaging._base import Average, LinearNetwork, LinearRound, Mixing, ToAccuracy
from eigenmesh.averaging._gossip import Chebyshev
from eigenmesh.graphs import Weights

# With more nodes, computing all eigenvalues of W costs more than the rounds it saves.
LARGEST = 2048
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
    """

    def prepare(self, weights: Weights) -> Average:
        """Choose the degree from the spectrum of W."""
        chebyshev = Chebyshev(self.accuracy).prepare(weights)
        if weights.n_nodes == 1 or weights.n_nodes > LARGEST:
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
    """Polynomial averaging prepared for one network; ``rounds`` is the degree."""

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
