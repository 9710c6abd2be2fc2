"""A site that tells one neighbour other sums than the rest, and keeps what it learns; all else follows the protocol."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.averaging.integers import IntegerAverage
from eigenmesh.data import CrossProducts
from eigenmesh.data.cross_products import COUNT_BITS, USUAL_EXPONENT
from eigenmesh.networks import Network
from eigenmesh.protocol import wire
from eigenmesh.protocol.outbox import Outbox
from eigenmesh.protocol.wire import Kind
from eigenmesh.solvers import block_krylov as _block_krylov
from processes import command

# What it lies about: the pooled means, the number of samples, whether a site has values beyond the usual range, or the
# first product, from which the next block is made.
MEAN, COUNT, RANGE, BLOCK = "mean", "count", "range", "block"
# How much larger the means are that it tells, and how many more samples.
SHIFT, MORE = 0.25, 1


def told_sum(words: np.ndarray, what: str, n_sites: int) -> np.ndarray:
    """What it tells in the place of the sum of all moments, a flag and the words of ``CrossProducts``: (n,) -> (n,).

    Larger means come with sums of squares from which follow the mean squares about these means.
    """
    flag, *sums = words.tolist()
    form = CrossProducts.usual((len(sums) // 2 - 1) // 2, n_sites, squares=True, weighted=True)
    low, high = np.array(sums, dtype=object).reshape(2, -1)
    numbers, d = low + (high << form.low_bits), form.n_features
    if what == COUNT:
        numbers[0] += MORE << COUNT_BITS
    if what == RANGE:
        flag += 1
    if what == MEAN:
        unit = Fraction(2) ** (form.fraction - USUAL_EXPONENT)
        N, s = Fraction(numbers[0], 1 << COUNT_BITS), numbers[1 : 1 + d].copy()
        numbers[1 : 1 + d] += round(N * Fraction(SHIFT) * unit)
        squares = [2 * Fraction(SHIFT) * (Fraction(int(one)) / unit + N * Fraction(SHIFT)) for one in s]
        numbers[1 + d :] += [round(one * unit / 2**USUAL_EXPONENT) for one in squares]
    return np.array([flag, *form._words(numbers).tolist()], np.uint64)


class Liar:
    """The lies of a site, and its notes: all totals, the number of the first product, and its blocks."""

    def __init__(self, what: str, notes: Path) -> None:
        self.what, self._notes = what, notes
        self.totals: list[np.ndarray] = []
        self.first_product = -1
        self.blocks = noted_blocks(lambda blocks: None)

    def begins_product(self) -> None:
        if self.first_product < 0:
            self.first_product = len(self.totals)

    def ends(self, total: np.ndarray) -> None:
        self.totals.append(total)
        totals = {f"total {number}": one for number, one in enumerate(self.totals)}
        blocks = {f"block {number}": one for number, one in enumerate(self.blocks)}
        np.savez(self._notes, first_product=self.first_product, **totals, **blocks)

    def lie(self, words: np.ndarray, n_nodes: int) -> np.ndarray:
        """What it tells in the place of the total of the present sum."""
        if len(self.totals) != (self.first_product if self.what == BLOCK else 0):
            return words
        if self.what == BLOCK:
            return words + np.random.default_rng(0).integers(-(2**58), 2**58, words.shape).view(np.uint64)
        return np.stack([told_sum(own, self.what, n_nodes) for own in words])


def lying(what: str, victim: str, notes: Path, *words: str) -> None:
    """``command`` in a process that lies to one neighbour, or without one to all sites and to itself."""
    liar = Liar(what, notes)
    integer_mean, write, total, words_of = Network._integer_mean, Outbox.write, IntegerAverage.total, Network.total
    told: dict[int, Any] = {}
    averages = False

    def mean(network: Any, integers: Any, array: Any, bound: Any) -> Any:
        nonlocal averages
        if bound is None and network.scales is not None:
            liar.begins_product()
        averages = True
        decoded = integer_mean(network, integers, array, bound)
        averages = False
        liar.ends(network.n_nodes * np.asarray(decoded)[0])
        return decoded

    def noted_words(network: Any, own: Any) -> Any:
        summed = words_of(network, own)
        if not averages:
            liar.ends(summed[0])
        return summed

    def twisted(outbox: Any, link: Any, message: Any, stream: int | None = None) -> None:
        if message.kind is Kind.DATA and link.name == victim:
            if message.round not in told:
                told[message.round] = _changed(outbox, message, liar)
            message = told[message.round]
        write(outbox, link, message, stream)

    def changed_total(average: Any, network: Any, own: Any) -> Any:
        for level in average.over.up:
            (own,) = network.combine(level, own)
        return average.over.broadcast(network, liar.lie(own, average.n_nodes))

    Network._integer_mean = mean  # type: ignore[method-assign]
    Network.total = noted_words  # type: ignore[method-assign]
    Outbox.write = twisted  # type: ignore[method-assign]
    IntegerAverage.total = total if victim else changed_total  # type: ignore[method-assign]
    command(*words)


def _changed(outbox: Any, message: Any, liar: Liar) -> Any:
    """The message with a lie in it, if it carries the total of an average."""
    frame = wire.decode(message.frame, outbox.setup.run.max_message_bytes)
    if frame.arrays[0].dtype != np.uint64:
        return message
    lie = liar.lie(frame.arrays[0].copy(), len(outbox.epoch.members))
    body = wire.array_body((lie, *frame.arrays[1:]), outbox.setup.run.max_message_bytes)
    return outbox.message(Kind.DATA, body, message.round, message.tag, frame.acknowledged)


def noted_blocks(save: Any) -> list[np.ndarray]:
    """The blocks that the solver of this process multiplies with from now on."""
    products, blocks = _block_krylov.BlockProducts, list[np.ndarray]()

    def noted(covariance: Any, X: Any, *rest: Any) -> Any:
        blocks.append(np.array(X[0]))
        save(blocks)
        return products(covariance, X, *rest)

    _block_krylov.BlockProducts = noted  # type: ignore[assignment,misc]
    return blocks


def noting_blocks(notes: Path, *words: str) -> None:
    """``command`` in a process that notes its blocks."""
    noted_blocks(lambda blocks: np.savez(notes, *blocks))
    command(*words)
