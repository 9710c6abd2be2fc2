"""Number of samples, mean and variance of each column, computed from sums about any centre."""

from dataclasses import dataclass
from math import fsum
from typing import Literal, TypeAlias

import numpy as np

from eigenmesh._lookup import lookup
from eigenmesh.data._centring import Centring
from eigenmesh.data._summaries import Columns, column_labels
from eigenmesh.errors import DataError

Missing: TypeAlias = Literal["error", "mean"]
# False, True for the standard deviation, or "binomial": that of allele counts, sqrt(2 p (1 - p)) for p = mean / 2.
Scaling: TypeAlias = bool | Literal["binomial"]
MISSING: dict[str, Missing] = {"error": "error", "mean": "mean"}
# If sums of squares exceed squared deviations by more than this factor, deviations are summed in a second pass.
MOST_LOST = 100.0
NO_VARIANCE = (
    "the total variance is zero: all samples are equal, or differ by less than 1e-160; give samples that differ."
)
# Largest relative rounding error of squared deviations in integers.
MOST_ROUNDED = 1e-12


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the pooled samples, the same at every node.

    n_samples : whole, unless rows have weights that do not sum to a whole number; mean, variance, scale : of each
    column, (d,). The variance has divisor N - 1. The scale is the standard deviation with divisor N, or the binomial
    one; None if columns are not scaled. n_missing : entries that count as the mean of their column; rest : rounding
    error of the mean in float64, (d,), if it matters next to the deviations, else None.
    """

    n_samples: float
    mean: np.ndarray
    variance: np.ndarray
    scale: np.ndarray | None = None
    n_missing: int = 0
    rest: np.ndarray | None = None

    @property
    def n_features(self) -> int:
        """d, of all nodes together."""
        return len(self.mean)

    @property
    def total_variance(self) -> float:
        """Trace of the pooled covariance, after any scaling."""
        # `fsum` rounds once, so it gives the same bits on every processor.
        return fsum(self.diagonal)

    @property
    def diagonal(self) -> np.ndarray:
        """Diagonal of the pooled covariance, after any scaling: (d,)."""
        return self.variance if self.scale is None else self.variance / self.scale**2

    def centring(self, n_nodes: int) -> Centring:
        """The map y -> a = sqrt(M/(N-1)) (y - mean) / scale, with which C_i = A_i^T A_i, eq (1)."""
        weight = np.sqrt(n_nodes / (self.n_samples - 1))
        factor = float(weight) if self.scale is None else weight / self.scale
        return Centring(self.mean, factor, self.n_missing > 0, self.rest)


def scaled_mean(moments: Moments) -> np.ndarray:
    """Mean of each column, after any scaling: (d,)."""
    return moments.mean if moments.scale is None else moments.mean / moments.scale


def missing_policy(name: str) -> Missing:
    """The policy for missing entries with this name, in any spelling."""
    return lookup("policy for missing entries", name, MISSING)


def _require_resolved(squares: np.ndarray, scale: Scaling, resolution: float, columns: Columns) -> None:
    """Raise if squared deviations (d,) are too small for sums in integers."""
    least = resolution / MOST_ROUNDED
    if not scale and squares.sum() < least * len(squares):
        raise DataError(
            f"squared deviations sum to {squares.sum():.2g} over all nodes, which integers in units of 2^-64 do not "
            f"resolve (at least {least * len(squares):.2g}); multiply the data by a constant, if samples differ at all."
        )
    # Copies of alleles are whole numbers: without squared deviations they are equal.
    small = (squares < least) & ((squares > 0) | (scale != "binomial"))
    if scale and small.any():
        names = column_labels(columns, small)
        raise DataError(
            f"integers do not resolve squared deviations below {least:.2g}; drop constant columns, and multiply others "
            f"by a constant: {names}."
        )


def _divisors(
    scale: Scaling, mean: np.ndarray, variance: np.ndarray, n_samples: float, columns: Columns
) -> np.ndarray | None:
    """Divisor of each column, (d,); None without scaling."""
    if not scale:
        return None
    if scale == "binomial":
        outside = (mean < -1e-9) | (mean > 2 + 1e-9)
        if outside.any():
            names = column_labels(columns, outside)
            raise DataError(
                f'scale="binomial" is for 0, 1 or 2 copies of an allele; means are outside 0..2 in {names}.'
            )
        # A column without variance is zero after centring, whatever its divisor: it is left out.
        return np.sqrt(np.where(variance > 0, mean * (1 - mean / 2), 1.0))
    outside = (variance <= 1e-200) | (variance >= 1e200)
    if outside.any():
        names = column_labels(columns, outside)
        raise DataError(f"variances must be in 1e-200..1e200 to scale by them; rescale {names}.")
    return np.asarray(np.sqrt(variance * ((n_samples - 1) / n_samples)))


def moments_about(
    about: Moments,
    sums: np.ndarray,
    observed: np.ndarray | float,
    columns: Columns,
    *,
    scale: Scaling,
    whole: bool = True,
    resolution: float = 0.0,
) -> Moments:
    """Moments from sums of deviations about any centre, (d,), with sums of their squares in ``about.variance``.

    The closer the centre is to the mean, the less precision is lost to cancellation. ``resolution`` is the largest
    error of a sum in integers; 0 for other averages.
    """
    n_samples = about.n_samples
    with np.errstate(over="ignore", invalid="ignore"):
        shift = sums / observed
        variance = np.maximum(about.variance - observed * shift**2, 0.0) / (n_samples - 1)
    mean, finite = about.mean + shift, np.isfinite(variance)
    if not finite.all():
        names = column_labels(columns, ~finite)
        raise DataError(f"the variance overflows float64 in {names}; divide these columns by a constant.")
    _require_resolved(variance * (n_samples - 1), scale, resolution, columns)
    # By rounding, a constant column has a spread of a few units in the last place of its mean.
    constant = np.sqrt(variance) <= 16 * np.finfo(np.float64).eps * np.abs(mean)
    if whole and constant.all():
        raise DataError(NO_VARIANCE)
    if scale == "binomial":
        variance = np.where(constant, 0.0, variance)
    elif scale and constant.any():
        raise DataError(
            f"scale=True would divide by zero in constant {column_labels(columns, constant)}; drop such columns."
        )
    if whole and not scale:
        require_range(float(variance.sum()))
    deviation = _divisors(scale, mean, variance, n_samples, columns)
    # An error delta of the mean adds delta delta^T to the covariance.
    rest = (about.mean - mean) + shift
    matters = bool(np.any(np.abs(rest) > 1e-9 * np.sqrt(variance)))
    return Moments(n_samples, mean, variance, deviation, about.n_missing, rest if matters else None)


def require_range(total: float) -> None:
    """Raise unless the square of the total variance is in the range of float64."""
    if not 1e-100 <= total <= 1e100:
        raise DataError(
            f"the total variance {total:.2g} must be in 1e-100..1e100; rescale the data, or use scale=True."
        )
