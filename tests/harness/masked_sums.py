r"""Sums of masked integers whose true answer is easy to compute, with low bits that differ from process to process.

Every site i has a number :math:`x_i` and starts from :math:`s_i`. In average number t it adds

.. math:: q_i(t) = 2^{24} (x_i + s_i + T(t - 1) \bmod 2^{31} - 1) + \text{noise}

to a sum over the tree, and T(t) is that sum without its low bits. Each process draws new noise of 16 bits, just as a
computation repeated on another processor would differ. So a mask that is used twice hides two different numbers, which
the checks detect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh.masking import pairwise_masks
from eigenmesh.protocol import wire
from eigenmesh.protocol.effects import Begin, Compare, Exchange, Keys, Mask, MembersChanged, Sign
from eigenmesh.protocol.setup import Stage
from harness.sums import PRIME, Links, Sum, SumProblem, digest_of, plan, require

if TYPE_CHECKING:
    from harness.process import FaultyProcess

# Tags of rounds towards the root are even, and tags of rounds away from it are odd.
UP, DOWN = 10, 11
LOW_BITS, NOISE_BITS = 24, 16


def is_masked_sum(tag: int) -> bool:
    """Whether a round carries sums of masked numbers, towards the root."""
    return tag >= UP and tag % 2 == 0


def is_total(tag: int) -> bool:
    """Whether a round carries the sum over all sites, away from the root."""
    return tag >= DOWN and tag % 2 == 1


def number_of(tag: int) -> int:
    return (tag - UP) // 2


def without_noise(words: int) -> int:
    """The sum over all sites, without the noise of its low bits."""
    return words >> LOW_BITS


class MaskedSumProblem(SumProblem):
    """``n_mixing`` masked sums, each of which depends on the one before."""

    def solver(self, process: FaultyProcess) -> Generator[Any, Any, Sum]:
        """Ask the machine for keys, then for one masked sum after the other."""
        while True:
            lost, start = process.world.position(process)
            value = process.value + int.from_bytes(start, "little")
            total, found = yield from self._epoch(process, value, lost)
            if found is not None:
                return found
            require((yield Begin(total.to_bytes(8, "little"))), NoneType)

    def _epoch(self, process: FaultyProcess, value: int, lost: Links) -> Generator[Any, Any, tuple[int, Sum | None]]:
        name, machine, total = process.site, process.machine, 0
        answer = yield Keys()
        if isinstance(answer, MembersChanged):
            return 0, None
        context, publics = machine.mask_context, require(answer, dict)
        rank = context.names.index(name)
        masks = pairwise_masks(machine.past.site_key(lost), [publics[one] for one in context.names], rank, context)
        news = masks.transcript.news
        for number in range(self._n_mixing):
            noise = process.time.random.getrandbits(NOISE_BITS)
            own = np.array([((value + total) % PRIME << LOW_BITS) + noise], np.uint64)
            answer = yield Mask(number, news(), masks.masked(number, own).tobytes())
            if isinstance(answer, MembersChanged):
                return total, None
            words = yield from self._sum(name, lost, number, require(answer, bytes))
            if words is None:
                return total, None
            masks.hear(hashlib.sha256(words.to_bytes(8, "little")).digest())
            total = without_noise(words) % PRIME
            if number == 0:
                answer = yield Compare(Stage.SET_UP, news())
                if isinstance(answer, MembersChanged):
                    return total, None
        digest = digest_of(lost, total)
        answer = yield Sign(digest, news())
        if isinstance(answer, MembersChanged):
            return total, None
        return total, Sum(lost, total, digest, require(answer, dict))

    def _sum(self, name: str, lost: Links, number: int, masked: bytes) -> Generator[Any, Any, int | None]:
        """The sum over the tree modulo 2^64, up to the root and down again; None if sites were lost."""
        tree = plan(name, self._sites, self._edges, lost)
        mine, parent = tree.depth[name], tuple(filter(None, [tree.parent[name]]))
        children = tuple(site for site in tree.neighbours[name] if tree.parent[site] == name)
        words = np.frombuffer(masked, np.uint64)
        for level in range(tree.deepest, 0, -1):
            senders = children if mine == level - 1 else ()
            body = wire.array_body((words.view(np.int64),), 64)
            answer = yield Exchange(body, UP + 2 * number, parent if mine == level else (), senders)
            if isinstance(answer, MembersChanged):
                return None
            for sender in senders:
                words = words + answer[sender].arrays[0].view(np.uint64)
        for level in range(1, tree.deepest + 1):
            senders = parent if mine == level else ()
            body = wire.array_body((words.view(np.int64),), 64)
            answer = yield Exchange(body, DOWN + 2 * number, children if mine == level - 1 else (), senders)
            if isinstance(answer, MembersChanged):
                return None
            for sender in senders:
                words = answer[sender].arrays[0].view(np.uint64)
        return int(words[0])

    def fault_of(
        self, result: Sum, members: tuple[str, ...], values: Mapping[str, int], starts: Mapping[str, bytes]
    ) -> str:
        """What is wrong with a result; empty if it is the true one from these starts."""
        first = [values[site] + int.from_bytes(starts.get(site, b""), "little") for site in members]
        total = 0
        for _ in range(self._n_mixing):
            total = sum((value + total) % PRIME for value in first) % PRIME
        if result.total != total or result.digest != digest_of(result.lost, total):
            return f"{result.total}, not {total}"
        return ""
