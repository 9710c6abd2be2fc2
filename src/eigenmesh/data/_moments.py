"""Pooled number of samples, mean and variance, which every node needs before the first iteration."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import fsum
from typing import Literal, Protocol, TypeAlias

import numpy as np

from eigenmesh._lookup import lookup
from eigenmesh.data._centring import Centring
from eigenmesh.data._shards import Shards
from eigenmesh.data._summaries import Columns, column_labels, count_and_sum, deviations
from eigenmesh.data._weights import whole_count, whole_counts
from eigenmesh.errors import DataError, InputError

Missing: TypeAlias = Literal["error", "mean"]
# False, True for the standard deviation, or "binomial": that of allele counts, sqrt(2 p (1 - p)) for p = mean / 2.
Scaling: TypeAlias = bool | Literal["binomial"]
MISSING: dict[str, Missing] = {"error": "error", "mean": "mean"}
# Summary of one node's samples, given its position among the nodes held here.
NodePart: TypeAlias = Callable[[Shards, int], np.ndarray]
# Squares may be this many times larger than squared deviations before those are summed in a pass of their own.
MOST_LOST = 100.0
NO_VARIANCE = (
    "the total variance is zero: all samples are equal, or differ by less than 1e-160; give samples that differ."
)
# Share of the squared deviations that integers may round off.
MOST_ROUNDED = 1e-12


class Averager(Protocol):
    """The part of a network that moments need: an exact average over all M nodes."""

    @property
    def n_nodes(self) -> int: ...

    def common_mean(self, array: np.ndarray, /) -> np.ndarray:
        """Average over all nodes: (nodes, ..) -> (1, ..)."""

    def common_mean_and_worst(self, array: np.ndarray, values: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]:
        """The same, and elementwise maxima over all nodes, in the same messages."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the pooled samples, the same at every node.

    n_samples: whole, unless rows have weights that do not add up to a whole number. mean, variance, scale: of each
    column, (d,). The variance has divisor N - 1. The scale is the standard deviation
    with divisor N, or the binomial one; None if columns are not scaled. n_missing: entries that count as the mean of
    their column. rest: what float64 rounds off the mean, (d,), where that is felt beside the deviations; else None.
    own_sums: not pooled but those of the one node held here, (d,), if its pass over the samples took them; else None.
    """

    n_samples: float
    mean: np.ndarray
    variance: np.ndarray
    scale: np.ndarray | None = None
    n_missing: int = 0
    rest: np.ndarray | None = None
    own_sums: np.ndarray | None = None

    @property
    def n_features(self) -> int:
        """d, of all nodes together."""
        return len(self.mean)

    @property
    def total_variance(self) -> float:
        """Trace of the pooled covariance, after any scaling."""
        # Rounded once, so that it is the same on every processor.
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


def missing_policy(name: str) -> Missing:
    """The policy for missing entries of that name, in any spelling."""
    return lookup("policy for missing entries", name, MISSING)


def pooled_moments(
    shards: Shards,
    network: Averager,
    *,
    scale: Scaling = False,
    missing: Missing = "error",
    facts: np.ndarray | None = None,
    check: Callable[[np.ndarray], None] = lambda agreed: None,
    resolution: float = 0.0,
    squares: np.ndarray | None = None,
) -> Moments:
    """Moments of all M nodes' samples, by one pass over the data held here and one network average.

    It carries N, the sums and the sums of squares. Where a mean is so large that their difference would lose digits, a
    second pass and average take the squared deviations from the mean, and what was rounded off the mean. Accumulates in
    float64; reads in chunks. A non-finite entry is an error, or with ``missing="mean"`` counts as the pooled mean of
    its column. Maxima of the ``facts`` over all nodes ride along, and are given to ``check`` before anything else.
    With averages in integers, ``resolution`` is the largest error of a sum; all nodes then get the same bits. If one
    node is held here, its sums of ``squares`` (d,) may be known already.
    """
    if network.n_nodes != shards.n_nodes:
        raise InputError(f"the network has {network.n_nodes} nodes but the data {shards.n_nodes}; make them equal.")
    positions = range(len(shards.blocks))

    def over_nodes(part: NodePart) -> np.ndarray:
        parts = np.stack([part(shards, position) for position in positions])
        return np.asarray(shards.n_nodes * network.common_mean(parts)[0])

    fills = missing_policy(missing) == "mean"
    first = np.stack([count_and_sum(shards, position, fills, squares) for position in positions])
    # Nodes that have the same bits decide by the pooled numbers, and none shows its own.
    integers = resolution > 0
    lost = np.array([[0.0 if integers else _lost_digits(one, shards.n_features, scale)] for one in first])
    ridden = lost if facts is None else np.hstack([lost, np.broadcast_to(facts, (len(first), len(facts)))])
    pooled, agreed = network.common_mean_and_worst(first, ridden)
    check(np.asarray(agreed[0, 1:]))
    # The maximum over the nodes, the same bits at each, so all of them make the second average or none does.
    precise = None if integers else bool(agreed[0, 0] <= MOST_LOST)
    pooled = shards.n_nodes * pooled[0]
    moments = moments_by_sums(over_nodes, shards, pooled, precise, scale=scale, missing=missing)
    require_resolved(moments, resolution, shards)
    return replace(moments, own_sums=first[0, 1 : 1 + shards.n_features]) if len(first) == 1 else moments


def require_resolved(moments: Moments, resolution: float, columns: Columns) -> None:
    """Raise where squared deviations are so small that sums in integers round off what matters."""
    squares = moments.variance * (moments.n_samples - 1)
    least = resolution / MOST_ROUNDED
    if moments.scale is None and squares.sum() < least * len(squares):
        raise DataError(
            f"squared deviations add up to {squares.sum():.2g} over all nodes, which integers of units of 2^-64 do not "
            f"resolve (at least {least * len(squares):.2g}); multiply the data by a constant."
        )
    small = (squares < least) & (squares > 0)
    if moments.scale is not None and small.any():
        names = column_labels(columns, small)
        raise DataError(
            f"integers do not resolve squared deviations below {least:.2g}; multiply by a constant: {names}."
        )


def moments_by_sums(
    over_nodes: Callable[[NodePart], np.ndarray],
    columns: Columns,
    pooled: np.ndarray,
    precise: bool | None = None,
    *,
    scale: Scaling = False,
    missing: Missing = "error",
    whole: bool = True,
) -> Moments:
    """``pooled_moments`` for any way to sum a summary over all nodes, from the sum of ``count_and_sum``.

    ``whole`` is False for a part of the columns: all of these may be constant, and only their total has limits.
    """
    d, fills = columns.n_features, missing_policy(missing) == "mean"
    n_samples = whole_count(float(pooled[0]))
    if n_samples < 2:
        fix = "where rows have weights, these are numbers of samples"
        raise DataError(f"n_samples = {n_samples:g} over all nodes; a covariance needs at least 2 ({fix}).")
    sums, squares = pooled[1 : 1 + d], pooled[1 + d : 1 + 2 * d]
    observed = pooled[1 + 2 * d :] if fills else np.full(d, pooled[0])
    observed = whole_counts(observed, n_samples)
    absent = observed == 0
    if absent.any():
        raise DataError(f"no node has a finite entry in {column_labels(columns, absent)}; drop such columns.")
    mean, n_missing = sums / observed, int(np.ceil(np.maximum(n_samples - observed, 0.0).sum())) if fills else 0
    about = Moments(n_samples, np.zeros(d), squares, n_missing=n_missing)
    if precise is None:
        precise = _lost_digits(pooled, d, scale) <= MOST_LOST
    if not precise:
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported by column below
            sums, squares = over_nodes(partial(deviations, centring=Centring(mean, fills=n_missing > 0)))
        about = Moments(n_samples, mean, squares, n_missing=n_missing)
    return moments_about(about, sums, observed, columns, scale=scale, whole=whole)


@np.errstate(all="ignore")
def _lost_digits(summary: np.ndarray, d: int, scale: Scaling) -> float:
    """How many times the squares are larger than the squared deviations: all together or, to scale, in any column."""
    sums, squares = summary[1 : 1 + d], summary[1 + d : 1 + 2 * d]
    observed = summary[1 + 2 * d :] if len(summary) > 1 + 2 * d else summary[0]
    away = squares - np.where(observed > 0, sums**2 / observed, 0.0)
    # Sums that are rounded once are the same on every processor.
    squares, away = (squares[squares > 0], away[squares > 0]) if scale else np.array([[fsum(squares)], [fsum(away)]])
    return float(np.max(np.where(away > 0, squares / away, np.inf), initial=1.0))


def _divisors(
    scale: Scaling, mean: np.ndarray, variance: np.ndarray, n_samples: float, columns: Columns
) -> np.ndarray | None:
    """What each column is divided by, (d,)."""
    if not scale:
        return None
    if scale == "binomial":
        outside = (mean < -1e-9) | (mean > 2 + 1e-9)
        if outside.any():
            names = column_labels(columns, outside)
            raise DataError(
                f'scale="binomial" is for 0, 1 or 2 copies of an allele; means are outside 0..2 in {names}.'
            )
        # A column without variance is zero when it is centred: it is left out, whatever it is divided by.
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
) -> Moments:
    """Moments from sums of deviations (d,) and, in place of the variance, of their squares about any centre.

    The nearer the centre is to the mean, the less precision is lost to cancellation.
    """
    n_samples = about.n_samples
    with np.errstate(over="ignore", invalid="ignore"):
        shift = sums / observed
        variance = np.maximum(about.variance - observed * shift**2, 0.0) / (n_samples - 1)
    mean, finite = about.mean + shift, np.isfinite(variance)
    if not finite.all():
        names = column_labels(columns, ~finite)
        raise DataError(f"the variance overflows float64 in {names}; divide these columns by a constant.")
    # A constant column has a spread of some units in the last place of its mean, by rounding.
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
        require_range(float(variance.sum()), columns.dtype)
    deviation = _divisors(scale, mean, variance, n_samples, columns)
    # A mean that is off by delta adds delta delta^T to the covariance.
    rest = (about.mean - mean) + shift
    felt = bool(np.any(np.abs(rest) > 1e-9 * np.sqrt(variance)))
    return Moments(n_samples, mean, variance, deviation, about.n_missing, rest if felt else None)


def require_range(total: float, dtype: np.dtype) -> None:
    """Raise unless squares of the total variance stay in the range of the dtype."""
    limit = 1e15 if dtype == np.float32 else 1e100
    if not 1 / limit <= total <= limit:
        bounds = f"{1 / limit:g}..{limit:g} for {dtype}"
        raise DataError(f"the total variance {total:.2g} must be in {bounds}; rescale the data, or use scale=True.")


def own_moments(shards: Shards, *, scale: Scaling, missing: Missing) -> Moments:
    """Moments of the columns of one node that has all samples of them, without any message."""
    first = count_and_sum(shards, 0, missing_policy(missing) == "mean")
    return moments_by_sums(lambda part: part(shards, 0), shards, first, scale=scale, missing=missing, whole=False)
