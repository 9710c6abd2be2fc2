"""Monitoring of batches by Hotelling's T2 and the squared prediction error (SPE), with their limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.arrays import Array, like, namespace, to_numpy
from eigenmesh.data import Moments, Partition, distances, in_python, listed_columns, scaled_mean, spe_limit, t2_limit
from eigenmesh.errors import warn_user
from eigenmesh.events import BatchChecked

# Share of normal samples that may be beyond a limit. Limits are at 1 %, and accurate to a factor of two.
LARGEST_SHARE = 0.02
# Probability that a normal batch raises the alarm, by samples beyond a limit or by its mean.
FALSE_ALARM = 1e-3
STATISTICS = ("T2", "SPE")
# Numbers that a node sums over a batch, besides scores and features: the samples, then five per statistic.
NUMBERS = 11
# Quiet samples needed to estimate a variance, and new samples needed for a nearly Gaussian mean.
ENOUGH, FOR_A_MEAN = 50, 30
# Prior weight, in batches, of the assumption that batches differ only as much as their samples predict.
AS_EXPECTED = 10
# SPE is a difference of squares; below this share of them it is rounding.
ROUNDING = 1e-25


class Sums(NamedTuple):
    """Sums over samples, and over the batches that they came in; arrays (2,) are of T2 and SPE.

    beyond : samples beyond the limits; total, squares : sums of the values and of their squares; cut, cut_squares : the
    same with values clipped at the limits. Over batches that could be compared with earlier ones, compared : their
    number; apart : squared distances of their means, relative to what their samples predict; shift : T2 of their
    means.
    """

    samples: float
    beyond: np.ndarray
    total: np.ndarray
    squares: np.ndarray
    cut: np.ndarray
    cut_squares: np.ndarray
    compared: float
    apart: np.ndarray
    shift: float

    @classmethod
    def of(cls, numbers: np.ndarray) -> Sums:
        """The sums of one batch, from the totals over its nodes: (11,)."""
        n, (beyond, total, squares, cut, cut_squares) = float(np.rint(numbers[0])), numbers[1:].reshape(5, 2)
        # Counts are whole numbers, but come from a rounded average.
        return cls(n, np.rint(beyond), total, squares, cut, cut_squares, 0.0, np.zeros(2), 0.0)

    def plus(self, other: Sums) -> Sums:
        both: Any = zip(self, other, strict=True)
        return Sums(*(mine + theirs for mine, theirs in both))

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self.total / max(self.samples, 1))

    @property
    def variance(self) -> np.ndarray:
        return np.asarray(self.squares / max(self.samples, 1) - self.mean**2)

    @property
    def cut_mean(self) -> np.ndarray:
        return np.asarray(self.cut / max(self.samples, 1))

    @property
    def cut_variance(self) -> np.ndarray:
        variance, least = self.cut_squares / max(self.samples, 1) - self.cut_mean**2, 1e-12 * self.cut_mean**2
        return np.asarray(np.maximum(variance, least + np.finfo(float).tiny))

    @property
    def freedom(self) -> np.ndarray:
        """Degrees of freedom per sample for the mean of clipped values, ``h = 2 m^2 / (phi v)``.

        phi >= 1 is the variance of batch means, relative to that of samples from one distribution.
        """
        phi = np.maximum(1, (self.apart + AS_EXPECTED) / (self.compared + AS_EXPECTED))
        return np.asarray(2 * self.cut_mean**2 / (phi * self.cut_variance))


NOTHING = Sums.of(np.zeros(NUMBERS))


@dataclass(frozen=True, eq=False)
class Monitor:
    """Components (K, d) and variances (K,) after the last batch, its moments, and the sums over all quiet batches.

    A batch is quiet if it raised no alarm. With scores t and residual e of a sample that was not used for the
    components,

        T2 = sum_k t_k^2 / l_k > K (N^2 - 1) / (N (N - K)) F(K, N - K),    SPE = |e|^2 > g chi2(h)

    at 1 %, where g = v / 2m and h = 2 m^2 / v match the mean m and the variance v of SPE in the quiet batches.
    """

    components: np.ndarray
    variances: np.ndarray
    moments: Moments
    quiet: Sums = NOTHING

    @property
    def t2_limit(self) -> float:
        return t2_limit(self.moments.n_samples, len(self.variances))

    @property
    def quiet_spe(self) -> tuple[float, float] | None:
        """Mean and variance of SPE in the quiet batches. It is None before there were any."""
        if self.quiet.samples < 2:
            return None
        return float(self.quiet.mean[1]), float(self.quiet.variance[1])

    @property
    def spe_limit(self) -> float:
        """Limit of SPE. It is infinite before the first quiet batch."""
        return float("inf") if self.quiet_spe is None else spe_limit(*self.quiet_spe)

    @property
    def width(self) -> int:
        """Numbers that a node sums over a batch: of samples, of scores, and of features."""
        return NUMBERS + len(self.variances) + len(self.moments.mean)

    def statistics(self, rows: Array) -> tuple[Array, Array, Array]:
        """T2 and SPE of samples, and the squared residuals of their features: (n, d) -> (n,), (n,), (n, d)."""
        return distances(self._centred(rows), self.components, self.variances)

    def _centred(self, rows: Array) -> Array:
        centred = rows - like(self.moments.mean, rows)
        return centred if self.moments.scale is None else centred / like(self.moments.scale, rows)

    def node_sums(self, rows: Array) -> np.ndarray:
        """A node's part of the sums, of the scores, and of squared residuals by feature: (n, d) -> (11 + K + d,)."""
        xp, (t2, spe, squares) = namespace(rows), self.statistics(rows)
        scores = self.components @ to_numpy(xp.sum(self._centred(rows), axis=0))
        both, limits = np.stack([to_numpy(t2), to_numpy(spe)]), np.array([[self.t2_limit], [self.spe_limit]])
        cut = np.minimum(both, limits)
        sums = [each.sum(axis=1) for each in (both > limits, both, both**2, cut, cut**2)]
        return np.concatenate([[len(rows)], *sums, scores, to_numpy(xp.sum(squares, axis=0))])

    def read(self, numbers: np.ndarray) -> tuple[Sums, np.ndarray]:
        """The sums of a batch from the totals over all nodes, and the mean squared residuals of its features (d,)."""
        counted, scores, squares = np.split(numbers, [NUMBERS, NUMBERS + len(self.variances)])
        new, quiet, n = Sums.of(counted), self.quiet, max(float(np.rint(counted[0])), 1.0)
        if quiet.samples >= ENOUGH and new.samples:
            away = new.cut_mean - np.clip(new.cut_mean, *self._usual)
            apart = away**2 / (quiet.cut_variance * (1 / n + 1 / quiet.samples))
            of_mean = np.sum((scores / n) ** 2 / np.maximum(self.variances, np.finfo(float).tiny))
            shift = float(of_mean / (1 / n + 1 / self.moments.n_samples))
            new = new._replace(compared=1.0, apart=apart, shift=shift)
        return new, squares / n

    def checked(self, batch: int, new: Sums, variance_lost: float) -> BatchChecked:
        """The verdict on a batch, from its sums."""
        odd: list[str] = []
        if self.quiet.samples and new.samples:
            odd = [*self._odd_shares(new), *self._odd_means(new), *self._shifted(new)]
        t2_share, spe_share = map(float, new.beyond / max(new.samples, 1))
        return BatchChecked(batch, int(new.samples), variance_lost, t2_share, spe_share, bool(odd), "; ".join(odd))

    @property
    def _is_real(self) -> np.ndarray:
        """Whether T2 and SPE are more than rounding, (2,): if K = d, residuals are rounding."""
        means = scaled_mean(self.moments)
        least = ROUNDING * (self.moments.total_variance + float(means @ means))
        return np.array([True, self.quiet.mean[1] > least])

    def _odd_shares(self, new: Sums) -> list[str]:
        """Findings about too many samples beyond a limit."""
        # Imported here, because peers that do not monitor should not load it.
        from scipy import special

        # Real data are not Gaussian: the share beyond a limit in quiet batches is no reason for an alarm.
        usual = np.maximum(LARGEST_SHARE, self.quiet.beyond / self.quiet.samples)
        chances = np.where(self._is_real, special.bdtrc(new.beyond - 1, int(new.samples), usual), 1)
        found = zip(STATISTICS, new.beyond / new.samples, usual, chances, strict=True)
        return [
            f"{share:.1%} of its samples are beyond the limit of {name}, usual {most:.1%}"
            for name, share, most, chance in found
            if chance < FALSE_ALARM
        ]

    def _odd_means(self, new: Sums) -> list[str]:
        """Findings about means of clipped values that are too large or too small.

        If values are g chi2(h), the ratio of the mean of n new values to that of n' earlier ones is F(n h, n' h).
        """
        from scipy import special

        quiet = self.quiet
        if not new.compared:
            return []
        freedom, (low, high) = (new.samples * quiet.freedom, quiet.samples * quiet.freedom), self._usual
        larger, smaller = special.fdtrc(*freedom, new.cut_mean / high), special.fdtr(*freedom, new.cut_mean / low)
        chances = np.where(self._is_real, np.minimum(larger, smaller), 1)
        found = zip(STATISTICS, new.cut_mean / high, chances, strict=True)
        return [f"its mean {name} is {by:.2f} times the usual" for name, by, p in found if p < FALSE_ALARM / 2]

    @property
    def _usual(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of the expected means of clipped values: (2,), (2,).

        Samples that the components were fitted to have smaller distances than new ones, and earlier batches, compared
        with components of fewer samples, had larger ones. A quiet batch lies between the two.
        """
        N, mean, least = self.moments.n_samples, self.quiet.cut_mean, np.finfo(float).tiny
        beyond = max(self.moments.total_variance - float(np.sum(self.variances)), 0.0)
        moved = (N - 1) / N * np.array([len(self.variances), beyond]) / np.maximum(self.quiet.mean, least)
        return np.maximum(mean * np.clip(moved, 1e-9, 1), least), np.maximum(mean * np.maximum(moved, 1), least)

    def _shifted(self, new: Sums) -> list[str]:
        """Findings about a mean of the batch that has moved along the components.

        With n new samples and N before them, ``T2 = sum_k mean(t_k)^2 / l_k / (1/n + 1/N)`` of their mean scores is
        ``K (N - 1) / (N - K) F(K, N - K)``, times how much it was larger than K in quiet batches.
        """
        from scipy import special

        N, K = self.moments.n_samples, len(self.variances)
        if not new.compared or new.samples < FOR_A_MEAN or N <= K:
            return []
        as_before = (self.quiet.shift / K + AS_EXPECTED) / (self.quiet.compared + AS_EXPECTED)
        times = new.shift / (K * max(1.0, as_before))
        chance = special.fdtrc(K, N - K, times * (N - K) / (N - 1))
        return [f"T2 of its mean is {times:.1f} times the usual"] if chance < FALSE_ALARM else []

    def after(self, new: Sums, checked: BatchChecked) -> Sums:
        """The sums of all quiet batches, including this one if it raised no alarm."""
        return self.quiet if checked.alarm else self.quiet.plus(new)


# Warnings about columns that were probably not meant to be part of the data.


# A column with a larger share of the variance than this dominates all others.
MOST_SHARE = 0.9


def warn_of_columns(shards: Partition, moments: Moments) -> None:
    """Warn about suspicious pooled variances of named columns, only at the first node."""
    if 0 in shards.ids and shards.feature_names is not None:
        for finding in _findings(shards, shards.feature_names, moments):
            warn_user(finding)


def _findings(shards: Partition, names: tuple[str, ...], moments: Moments) -> Iterator[str]:
    """Warnings about a column that dominates all others, and about columns of files that are constant at all nodes."""
    share = moments.variance / moments.variance.sum()
    largest = int(np.argmax(share))
    if moments.scale is None and share[largest] > MOST_SHARE and len(names) > 2:
        fix = f"use scale=True if units differ, or leave it out, {in_python({'drop': [names[largest]]})}"
        column = shards.column_label(largest)
        yield f"{column} has {share[largest]:.1%} of the variance, and is component 1 alone; {fix}."
    constant = [names[column] for column in np.flatnonzero(moments.variance == 0)]
    if constant and moments.scale is not None:
        yield f"{len(constant):,} of {len(names):,} variants are the same in all samples, and are left out."
    elif constant and shards.blocks[0].place(0, 0) is not None:
        many = len(constant) > 1
        yield f"{listed_columns(constant)} {'are constant: they add' if many else 'is constant: it adds'} nothing."
