"""The scenario of a seed: a network, its ``on_loss``, and the faults."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from eigenmesh.protocol.setup import OnLoss
from eigenmesh.rehearsal.conditions import Edges, Fault
from harness.sums import plan


class Scenario(NamedTuple):
    seed: int
    sites: tuple[str, ...]
    edges: Edges
    on_loss: OnLoss
    n_mixing: int
    window_frames: int
    faults: tuple[Fault, ...]
    masked: bool = False

    @property
    def heals(self) -> bool:
        """Whether all faults end by themselves and the sites wait for that, so that the result must be of all sites."""
        return self.on_loss == "wait" and all(fault.kind in HEALING for fault in self.faults)

    @property
    def tells(self) -> bool:
        """Whether all links work, so that all sites soon hear of one that cannot resume, and end."""
        kinds = {fault.kind for fault in self.faults}
        return self.on_loss == "wait" and kinds <= {"bit flip", "journal gone", "crash", "kill"}

    # Longer than all that a site does at its end: it tells others, is silent, and calls a few times.
    wait_s = 20.0

    @property
    def changes_sites(self) -> bool:
        """Whether a site may come back with another journal or other data, be duplicated, or misbehave."""
        return any(
            fault.kind in ("bit flip", *ON_IDENTITY, *TWO_SIDES, *BY_NEIGHBOUR, TOLD_APART) for fault in self.faults
        )


ON_LINKS = ("break", "half open", "stall", "one way", "refused calls", "call twice")
ON_SITES = (
    "crash",
    "crash at power loss",
    "kill",
    "pause",
    "slow",
    "slow disk",
    "disk full",
    "audit full",
    "stop",
    "leave",
    "bit flip",
)
# Crashes when a certain record goes to the journal of the site.
AT_RECORDS = ("crash at a view", "crash at an epoch", "crash at a signature", "crash at a farewell")
# Faults that change the identity of a site. They come without partitions, because no protocol can tell a site from its
# copy behind a partition.
ON_IDENTITY = ("journal gone", "journal rolled back", "data swapped", "clone", "clone without journal")
ON_ALL = ("partition", "crash of all")
# A second process of a site, and later a partition with one of the two on each side.
TWO_SIDES = ("clone on either side", "clone without journal on either side")
COPIES = ("journal rolled back", "clone", "clone on either side")
BY_NEIGHBOUR = (
    "forged statements",
    "bad hashes",
    "misfits",
    "farewell repeated",
    "farewell early",
    "two results",
    "statement flood",
    "old epoch",
    "garbage",
    "replayed streams",
    "another manifest",
)
# A site inside the tree that tells a site below it other sums than the rest; only in masked runs.
TOLD_APART = "told apart"
HEALING = {*ON_LINKS, *ON_SITES, *AT_RECORDS, *ON_ALL} - {"kill", "leave", "bit flip"}
KINDS = (*ON_LINKS, *ON_SITES, *AT_RECORDS, *ON_IDENTITY, *TWO_SIDES, *ON_ALL, *BY_NEIGHBOUR)


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    random = Random(seed)
    sites = tuple("ABCDEF"[: random.choice((3, 3, 4, 4, 5, 6))])
    on_loss: OnLoss = random.choice(("wait", "wait", "abort", "continue", "continue", "continue"))
    kinds = _draw_kinds(random)
    if kinds[0] in TWO_SIDES:
        on_loss = "continue"
        edges = tuple((sites[0], site) for site in sites[1:])
    else:
        edges = _draw_edges(sites, random)
    # Faults happen during the run, or while the sites agree on who continues.
    horizon = random.choice((0.4, 0.8, 1.2, 7.0 if on_loss == "continue" else 0.8))
    if kinds[0] in ("crash at a view", "crash at an epoch"):
        on_loss, horizon = "continue", 0.4
    faults = tuple(_draw_fault(kind, sites, edges, horizon, random) for kind in kinds)
    # Not with copies of a journal: no site can know that its secret is used twice.
    masked = seed % 3 == 0 and not any(kind in COPIES for kind in kinds)
    if masked and seed % 12 == 3 and not any(kind in BY_NEIGHBOUR for kind in kinds):
        faults = (_draw_told_apart(sites, edges, seed), *faults)
    return Scenario(seed, sites, edges, on_loss, random.randint(2, 8), random.choice((1, 2, 4, 256)), faults, masked)


def _draw_kinds(random: Random) -> list[str]:
    kinds = [random.choice(KINDS) for _ in range(random.choice((1, 1, 2, 2, 3, 4)))]
    first = kinds[0]
    if first in TWO_SIDES:
        return [first]
    if first in ON_IDENTITY:
        return [first, *(kind for kind in kinds if kind in ("crash", "slow", "slow disk"))]
    kinds = [kind for kind in kinds if kind not in (*ON_IDENTITY, *TWO_SIDES)]
    if first in ("crash at a view", "crash at an epoch"):
        # Views and epochs follow only a loss.
        kinds += ["kill"]
    return kinds


def _draw_edges(sites: tuple[str, ...], random: Random) -> Edges:
    """A path, a star or a random tree, plus some more links."""
    form = random.random()
    edges = set()
    for place, site in enumerate(sites[1:], start=1):
        other = sites[place - 1] if form < 0.3 else sites[0] if form < 0.5 else random.choice(sites[:place])
        edges.add((other, site))
    for _ in range(random.choice((0, 1, 2, len(sites)))):
        first, second = sorted(random.sample(sites, 2))
        edges.add((first, second))
    return tuple(sorted(edges))


def _draw_told_apart(sites: tuple[str, ...], edges: Edges, seed: int) -> Fault:
    """A site that lies from the start to one of the sites below it in the tree; drawn apart from all other faults."""
    parent = plan(sites[0], sites, edges, ()).parent
    victim = Random(f"told apart {seed}").choice([site for site in sites if parent[site]])
    return Fault(TOLD_APART, 0.0, parent[victim], victim)


def _draw_fault(kind: str, sites: tuple[str, ...], edges: Edges, horizon: float, random: Random) -> Fault:
    site, other = random.sample(random.choice(edges), 2)
    if kind in TWO_SIDES:
        site = sites[0]
    elif kind not in ON_LINKS and kind not in BY_NEIGHBOUR:
        site = random.choice(sites)
    return Fault(kind, random.uniform(0.0, horizon), site, other, random.choice((0.2, 1.0, 3.0, 8.0, 15.0)))
