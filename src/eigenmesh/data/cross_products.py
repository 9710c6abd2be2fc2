"""N, sums and cross products of all samples as integers: one sum over the sites, from which follows the covariance.

A site sends ``[n, s, P]`` with ``s = sum x`` and the upper triangle of ``P = sum x x^T``. The sums over all sites give

    C = (P - s s^T / N) / (N - 1).

In floating point this difference loses all digits where means are large beside deviations. Here it does not: numbers
are integers in units of 2^-f of a public range, ``|x_j| <= 2^e_j`` at every site, and the difference is taken of
integers. With r the site's own mean, rounded to f/2 bits, ``R = x - r`` and ``t = sum R``,

    s = n r + t,    P = n r r^T + r t^T + t r^T + R^T R.

The products of r are exact. R^T R is exact in its leading bits: each number of R is an integer of 21 bits and a rest,
so that double precision adds 2,048 products of two such integers without rounding. An error of t hardly matters, since
the same t is in s and in P, where it cancels.

Numbers are pairs of 64-bit words, low and high, which are added in any order, so masks can hide them that cancel in the
sum. Either both words make one integer modulo 2^128, and the total is the sum and nothing else. Or words are added
modulo 2^64 each, and the lower word has room for the sum of all sites. Then the total also says how many carries there
are between the two words, which is up to M - 1 for each number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import Any

import numpy as np

from eigenmesh.arrays import EPS, is_sparse, to_numpy
from eigenmesh.data.block import Block
from eigenmesh.data.moments import Columns, Moments, Scaling, count_and_sum, moments_about
from eigenmesh.data.samples import Partition, whole_count, whole_counts
from eigenmesh.data.source import chunk_bytes
from eigenmesh.errors import DataError, RangeError
from eigenmesh.words import listed

# Range of a column for which none was agreed: about a million.
USUAL_EXPONENT = 20
# Most samples at all sites together, as a power of two.
MOST_SAMPLES = 31
# N is in units of 2^-60, which holds a sum of weights in double precision.
COUNT_BITS = 60
# So many products of two integers of so many bits add up without rounding.
LEADING_BITS, LEADING_ROWS = 21, 2048
# Columns to name in a message.
MOST_NAMED = 10
# Fewer rows at a time would mean longer sums of rests.
LEAST_ROWS = 16
# Half of double precision's spacing at 1: the largest relative error of one operation.
ROUNDING = EPS / 2
# What a site rounds off, in units: P by 1/2, and t by 1/2 where means of sites differ by all of the range.
UNITS_PER_SITE = 5
# Largest relative error of a variance: beyond it, there may be none.
MOST_NOISE = 0.1


@dataclass(frozen=True, eq=False)
class Pooled:
    """What the sum over all sites says about all samples together.

    Attributes
    ----------
    n_samples : float
        N; whole unless rows have weights.
    mean, rest : array of shape (d,)
        Mean of each column in float64, and what it lacks of the exact one.
    covariance : array of shape (d, d)
        C with divisor N - 1, or its diagonal, (d,), if only squares were summed.
    noise : array of shape (d,)
        An error of C that is due to the range of the columns: in C_jj at most ``noise_j``, in C_ij at most
        ``sqrt(noise_i noise_j)``.
    observed : array of shape (d,)
        Entries of each column that are not missing.
    """

    n_samples: float
    mean: np.ndarray
    rest: np.ndarray
    covariance: np.ndarray
    noise: np.ndarray
    observed: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """Variance of each column, (d,)."""
        return np.asarray(np.diagonal(self.covariance) if self.covariance.ndim == 2 else self.covariance)

    def moments(self, columns: Columns, scale: Scaling = False, most_rounded: float = MOST_NOISE) -> Moments:
        """The pooled moments, after the checks that all moments pass.

        Parameters
        ----------
        columns : Columns
            Names the columns in errors.
        scale : bool or "binomial"
            Whether columns are scaled, and by what.
        most_rounded : float
            Largest relative error of a variance that is allowed: of the total one or, with a scale, of each column.
        """
        N, observed, shift = self.n_samples, self.observed, self.rest
        missing = int(np.ceil(np.maximum(N - observed, 0.0).sum()))
        about = Moments(N, self.mean, self.variance * (N - 1) + observed * shift**2, n_missing=missing)
        limits: dict[str, Any] = {"resolution": self.noise * (N - 1), "most_rounded": most_rounded}
        return moments_about(about, observed * shift, observed, columns, scale=scale, **limits)

    def is_resolved(self, scale: Scaling, most_rounded: float) -> bool:
        """Whether the range of the columns changes variances by at most so much of them, as ``moments`` requires."""
        variance, noise = self.variance, self.noise
        if scale:
            # Copies of alleles are whole numbers: without variance they are equal.
            constant = (variance == 0) & (scale == "binomial")
            return bool((constant | (noise <= most_rounded * variance)).all())
        return fsum(noise) <= most_rounded * fsum(variance)

    def scaled(self, scale: np.ndarray | None) -> np.ndarray:
        """C, or with a scale (d,) the covariance of columns divided by it."""
        return self.covariance if scale is None else self.covariance / np.outer(scale, scale)

    def error(self, scale: np.ndarray | None = None) -> float:
        """Bound of ``|C - true C|_2``, of the scaled covariance if there is a scale (d,).

        It has three parts: rounding of R^T R beyond its leading bits, the units of the integers, and one rounding of
        each entry of C. With a scale, the error of each variance also changes the scale of its row and column.
        """
        divisor = np.ones(len(self.mean)) if scale is None else scale
        size, variance, noise = np.linalg.norm(self.scaled(scale)), self.variance / divisor**2, self.noise / divisor**2
        own = self._of_leading * variance + noise
        error = float(own.sum() + ROUNDING * size)
        if scale is None:
            return error
        # Variances are 1 here, up to N / (N - 1). The roundings are those of the scale and of the division by it.
        # Nothing is scaled in the row of a column without variance, which is zero.
        varies = variance > 0
        relative = float(np.max(own[varies] / variance[varies], initial=0.0)) + 16 * ROUNDING
        return error + 2 * relative * float(size)

    @property
    def _of_leading(self) -> float:
        # A rest is below 2^-22 of the largest number of a chunk, which is at most the norm of its column. The first
        # term covers all products with rests, in R^T R and in t; the second their sums over chunks of 16 rows or more.
        return (0.2 + self.n_samples / 2**23) * ROUNDING


@dataclass(frozen=True, eq=False)
class CrossProducts:
    """The format of the sum: what a site sends, and what the total says.

    ``np.sum(words, axis=0, dtype=np.uint64)`` adds the words of the sites::

        form = CrossProducts.usual(n_features=3, n_sites=2)
        total = sum(form.encode(shards, position) for position in range(2))
        C = form.decode(total).covariance

    Parameters
    ----------
    exponents : tuple of int
        Public e_j of each column: at every site, ``|x_j| <= 2^e_j``.
    n_sites : int
        M, the number of sites that add up their words.
    squares : bool
        Only the diagonal of P, for the moments alone.
    fills : bool
        For squares alone: whether entries may be missing, which count as the mean of their column. Then the number of
        those that are not is sent for each column.
    weighted : bool
        Whether rows may have weights; otherwise N must be whole.
    carries : bool
        Whether whoever adds up words carries from low to high ones, as ``eigenmesh.masking.sum_of_pairs`` does.
    """

    exponents: tuple[int, ...]
    n_sites: int
    squares: bool = False
    fills: bool = False
    weighted: bool = False
    carries: bool = False

    @classmethod
    def usual(cls, n_features: int, n_sites: int, **more: bool) -> CrossProducts:
        """The format for columns without an agreed range."""
        return cls((USUAL_EXPONENT,) * n_features, n_sites, **more)

    @property
    def n_features(self) -> int:
        return len(self.exponents)

    @property
    def low_bits(self) -> int:
        """Bits of the lower word; without carries, such that the sum of those of all sites fits."""
        return 64 if self.carries else 64 - max(1, (self.n_sites - 1).bit_length())

    @property
    def fraction(self) -> int:
        """f, bits of a unit below the range; even, so that a rounded mean has half of them."""
        return (63 + self.low_bits - MOST_SAMPLES) // 2 * 2

    @cached_property
    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of P that are sent."""
        d = self.n_features
        return (np.arange(d), np.arange(d)) if self.squares else np.triu_indices(d)

    @property
    def n_words(self) -> int:
        """Words of one site, two for each number."""
        return 2 * (1 + (1 + self.fills) * self.n_features + len(self.entries[0]))

    # At a site.

    def encode(self, shards: Partition, position: int) -> np.ndarray:
        """The words of one site: (n_words,) uint64, by two passes over its samples.

        DataError if an entry is not finite, and RangeError if one is beyond the range of its column: it names the
        column and the exponent that it needs.

        Parameters
        ----------
        shards : Partition
            Samples of the nodes in this process.
        position : int
            Which of these nodes.
        """
        first, d, block = count_and_sum(shards, position, self.fills), self.n_features, shards.blocks[position]
        half, scale = self.fraction // 2, -np.array(self.exponents)
        counts = first[1 + 2 * d :] if self.fills else np.full(d, first[0])
        with np.errstate(over="ignore"):  # values beyond the range are refused below
            mean = np.rint(np.ldexp(first[1 : 1 + d] / np.maximum(counts, np.finfo(float).tiny), scale + half))
        sums, products = _UnroundedSums(d), _UnroundedSums(d if self.squares else (d, d))
        for rows, columns, values in _pieces(block, whole_rows=not self.squares):
            if self.fills:
                values[~np.isfinite(values)] = np.nan
            scaled = self._within(shards, position, columns.start, values)
            deviation, lost = _difference(scaled, np.ldexp(mean[columns], -half))
            if self.fills:
                deviation, lost = (np.where(np.isfinite(scaled), part, 0.0) for part in (deviation, lost))
            weights = None if block.weights is None else block.weights[rows, np.newaxis]
            _add(sums, products, columns, deviation, lost, weights)
        n, r, t = _integers(np.ldexp(counts, COUNT_BITS), rounds=True), _integers(mean), sums.in_units(self.fraction)
        i, j = self.entries
        scattered = products.in_units(self.fraction + COUNT_BITS)
        scattered = scattered if self.squares else scattered[i, j]
        # In units of 2^-(f + 60), and rounded once. By rows, since each of these integers is an object.
        finer = n[i] * r[i] * r[j] + ((r[i] * t[j] + r[j] * t[i]) << (COUNT_BITS - half)) + scattered
        s = _rounded(n * r, COUNT_BITS - self.fraction + half) + t
        count = _integers(np.ldexp(first[:1], COUNT_BITS), rounds=True)
        return self._words(np.concatenate([count, n if self.fills else [], s, _rounded(finer, COUNT_BITS)]))

    def _within(self, shards: Partition, position: int, first: int, values: np.ndarray) -> np.ndarray:
        """Values of columns from the first on in units of their range; RangeError if one is beyond."""
        scaled = np.ldexp(values, -np.array(self.exponents[first : first + values.shape[1]]))
        beyond = np.flatnonzero(_largest(scaled) > 1)
        if not len(beyond):
            return np.asarray(scaled)
        needed = exponents_of(_largest(values[:, beyond]))
        labels = [shards.column_label(j) for j in (first + beyond).tolist()]
        some = list(zip(needed, labels, strict=True))[:MOST_NAMED]
        raise RangeError(
            f"{shards.node_label(position)} has values beyond the range 2^{self.exponents[first + beyond[0]]} of "
            f"{listed(labels, MOST_NAMED)}, so nothing is sent; agree on an exponent of at least "
            f"{', '.join(f'{e} in {label}' for e, label in some)}."
        )

    def _words(self, numbers: np.ndarray) -> np.ndarray:
        """Integers (n,) as words, all low ones first: (2 n,) uint64."""
        low, high = numbers & ((1 << self.low_bits) - 1), (numbers >> self.low_bits) & (2**64 - 1)
        return np.concatenate([low, high]).astype(np.uint64)

    # At a receiver.

    def decode(self, total: np.ndarray) -> Pooled:
        """All samples together, from the sum of the words of all sites: (n_words,) uint64.

        DataError unless it can be one: N is a whole number or, with weights, at most 2^31, no variance is negative, and
        no covariance is larger than its variances allow. The sum of words of which some are missing, doubled or masked
        with other keys is random, and never passes.

        Parameters
        ----------
        total : array of shape (n_words,)
            The sum modulo 2^64.
        """
        low, high = np.split(_integers(total), 2)
        size = 1 << 63 + self.low_bits
        numbers = ((high << self.low_bits) + low + size) % (2 * size) - size
        d, (i, j), f = self.n_features, self.entries, self.fraction
        first, n, s, P = np.split(numbers, np.cumsum([1, self.fills * d, d]))
        (N,) = first / (1 << COUNT_BITS)
        if not 0 <= N <= 2**MOST_SAMPLES or not (self.weighted or int(N) == N):
            raise _not_a_sum(f"N = {N:g} is not a number of samples")
        if N < 2:
            raise DataError(f"n_samples = {N:g} over all nodes; a covariance needs at least 2.")
        n = n if self.fills else np.broadcast_to(first, d)
        if not ((n > 0) & (n <= first)).all():
            raise _not_a_sum("the entries of a column are none, or more than samples")
        exponents = np.array(self.exponents)
        # In integers: N T = N P - s s^T, in units of 2^-2f, and N (N - 1) in units of 2^-120.
        scatter = ((n[i] * P) << (f - COUNT_BITS)) - s[i] * s[j]
        entries = (scatter / (n[i] * (first - (1 << COUNT_BITS)))).astype(np.float64)
        noise = np.full(d, UNITS_PER_SITE * self.n_sites * 2.0**-f / (N - 1))
        # Still in units of the ranges, where nothing can overflow.
        entries *= 2.0 ** (2 * COUNT_BITS - 2 * f)
        self._require_covariance(entries, noise[0])
        mean = _divided(s, n, COUNT_BITS - f)
        rest = _divided(s - _integers(np.ldexp(mean, f), rounds=True) * n // (1 << COUNT_BITS), n, COUNT_BITS - f)
        with np.errstate(over="ignore", under="ignore"):
            entries = np.ldexp(entries, exponents[i] + exponents[j])
            mean, rest, noise = np.ldexp(mean, exponents), np.ldexp(rest, exponents), np.ldexp(noise, 2 * exponents)
        if not self.squares:
            C = np.zeros((d, d))
            C[i, j] = C[j, i] = entries
        observed = np.asarray(n / (1 << COUNT_BITS), dtype=np.float64)
        return Pooled(whole_count(N), mean, rest, entries if self.squares else C, noise, whole_counts(observed, N))

    def _require_covariance(self, found: np.ndarray, noise: float) -> None:
        """Raise unless these entries can be of a covariance of numbers of at most 1, up to noise."""
        i, j = self.entries
        variance = found[i == j]
        # With divisor N - 1, the variance of numbers within -1 .. 1 is at most 2.
        wrong = ~((variance >= -noise) & (variance <= 2 + noise))
        if wrong.any():
            column = int(np.argmax(wrong))
            raise _not_a_sum(f"the variance of column {column} would be {variance[column]:.3g} of its squared range")
        deviations = np.sqrt(np.maximum(variance, 0) + noise)
        too_large = np.abs(found) > (1 + 1e-12) * deviations[i] * deviations[j]
        if too_large.any():
            first = int(np.argmax(too_large))
            raise _not_a_sum(
                f"columns {i[first]} and {j[first]} would have a covariance larger than their variances allow"
            )


def largest_values(shards: Partition, position: int) -> np.ndarray:
    """Largest modulus of each column at one site, (d,), by a pass over its samples; NaN and infinity do not count.

    Parameters
    ----------
    shards : Partition
        Samples of the nodes in this process.
    position : int
        Which of these nodes.
    """
    block = shards.blocks[position]
    largest = np.zeros(block.n_features)
    for _, columns, values in _pieces(block, whole_rows=False):
        largest[columns] = np.fmax(largest[columns], _largest(np.where(np.isfinite(values), values, 0.0)))
    return largest


def _largest(values: np.ndarray) -> np.ndarray:
    """Largest modulus of each column, of what is not NaN: (n, d) -> (d,)."""
    return np.asarray(np.fmax.reduce(np.abs(values), axis=0, initial=0.0))


def _pieces(block: Block, whole_rows: bool) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Triples (rows, columns, dense values in float64) that cover a block, of at most so many rows."""
    n_bytes = max(chunk_bytes(block.device), 8 * LEAST_ROWS * block.n_features)
    for rows, columns, piece in block.pieces(n_bytes, whole_rows=whole_rows):
        for start in range(0, piece.shape[0], LEADING_ROWS):
            part = piece[start : start + LEADING_ROWS]
            dense = to_numpy(part.toarray() if is_sparse(part) else part).astype(np.float64)
            yield slice(rows.start + start, rows.start + start + len(dense)), columns, dense


def exponents_of(largest: Sequence[float] | np.ndarray) -> np.ndarray:
    """Least exponents e with ``largest <= 2^e``: (d,) -> (d,) int.

    Parameters
    ----------
    largest : array of shape (d,)
        Largest modulus of each column.
    """
    # A power of two is its own bound.
    fractions, exponents = np.frexp(np.asarray(largest, dtype=np.float64))
    return np.asarray(np.where(fractions == 0.5, exponents - 1, exponents))


def _not_a_sum(what: str) -> DataError:
    return DataError(
        f"{what}: this is not the sum of all sites. One is missing, damaged, there twice, or has other ranges or keys."
    )


# Sums without rounding, as a value and what it lacks.


class _UnroundedSums:
    """A sum of float64 arrays as ``value + lacking``: what an addition rounds off is kept."""

    def __init__(self, shape: int | tuple[int, int]) -> None:
        self.value, self.lacking = np.zeros(shape), np.zeros(shape)

    def add(self, columns: slice, array: np.ndarray, more: np.ndarray) -> None:
        """Add an array to some columns, or to all rows and columns, and one that is small beside it."""
        value = self.value[columns]
        total = value + array
        before = total - array
        self.lacking[columns] += (value - before) + (array - (total - before)) + more
        self.value[columns] = total

    def in_units(self, bits: int) -> np.ndarray:
        """The sum as integers, in units of 2^-bits."""
        value, lacking = (_integers(np.ldexp(part, bits), rounds=True) for part in (self.value, self.lacking))
        return np.asarray(value + lacking)


def _add(
    sums: _UnroundedSums,
    products: _UnroundedSums,
    columns: slice,
    deviation: np.ndarray,
    lost: np.ndarray,
    weights: np.ndarray | None,
) -> None:
    """Add sums of rows ``R = deviation + lost``, (n, d), and their products; a row of weight w counts w times."""
    whole, rest = _leading(deviation, lost)
    counted, counted_rest = whole, rest
    if weights is not None:
        product, error = _product(weights, deviation)
        counted, counted_rest = _leading(product, error + weights * lost)
        # Rows times the root g of their weight, with the part of the weight that g^2 lacks.
        root = np.sqrt(weights)
        square, lacking = _product(root, root)
        correction = ((weights - square) - lacking) / (2 * root)
        product, error = _product(root, deviation)
        whole, rest = _leading(product, error + root * lost + correction * deviation)
    sums.add(columns, counted.sum(axis=0), counted_rest.sum(axis=0))
    if products.value.ndim == 1:
        products.add(columns, np.einsum("nd,nd->d", whole, whole), np.einsum("nd,nd->d", 2 * whole + rest, rest))
        return
    # With its transpose, this is all that has a rest.
    across = (whole + rest / 2).T @ rest
    products.add(columns, whole.T @ whole, across + across.T)


def _leading(value: np.ndarray, more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``value + more`` as multiples of 2^-21 of a power of two above each column, and the rest: (n, d) -> twice."""
    # Numbers near 1.5 2^(c + 31) have a spacing of 2^(c - 21).
    shifted = np.ldexp(1.5, exponents_of(np.abs(value).max(axis=0)) + 52 - LEADING_BITS)
    leading = (value + shifted) - shifted
    return leading, (value - leading) + more


def _difference(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``a - b``, and what it rounds off (Knuth)."""
    value = a - b
    other = a - value
    return value, (a - (value + other)) + (other - b)


def _product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``a b``, and what it rounds off (Dekker)."""
    value, (a1, b1) = a * b, (_half(a), _half(b))
    return value, ((a1 * b1 - value) + a1 * (b - b1) + (a - a1) * b1) + (a - a1) * (b - b1)


def _half(a: np.ndarray) -> np.ndarray:
    """The upper half of the digits."""
    shifted = a * (2.0**27 + 1)
    return np.asarray(shifted - (shifted - a))


def _integers(values: np.ndarray, rounds: bool = False) -> np.ndarray:
    """Whole numbers as Python's integers, which have no largest one."""
    integers = np.empty(values.size, object)
    integers[:] = [int(value) for value in (np.rint(values) if rounds else values).ravel().tolist()]
    return integers.reshape(values.shape)


def _rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """Integers over 2^bits, to the nearest."""
    return np.asarray((values + (1 << bits - 1)) >> bits)


def _divided(values: np.ndarray, by: np.ndarray, bits: int) -> np.ndarray:
    """``values / by 2^bits`` in float64, rounded once."""
    return np.asarray(np.ldexp((values / by).astype(np.float64), bits))
