r"""A solver in integers whose true answer is easy to compute: a few rounds of mixing, then a sum over a tree.

Every site i has a number :math:`x_i` and starts from an estimate :math:`s_i`. With :math:`y_i(0) = x_i + s_i`, a round
is

.. math:: y_i(t + 1) = 3 y_i(t) + \sum_{j \in N_i} y_j(t) \bmod 2^{31} - 1.

Then the y are added up along the tree, and the total comes down from the root. So the result depends on every message.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Generator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eigenmesh.protocol import wire
from eigenmesh.protocol.effects import Begin, Exchange, MembersChanged, Sign
from eigenmesh.protocol.membership import Membership

if TYPE_CHECKING:
    from harness.process import FaultyProcess

PRIME = (1 << 31) - 1
MIXING, UP, DOWN = 1, 2, 3
Links = tuple[tuple[str, str], ...]


class Sum(NamedTuple):
    """The result of a site: the lost links, the total, its digest, and the statements of all members."""

    lost: Links
    total: int
    digest: str
    statements: Mapping[str, str]


class TreePlan(NamedTuple):
    """The tree of the members: neighbours, parent and depth of each, and the depth of the tree."""

    members: tuple[str, ...]
    neighbours: dict[str, tuple[str, ...]]
    parent: dict[str, str]
    depth: dict[str, int]
    deepest: int


def plan(name: str, sites: tuple[str, ...], edges: Links, lost: Links) -> TreePlan:
    left = Membership(name, sites, edges, lost)
    members = left.members
    neighbours = {
        site: tuple(other for link in left.links if site in link for other in link if other != site) for site in members
    }
    parent, depth, waiting = {members[0]: ""}, {members[0]: 0}, deque([members[0]])
    while waiting:
        site = waiting.popleft()
        for other in neighbours[site]:
            if other not in depth:
                parent[other], depth[other] = site, depth[site] + 1
                waiting.append(other)
    return TreePlan(members, neighbours, parent, depth, max(depth.values()))


def true_total(plan: TreePlan, values: Mapping[str, int], n_mixing: int) -> int:
    """The total that all members must find from these first values."""
    y = {site: values[site] % PRIME for site in plan.members}
    for _ in range(n_mixing):
        y = {site: (3 * y[site] + sum(y[other] for other in plan.neighbours[site])) % PRIME for site in plan.members}
    return sum(y.values()) % PRIME


def digest_of(lost: Links, total: int) -> str:
    return hashlib.sha256(f"{lost} {total}".encode()).hexdigest()


class SumProblem:
    """The sum of a number per site, after ``n_mixing`` rounds."""

    compute_s = 0.06
    max_message_bytes = 64
    max_journal_bytes = 1e6

    def __init__(self, sites: tuple[str, ...], edges: Links, n_mixing: int) -> None:
        self._sites, self._edges, self._n_mixing = sites, edges, n_mixing

    def solver(self, process: FaultyProcess) -> Generator[Any, Any, Sum]:
        """Yield one request to the machine after the other; each answer is sent in."""
        name = process.site
        while True:
            lost, start = process.world.position(process)
            value = process.value + int.from_bytes(start, "little")
            epoch = _epoch(name, plan(name, self._sites, self._edges, lost), value, self._n_mixing, lost)
            estimate, found = yield from epoch
            if found is not None:
                return found
            # The next epoch starts from the estimate of this one.
            require((yield Begin(estimate.to_bytes(8, "little"))), NoneType)

    def fault_of(
        self, result: Sum, members: tuple[str, ...], values: Mapping[str, int], starts: Mapping[str, bytes]
    ) -> str:
        """What is wrong with a result; empty if it is the true one from these starts."""
        first = {site: values[site] + int.from_bytes(starts.get(site, b""), "little") for site in members}
        total = true_total(plan(members[0], self._sites, self._edges, result.lost), first, self._n_mixing)
        if result.total != total or result.digest != digest_of(result.lost, total):
            return f"{result.total}, not {total}"
        return ""


def _epoch(
    name: str, plan: TreePlan, value: int, n_mixing: int, lost: Links
) -> Generator[Any, Any, tuple[int, Sum | None]]:
    near = plan.neighbours[name]
    y = value % PRIME
    for _ in range(n_mixing):
        answer = yield _exchange(MIXING, y, near, near)
        if isinstance(answer, MembersChanged):
            return y, None
        y = (3 * y + sum(_numbers(answer, near))) % PRIME
    mine, parent = plan.depth[name], tuple(filter(None, [plan.parent[name]]))
    children = tuple(site for site in near if plan.parent[site] == name)
    total = y
    for level in range(plan.deepest, 0, -1):
        senders = children if mine == level - 1 else ()
        answer = yield _exchange(UP, total, parent if mine == level else (), senders)
        if isinstance(answer, MembersChanged):
            return y, None
        total = (total + sum(_numbers(answer, senders))) % PRIME
    for level in range(1, plan.deepest + 1):
        senders = parent if mine == level else ()
        answer = yield _exchange(DOWN, total, children if mine == level - 1 else (), senders)
        if isinstance(answer, MembersChanged):
            return y, None
        total = next(iter(_numbers(answer, senders)), total)
    digest = digest_of(lost, total)
    answer = yield Sign(digest)
    if isinstance(answer, MembersChanged):
        return y, None
    return y, Sum(lost, total, digest, require(answer, dict))


def _exchange(tag: int, number: int, send_to: tuple[str, ...], receive_from: tuple[str, ...]) -> Exchange:
    return Exchange(wire.array_body((np.array([number], np.int64),), 64), tag, send_to, receive_from)


def _numbers(answer: Any, senders: tuple[str, ...]) -> list[int]:
    frames = require(answer, dict)
    return [int(frames[sender].arrays[0][0]) for sender in senders]


def require(answer: Any, kind: type[Any]) -> Any:
    """The answer, which must be of this kind."""
    if not isinstance(answer, kind):
        raise TypeError(f"{type(answer).__name__} came where {kind.__name__} is expected")
    return answer
