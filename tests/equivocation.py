"""A site that tells one neighbour other sums than the rest, and keeps what it learns; all else follows the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.averaging.integers import IntegerAverage, Wide
from eigenmesh.networks import Network
from eigenmesh.protocol import wire
from eigenmesh.protocol.outbox import Outbox
from eigenmesh.protocol.wire import Kind
from eigenmesh.solvers import block_krylov as _block_krylov
from processes import command

# What it lies about: the pooled means, the number of samples, or the first product, from which the next block is made.
MEAN, COUNT, BLOCK = "mean", "count", "block"
# How much larger the means are that it tells, and how many more samples.
SHIFT, MORE = 0.25, 1


class Liar:
    """The lies of a site, and its notes: all totals, the number of the first product, and its blocks."""

    def __init__(self, what: str, notes: Path) -> None:
        self.what, self._notes = what, notes
        self.totals: list[np.ndarray] = []
        self.first_product = -1
        self.blocks = noted_blocks(lambda blocks: None)

    def begins(self, is_product: bool) -> None:
        if is_product and self.first_product < 0:
            self.first_product = len(self.totals)

    def ends(self, total: np.ndarray) -> None:
        self.totals.append(total)
        totals = {f"total {number}": one for number, one in enumerate(self.totals)}
        blocks = {f"block {number}": one for number, one in enumerate(self.blocks)}
        np.savez(self._notes, first_product=self.first_product, **totals, **blocks)

    def lie(self, words: np.ndarray, n_nodes: int) -> np.ndarray:
        """What it tells in the place of the total of the present average."""
        if len(self.totals) != (self.first_product if self.what == BLOCK else 0):
            return words
        if self.what == BLOCK:
            return words + np.random.default_rng(0).integers(-(2**58), 2**58, words.shape).view(np.uint64)
        wide = Wide(n_nodes)
        values = wide.decode(words)
        if self.what == COUNT:
            values[..., 0] += MORE
        else:
            d = (values.shape[-1] - 1) // 2
            values[..., 1 : 1 + d] += values[..., :1] * SHIFT
        return wide.encode(values, range(len(values)))


def lying(what: str, victim: str, notes: Path, *words: str) -> None:
    """``command`` in a process that lies to one neighbour, or without one to all sites and to itself."""
    liar = Liar(what, notes)
    integer_mean, write, total = Network._integer_mean, Outbox.write, IntegerAverage.total
    told: dict[int, Any] = {}

    def mean(network: Any, integers: Any, array: Any, bound: Any) -> Any:
        liar.begins(bound is None and network.scales is not None)
        decoded = integer_mean(network, integers, array, bound)
        liar.ends(network.n_nodes * np.asarray(decoded)[0])
        return decoded

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
