"""Moments of the samples of all nodes: one pass over the samples in this process, and one network average."""

from collections.abc import Callable
from functools import partial
from math import fsum
from typing import Protocol, TypeAlias

import numpy as np

from eigenmesh.data._centring import Centring
from eigenmesh.data._moments import MOST_LOST, Missing, Moments, Scaling, missing_policy, moments_about
from eigenmesh.data._shards import Shards
from eigenmesh.data._summaries import Columns, column_labels, count_and_sum, deviations
from eigenmesh.data._weights import whole_count, whole_counts
from eigenmesh.errors import DataError, InputError

# Function of the shards and of a node's position among the nodes in this process: a summary of its samples.
NodePart: TypeAlias = Callable[[Shards, int], np.ndarray]


class Averager(Protocol):
    """The part of a network that moments need: an exact average over all M nodes."""

    @property
    def n_nodes(self) -> int: ...

    def common_mean(self, array: np.ndarray, /) -> np.ndarray:
        """Average over all nodes: (nodes, ..) -> (copies, ..)."""

    def common_mean_and_worst(self, array: np.ndarray, values: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]:
        """The same, and elementwise maxima over all nodes, in the same messages."""

    def same_bits(self, common: np.ndarray, /) -> np.ndarray:
        """An average with the same bits at every node: (copies, ..) -> (1, ..)."""


def pooled_moments(
    shards: Shards, network: Averager, *, scale: Scaling = False, missing: Missing = "error", resolution: float = 0.0
) -> Moments:
    """Moments of the samples of all M nodes, by one pass over the data in this process and one network average.

    The average contains N, the sums and the sums of squares. If a mean is so large that their difference would lose
    digits, a second pass and average give the squared deviations from the mean, and the rounding error of the mean.
    Sums are in float64; data are read in chunks. A non-finite entry is an error, or with ``missing="mean"`` counts as
    the pooled mean of its column. With integer averages, ``resolution`` is the largest error of a sum; all nodes then
    get the same bits.
    """
    if network.n_nodes != shards.n_nodes:
        raise InputError(f"the network has {network.n_nodes} nodes but the data {shards.n_nodes}; make them equal.")
    positions = range(len(shards.blocks))

    def over_nodes(part: NodePart) -> np.ndarray:
        parts = np.stack([part(shards, position) for position in positions])
        # All nodes must centre about the same point: where means are large, even the last digits of a mean matter.
        return np.asarray(shards.n_nodes * network.same_bits(network.common_mean(parts))[0])

    fills = missing_policy(missing) == "mean"
    first = np.stack([count_and_sum(shards, position, fills) for position in positions])
    # With integers all nodes have the same pooled bits and decide by these; no node reveals its own numbers.
    integers = resolution > 0
    lost = np.array([[0.0 if integers else _lost_digits(one, shards.n_features, scale)] for one in first])
    pooled, agreed = network.common_mean_and_worst(first, lost)
    # A maximum has the same bits at all nodes, so either all or none of them make the second average.
    precise = None if integers else bool(agreed[0, 0] <= MOST_LOST)
    pooled = shards.n_nodes * network.same_bits(pooled)[0]
    return moments_by_sums(over_nodes, shards, pooled, precise, scale=scale, missing=missing, resolution=resolution)


def moments_by_sums(
    over_nodes: Callable[[NodePart], np.ndarray],
    columns: Columns,
    pooled: np.ndarray,
    precise: bool | None = None,
    *,
    scale: Scaling = False,
    missing: Missing = "error",
    whole: bool = True,
    resolution: float = 0.0,
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
    return moments_about(about, sums, observed, columns, scale=scale, whole=whole, resolution=resolution)


@np.errstate(all="ignore")
def _lost_digits(summary: np.ndarray, d: int, scale: Scaling) -> float:
    """Ratio of the squares to the squared deviations: in total or, with scaling, the largest of any column.

    ``max(sum q / sum (q - s^2 / n))`` for the sums s and the squares q, (d,) each, of a ``count_and_sum``.
    """
    sums, squares = summary[1 : 1 + d], summary[1 + d : 1 + 2 * d]
    observed = summary[1 + 2 * d :] if len(summary) > 1 + 2 * d else summary[0]
    centred = squares - np.where(observed > 0, sums**2 / observed, 0.0)
    if scale:
        squares, centred = squares[squares > 0], centred[squares > 0]
    else:
        # `fsum` rounds once, so it gives the same bits on every processor.
        squares, centred = np.array([[fsum(squares)], [fsum(centred)]])
    return float(np.max(np.where(centred > 0, squares / centred, np.inf), initial=1.0))


def own_moments(shards: Shards, *, scale: Scaling, missing: Missing) -> Moments:
    """Moments of the columns of one node that has all their samples, without messages."""
    first = count_and_sum(shards, 0, missing_policy(missing) == "mean")
    return moments_by_sums(lambda part: part(shards, 0), shards, first, scale=scale, missing=missing, whole=False)
