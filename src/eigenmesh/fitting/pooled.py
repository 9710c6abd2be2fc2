"""What all nodes know together by sums of integers: moments or the covariance, and ranges of columns where needed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np

from eigenmesh import data
from eigenmesh.arrays import EPS, ITEM_BYTES, everywhere, namespace
from eigenmesh.averaging import IntegerAverage
from eigenmesh.certificate import ROUNDING
from eigenmesh.data import Covariance, CrossProducts, Formed, Moments, Place, Pooled
from eigenmesh.errors import DataError, RangeError
from eigenmesh.networks import Network
from eigenmesh.settings import Costs, Request
from eigenmesh.solvers import averaged

# Where no range was agreed, columns whose variances it changes by more than this share agree on one.
MOST_ROUNDED = data.MOST_ROUNDED
# Exponents of float64 are in a range above the lowest, which each search divides into smaller steps.
LOWEST_EXPONENT, EXPONENTS, STEPS = -1088, 2304, (192, 16, 4)


def pooled(network: Network, shards: data.Partition, request: Request, squares: bool) -> Pooled:
    """Moments, or with ``squares=False`` also the covariance of all samples, by one sum of integers over all nodes.

    Columns have the usual range at first. A node with a value beyond it sends random words instead of its own, so that
    the sum says nothing, and a random flag, which tells all nodes. Then, and where the range is far too wide, all agree
    on ranges, and sum again.

    Parameters
    ----------
    network : Network
        All nodes; with masks, nobody learns more than the sum.
    shards : Partition
        Samples of the nodes in this process.
    request : Request
        Scale, and what missing entries are.
    squares : bool
        Whether only sums of squares are needed, and no products of different columns.
    """
    fills = request.missing == "mean"
    form = CrossProducts.usual(shards.n_features, network.n_nodes, squares=squares, fills=fills, weighted=True)
    found = _sum_of_all(network, shards, form)
    # All nodes have the same total, so all take the same way.
    if found is None or not found.is_resolved(request.scale, MOST_ROUNDED):
        form = replace(form, exponents=agreed_exponents(network, shards))
        found = _sum_of_all(network, shards, form)
    if found is None:
        raise DataError("values are beyond the ranges that all nodes agreed on: samples changed during the fit.")
    return found


def _sum_of_all(network: Network, shards: data.Partition, form: CrossProducts) -> Pooled | None:
    """What the sum of all nodes says; None if a node has values beyond its ranges."""
    sent = np.zeros((len(shards.blocks), 1 + form.n_words), np.uint64)
    for position, words in enumerate(sent):
        try:
            words[1:] = form.encode(shards, position)
        except RangeError:
            # Not zeros: the sum of the others would show by difference what this node adds later.
            words[:] = _random_words(network, words.size)
    flag, *total = network.total(sent)[0]
    return form.decode(np.array(total)) if flag == 0 else None


def takes_one_sum(average: IntegerAverage, n_features: int, costs: Costs) -> bool:
    """Whether one sum of two words for each number is faster than one for the moments, then one of one word each.

    Parameters
    ----------
    average : IntegerAverage
        How the network sums integers.
    n_features : int
        d.
    costs : Costs
        Latency and bandwidth, the same at all nodes.
    """
    two = words_of_sum(n_features, squares=True) + n_features * (n_features + 1) // 2
    fewer = words_of_sum(n_features) - two
    return average.in_turn * ITEM_BYTES * fewer / costs.bandwidth_bytes_s <= average.rounds * costs.latency_s


def words_of_sum(n_features: int, squares: bool = False) -> int:
    """Words that a node sends for ``pooled``, one of them a flag.

    Parameters
    ----------
    n_features : int
        d.
    squares : bool
        As for ``pooled``.
    """
    return 1 + CrossProducts.usual(n_features, n_sites=1, squares=squares).n_words


def largest_sum(n_features: int, squares: bool) -> int:
    """Words of the largest message of ``pooled``, also if entries are missing or the nodes agree on ranges.

    Parameters
    ----------
    n_features : int
        d.
    squares : bool
        As for ``pooled``.
    """
    thresholds = max(width // step for width, step in pairwise((EXPONENTS, *STEPS)))
    return max(words_of_sum(n_features, squares) + 2 * n_features, thresholds * n_features)


def agreed_exponents(network: Network, shards: data.Partition) -> tuple[int, ...]:
    """Public exponents e_j with ``|x_j| <= 2^e_j`` at all nodes, by three sums of integers.

    For each of some thresholds, a node with a larger value adds a random word, and the others add 0: the sum is 0 only
    if no node has one. So all learn the largest exponent of each column, in steps of 4, and not whose it is.
    """
    own = [data.largest_values(shards, position) for position in range(len(shards.blocks))]
    exponents = np.array([np.where(one > 0, data.exponents_of(one), LOWEST_EXPONENT + 1) for one in own])
    below = np.full(shards.n_features, LOWEST_EXPONENT)
    for width, step in pairwise((EXPONENTS, *STEPS)):
        thresholds = below[:, np.newaxis] + np.arange(step, width, step)
        above = exponents[:, :, np.newaxis] > thresholds
        random = _random_words(network, above.size).reshape(above.shape)
        total = network.total(np.where(above, random, np.uint64(0)))[0]
        below = below + step * np.count_nonzero(total, axis=-1)
    return tuple((below + STEPS[-1]).tolist())


def _random_words(network: Network, count: int) -> np.ndarray:
    return np.frombuffer(network.private_bytes(8 * count), np.uint64)


def known_covariance(covariance: np.ndarray, error: float, place: Place) -> Formed:
    """The pooled covariance C (d, d), known up to an error ``|E|_2``, as that of a single node.

    Parameters
    ----------
    covariance : array of shape (d, d)
        C.
    error : float
        Bound of the error.
    place : Place
        Where the products are.
    """
    # The certificate takes the rounding of products from the size of C; this much more covers the error.
    size = float(np.linalg.eigvalsh(covariance)[-1]) + error / (ROUNDING * EPS)
    return Formed(place.put(covariance[np.newaxis]), rounding_size=size)


def summed_covariance(network: Network, covariance: Covariance, moments: Moments) -> Formed:
    """The pooled covariance as that of a single node, by one average of the covariances C_i about the pooled mean.

    No variance of C_i is negative, so ``sum_i |C_i,jk| <= M sqrt(C_jj C_kk)`` by Cauchy and Schwarz. An error of each
    entry of u times that is at most ``M u tr C`` in all; in integers it is ``M 2^-62 tr C`` in each column.

    Parameters
    ----------
    network : Network
        The network of all nodes, where all receive the same bits.
    covariance : Covariance
        C_i of the nodes in this process.
    moments : Moments
        Pooled moments.
    """
    d, trace = moments.n_features, moments.total_variance
    start = covariance.place(np.zeros((1, d, 1)))
    C, _ = averaged(covariance, network, everywhere(start, len(network.ids)))
    error = ROUNDING * EPS * max(trace, covariance.rounding_size)
    error += sqrt(d) * network.average.accuracy * trace if network.integers else network.n_nodes * EPS * trace
    return known_covariance(C[0], error, Place(namespace(start), start.device))
