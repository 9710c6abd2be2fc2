"""Which sites share a mask: all pairs, or in a large network the edges of a random regular graph.

All sites draw the same graph.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from eigenmesh.errors import InputError
from eigenmesh.masking._keys import MaskContext

# Up to this many sites, every pair shares a mask.
ALL_PAIRS_UP_TO = 50
SWAPS_PER_EDGE = 10


@dataclass(frozen=True)
class MaskGraph:
    """The partners of each site, by rank.

    Without the colluding sites, the graph falls into connected parts. The colluders can find the sum over each part.
    """

    partners: tuple[tuple[int, ...], ...]

    @property
    def degree(self) -> int:
        """The smallest number of partners of a site."""
        return min(map(len, self.partners))

    @property
    def is_complete(self) -> bool:
        """Whether every pair of sites shares a mask."""
        return self.degree == len(self.partners) - 1

    @property
    def tolerated(self) -> int:
        """How many sites may collude, whichever they are, and still find only one sum over all others, two or more.

        M - 2 with all pairs; otherwise one less than the vertex connectivity of the graph.
        """
        if self.is_complete:
            return len(self.partners) - 2
        import networkx as nx

        edges = [(first, second) for first, row in enumerate(self.partners) for second in row]
        return int(nx.node_connectivity(nx.Graph(edges))) - 1

    def chance(self, colluders: int) -> float:
        """Expected number of sites whose partners all collude, if c = ``colluders`` sites collude at random.

        ::

            sum_i (M - c) / M  binom(M - 1 - k_i, c - k_i) / binom(M - 1, c)

        It bounds the probability that a site is exposed, with no honest partner. That a larger part is cut off is much
        less likely.
        """
        others = len(self.partners) - 1
        if not 0 <= colluders <= others - 1:
            raise InputError(f"{colluders} of {others + 1} sites cannot collude; give 0 .. {others - 1}.")
        ways = sum(math.comb(others - len(row), colluders - len(row)) for row in self.partners if len(row) <= colluders)
        return (1 - colluders / (others + 1)) * (ways / math.comb(others, colluders))

    @property
    def rule(self) -> str:
        """Which sites share a mask, in words that are the same for all graphs of this size."""
        return "all pairs" if self.is_complete else f"{self.degree} partners, drawn from the context"

    @property
    def collusion(self) -> str:
        """How many sites must collude to learn more than sums over all sites."""
        sites = len(self.partners)
        if self.is_complete:
            return f"the numbers of two honest sites stay hidden from {self.tolerated} that collude"
        return (
            f"a site has no honest partner with a probability below {self.chance(sites // 3):.1g} if a third collude "
            f"at random, {self.chance(sites // 2):.1g} if half do"
        )

    def __str__(self) -> str:
        sites = len(self.partners)
        if self.is_complete:
            return f"all pairs of {sites} sites; {self.tolerated} may collude"
        return f"{self.degree} partners for each of {sites} sites; any {self.tolerated} may collude; {self.collusion}"


def mask_rule(sites: int) -> str:
    """Which of this many sites share a mask, in words that are the same at all of them."""
    return graph_of_size(sites).rule


def graph_of_size(sites: int) -> MaskGraph:
    """A graph of this many sites, as an example: the graphs of all runs have its degree."""
    return mask_graph(MaskContext("", 0, b"", tuple(map(str, range(sites)))))


@lru_cache(maxsize=8)
def mask_graph(context: MaskContext, all_pairs_up_to: int = ALL_PAIRS_UP_TO) -> MaskGraph:
    """All pairs if there are few sites; otherwise a random graph of degree k = 2 ceil(log2 M), from the context."""
    sites = len(context.names)
    degree = 2 * math.ceil(math.log2(max(sites, 2)))
    if sites <= all_pairs_up_to or degree >= sites - 1:
        rows = [[other for other in range(sites) if other != rank] for rank in range(sites)]
    else:
        rows = _shuffled(sites, degree, context.encoded)
    return MaskGraph(tuple(map(tuple, rows)))


def _shuffled(sites: int, degree: int, seed: bytes) -> list[list[int]]:
    """A random graph: a ring where each site is linked to the next degree / 2 on either side, then random swaps.

    A swap turns two edges (a, b), (c, d) into (a, d), (c, b), unless that makes a loop or a double edge. It keeps all
    degrees.
    """
    edges = [(rank, (rank + step) % sites) for rank in range(sites) for step in range(1, degree // 2 + 1)]
    taken = {frozenset(edge) for edge in edges}
    draw = _draws(seed)
    for _ in range(SWAPS_PER_EDGE * len(edges)):
        one, two = next(draw) % len(edges), next(draw) % len(edges)
        (a, b), (c, d) = edges[one], edges[two]
        new = frozenset((a, d)), frozenset((c, b))
        if a != d and c != b and not taken.intersection(new):
            taken -= {frozenset((a, b)), frozenset((c, d))}
            taken |= set(new)
            edges[one], edges[two] = (a, d), (c, b)
    rows: list[list[int]] = [[] for _ in range(sites)]
    for first, second in edges:
        rows[first].append(second)
        rows[second].append(first)
    return [sorted(row) for row in rows]


def _draws(seed: bytes) -> Iterator[int]:
    """Numbers below 2^64: the first 8 bytes (little-endian) of SHA-256 of the digest of the seed and a count."""
    digest, count = hashlib.sha256(b"eigenmesh mask graph\n" + seed).digest(), 0
    while True:
        word = hashlib.sha256(digest + count.to_bytes(8, "little")).digest()[:8]
        yield int.from_bytes(word, "little")
        count += 1
