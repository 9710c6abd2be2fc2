"""Sites that follow the protocol and analyse what they get: how they work out a covariance, and how well."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from eigenmesh import graphs, run
from eigenmesh.averaging import Averaging
from eigenmesh.averaging.integers import Scaled
from eigenmesh.data import Shards, build_covariance, pooled_moments
from eigenmesh.fitting.networks import add_masks
from eigenmesh.fitting.pooled import pooled
from eigenmesh.masking import Transcript
from eigenmesh.networks import Peers
from eigenmesh.settings import Request
from eigenmesh.solvers import BlockKrylov
from eigenmesh.transports import Transport, run_threads

D, K, M = 40, 5, 4

# Blocks and what was sent of each site's products with them, by site.
Products = list[tuple[np.ndarray, dict[int, np.ndarray]]]


class Seen(NamedTuple):
    """One product at a curious site: the block, what masks were bound to, what it sent and got, in order.

    Masks are bound to the ``number`` of the average, and to what the site has ``heard`` before.
    """

    block: np.ndarray
    number: int
    heard: Transcript | None
    sent: list[np.ndarray]
    got: dict[int, list[np.ndarray]]


class Curious:
    """A site that follows the protocol and keeps what it multiplies, sends and gets, as arrays of a product's shape."""

    def __init__(self, transport: Transport, network: Peers) -> None:
        self.seen: list[Seen] = []
        self._exchange, self._network = transport.exchange, network
        transport.exchange = self._listen  # type: ignore[method-assign]

    def watching(self, covariance: Any) -> Any:
        apply = covariance.apply

        def watched(X: np.ndarray) -> np.ndarray:
            masking = self._network.masking
            heard = None if masking is None else copy.copy(masking.masks[0].transcript)  # type: ignore[attr-defined]
            self.seen.append(Seen(X[0].copy(), -1 if masking is None else masking.number, heard, [], {}))
            return apply(X)

        object.__setattr__(covariance, "apply", watched)
        return covariance

    def _listen(self, arrays: Any, links: Any) -> Any:
        received = self._exchange(arrays, links)
        if self.seen:
            now = self.seen[-1]
            if links.send_to:
                now.sent.extend(self._products(arrays))
            for sender, theirs in received.items():
                now.got.setdefault(sender, []).extend(self._products(theirs))
        return received

    def _products(self, arrays: Any) -> list[np.ndarray]:
        first, shape = arrays[0], self.seen[-1].block.shape
        return [first[0].copy()] if first.ndim == 3 and first.shape[1:] == shape else []


class Watched(NamedTuple):
    """What the spies of a run saw, and the keys for masks that they share, both by site; and every true covariance.

    ``scaled`` says which numbers the integers of a product stand for; None if numbers were sent.
    """

    seen: dict[int, list[Seen]]
    keys: dict[int, dict[int, bytes]]
    scaled: Scaled | None
    true: list[np.ndarray]

    def products(self, spy: int) -> Products:
        """What one spy has got first of each neighbour after each product."""
        return [
            (one.block, {sender: self.decoded(arrays[0]) for sender, arrays in one.got.items() if arrays})
            for one in self.seen[spy]
        ]

    def decoded(self, words: np.ndarray) -> np.ndarray:
        return words if self.scaled is None else self.scaled.decode(words)


def watched(
    sizes: Sequence[int],
    topology: nx.Graph,
    averaging: Averaging,
    spies: Sequence[int],
    oversample: int = 5,
    masked: bool = False,
) -> Watched:
    """A run with real messages between threads, at sites with so many samples."""
    rng, scales = np.random.default_rng(1), np.linspace(3, 0.3, D)
    parts = [rng.standard_normal((size, D)) * scales for size in sizes]
    shards, weights = Shards.from_list(parts), graphs.metropolis(topology)

    def work(transport: Transport) -> Any:
        network, own = Peers(weights, transport, averaging), shards.take([transport.rank])
        if masked:
            add_masks(network)
        integers = network.integers is not None
        moments = pooled(network, own, Request(), True).moments(own) if integers else pooled_moments(own, network)
        network.learn_scales(moments.diagonal)
        covariance, curious = build_covariance(own, moments), None
        if transport.rank in spies:
            curious = Curious(transport, network)
            covariance = curious.watching(covariance)
        run(BlockKrylov(oversample), covariance, network, K, tol=1e-9)
        keys = network.masking.masks[0]._keys if network.masking is not None else {}  # type: ignore[attr-defined]
        rows = network.scales.rows if network.scales is not None else None
        return None if curious is None else (curious.seen, keys, rows)

    at = {spy: found for spy, found in enumerate(run_threads(M, work)) if found is not None}
    rows = at[spies[0]][2]
    X = np.vstack(parts)
    centred = [part - X.mean(axis=0) for part in parts]
    return Watched(
        {spy: found[0] for spy, found in at.items()},
        {spy: found[1] for spy, found in at.items()},
        None if rows is None else Scaled.within(rows[:, np.newaxis]),
        [M / (len(X) - 1) * part.T @ part for part in centred],
    )


def worked_out(seen: Products, victim: int) -> tuple[np.ndarray, int]:
    """C = Y (B^T Y)^+ Y^T from the products Y = C B that were seen, and how many columns there were."""
    pairs = [(block, sent[victim]) for block, sent in seen if victim in sent]
    B, Y = (np.concatenate(part, axis=1) for part in zip(*pairs, strict=True))
    return Y @ np.linalg.pinv((B.T @ Y + Y.T @ B) / 2, rcond=1e-10, hermitian=True) @ Y.T, B.shape[1]


def off(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def overlap(found: np.ndarray, true: np.ndarray) -> float:
    """Cosine between two matrices: 1 for the true covariance, and for noise about 1 / d."""
    return float(np.vdot(found, true) / (np.linalg.norm(found) * np.linalg.norm(true)))


def of_noise(blocks: Iterable[np.ndarray], sizes: np.ndarray, true: np.ndarray, count: int = 200) -> list[float]:
    """Overlaps that the same attack reaches on random numbers in the place of products, of these sizes by row."""
    rng, blocks, overlaps = np.random.default_rng(0), list(blocks), []
    for _ in range(count):
        products: Products = [(B, {1: sizes * rng.uniform(-1, 1, B.shape)}) for B in blocks]
        overlaps.append(overlap(worked_out(products, 1)[0], true))
    return overlaps


def sizes_of_words(scaled: Scaled) -> np.ndarray:
    """What the words of each row of a product stand for at most: (d, 1)."""
    return np.ldexp(1.0, scaled.exponents + 1)
