"""Which sites continue when some are lost: all remaining sites come to the same view, without a server.

``Membership`` is what follows from the signed statements that a site knows. ``Agreement`` is what the site does about
it: it declares links lost, signs its view, and waits until all members have signed the same one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from eigenmesh.errors import FrameError, LostNeighbourError, ParkedError, TransportError
from eigenmesh.masking import MIN_SITES
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol.setup import HOW_IT_LEFT, Edge, Stage, Statement, Topic, view_digest

if TYPE_CHECKING:
    from eigenmesh.protocol.outbox import Outbox
    from eigenmesh.protocol.peering import Peering


# Most starts of one site. Each start is kept and passed on, so the number must be bounded. No run comes near it.
MAX_STARTS = 10_000
# A public key of 32 bytes in hexadecimal, or nothing.
_KEY = re.compile(r"([0-9a-f]{64})?")
# Longest time for an agreement, in units of ``patience_s``: neighbours may fall silent one after the other.
MAX_PATIENCES = 10


class Membership:
    """The signed statements that a site knows, and what follows from them.

    A view is a set of lost links. A dead site has lost all of its links. Only the two ends of a link can declare it
    lost. Views only grow, and statements reach all connected sites, so all of these come to the same view. A *member*
    is a site that the remaining links connect to this one. The view is *agreed* once every member has signed it. Every
    round needs every member, so a view that grows later stops the run and must be agreed on again: an error here costs
    time, but never gives a wrong result. The memory is bounded: per site one instance, one view, one statement about
    each of its links, that it has left, and per epoch one result and two statements of what it has heard.

    Parameters
    ----------
    name : of this site.
    sites : the names of all sites, in the order of the network.
    edges : all links of the network.
    lost : the links that are known to be lost.

    Attributes
    ----------
    links : the remaining links, in the order of the network.
    members : the sites that these links connect to this one, including itself, in the order of the network.
    """

    def __init__(self, name: str, sites: Iterable[str], edges: Iterable[Edge], lost: Iterable[Edge] = ()) -> None:
        self.name, self.sites = name, tuple(sites)
        self.edges = tuple(ordered(edge) for edge in edges)
        self._lose(lost)
        self._known: dict[tuple[object, ...], Statement] = {}
        # Whether no number of any site has been used here yet. Until then a site may start over with a new journal.
        self.fresh = True

    def add(self, statement: Statement) -> bool:
        """Add a statement whose signature was checked; False if it is not new. Raises FrameError if it is wrong."""
        if not self.is_new(statement):
            return False
        self._known[self._key(statement)] = statement
        if statement.kind == Topic.LOST:
            self._lose((*self.lost, statement.content))
        return True

    def _lose(self, links: Iterable[Iterable[str]]) -> None:
        """These links are lost."""
        self.lost = tuple(sorted({ordered(link) for link in links}))
        self.links = tuple(edge for edge in self.edges if edge not in self.lost)
        reached = reached_from(self.name, self.links)
        self.members = tuple(site for site in self.sites if site in reached)

    def is_new(self, statement: Statement) -> bool:
        """Whether ``add`` would add it."""
        known = self._known.get(self._key(statement))
        return known is None or self._is_newer(statement, known)

    def _key(self, statement: Statement) -> tuple[object, ...]:
        """Site and subject of a statement. Raises FrameError unless its content has the right form."""
        kind, site, most = statement.kind, statement.site, len(self.edges)
        if site not in self.sites:
            raise FrameError(f"{site!r} is not a site of this network.")
        match kind, statement.content:
            case Topic.INSTANCE, [str(), int(start), str(), str(key)]:
                if 0 < start <= MAX_STARTS and _KEY.fullmatch(key):
                    return kind, site
            case Topic.LOST, [str(), str()] as ends:
                if site in ends and ordered(ends) in self.edges:
                    return kind, site, ordered(ends)
            case Topic.LEFT, [str(), str(), str(how), int(n_lost)]:
                if how in HOW_IT_LEFT and 0 <= n_lost <= most:
                    return kind, site
            case Topic.VIEW, [int(n_lost), str(), str(key)]:
                if 0 < n_lost <= most and _KEY.fullmatch(key):
                    return kind, site
            case Topic.HEARD, [int(epoch), str(stage), int(position), str(), int(start)]:
                if 0 <= epoch <= most and stage in set(Stage) and position >= 0 and 0 <= start <= MAX_STARTS:
                    return kind, site, epoch, stage
            case Topic.RESULT, [int(epoch), str(), str()]:
                if 0 <= epoch <= most:
                    return kind, site, epoch
        raise FrameError(f"a statement of {site} is not valid.")

    def _is_newer(self, statement: Statement, known: Statement) -> bool:
        new, old = statement.content, known.content
        if statement.kind == Topic.INSTANCE:
            # A newer journal, whose numbers must not be mixed with those of the older one; or two copies of a journal.
            newer = new[0] > old[0]
            if (newer and not self.fresh) or (new[:2] == old[:2] and new[2] != old[2]):
                raise TwiceError(f"{statement.site} has started the run over, or runs twice")
            if new[0] == old[0] and new[3] != old[3]:
                raise TwiceError(f"{statement.site} has sent two keys for masks")
            return bool(newer or (new[0] == old[0] and new[1] > old[1]))
        if statement.kind == Topic.LEFT:
            return bool(new[0] > old[0])
        if statement.kind == Topic.RESULT and new != old:
            raise TwiceError(f"{statement.site} has signed two results")
        if statement.kind == Topic.HEARD:
            if new[4] == old[4] and new != old:
                raise TwiceError(f"{statement.site} has signed two accounts of what it has heard")
            return bool(new[4] > old[4])
        if statement.kind == Topic.VIEW and new[0] == old[0] and new != old:
            raise TwiceError(f"{statement.site} has signed two views that do not follow from each other")
        return bool(statement.kind == Topic.VIEW and new[0] > old[0])

    @property
    def statements(self) -> list[Statement]:
        return list(self._known.values())

    def instance(self, site: str) -> tuple[str, int, str] | None:
        """Identity of the site's journal, the number of starts from it, and a random number drawn at the last start."""
        known = self.instance_statement(site)
        return None if known is None else tuple(known.content[:3])

    def instance_statement(self, site: str) -> Statement | None:
        return self._known.get((Topic.INSTANCE, site))

    def how_it_left(self, site: str) -> tuple[str, int]:
        """How a site has left for good, and after how many lost links; "" if it has not, or has started over since."""
        known, instance = self._known.get((Topic.LEFT, site)), self.instance(site)
        if known is None or (instance is not None and instance[0] > known.content[0]):
            return "", 0
        return str(known.content[2]), int(known.content[3])

    def keys(self) -> dict[str, bytes]:
        """Public keys of the members: from their signed views, or, if no link is lost, from their instances."""
        signed = self._signed(Topic.VIEW if self.lost else Topic.INSTANCE)
        return {site: bytes.fromhex(statement.content[-1]) for site, statement in signed.items()}

    def heard(self, epoch: int, stage: str) -> dict[str, Statement]:
        """What the members have heard in this epoch, as they have signed it at this stage."""
        return self._signed(Topic.HEARD, epoch, stage)

    def results(self, epoch: int) -> dict[str, Statement]:
        """The signed results of the members in this epoch."""
        return self._signed(Topic.RESULT, epoch)

    def _signed(self, kind: str, *about: object) -> dict[str, Statement]:
        """The statements of the members of one kind, by name."""
        keys = {site: (kind, site, *about) for site in self.members}
        return {site: self._known[key] for site, key in keys.items() if key in self._known}

    @property
    def fallen_silent(self) -> set[str]:
        """The sites that others have met and lost: the other ends of the links that were signed as lost."""
        lost = [statement for statement in self._known.values() if statement.kind == Topic.LOST]
        return {name for statement in lost for name in statement.content if name != statement.site}

    @property
    def view(self) -> list[object]:
        """The view to sign: the number of lost links, and their digest."""
        return [len(self.lost), view_digest(self.lost)]

    @property
    def missing(self) -> tuple[str, ...]:
        """Sites that are no longer members."""
        return tuple(site for site in self.sites if site not in self.members)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Members that have not signed this view."""
        signed = self._signed(Topic.VIEW)
        same = [site for site, view in signed.items() if list(view.content[:2]) == self.view]
        return tuple(site for site in self.members if site not in same)

    def require_majority(self) -> None:
        """Raise unless more than half of all sites are members: if the network splits, at most one part continues."""
        members = self.members
        if 2 * len(members) <= len(self.sites):
            raise TransportError(
                f"only {len(members)} of {len(self.sites)} sites can still reach each other ({', '.join(members)}), "
                f"without {', '.join(self.missing)}; there is no majority, so there is no result here. "
                "Start the run again unless the others continue."
            )


class TwiceError(FrameError):
    """Two statements of one site that cannot both be true."""


def reached_from(name: str, links: Sequence[Edge]) -> set[str]:
    """The sites that links connect with one of them, itself included."""
    near: dict[str, list[str]] = {}
    for first, second in links:
        near.setdefault(first, []).append(second)
        near.setdefault(second, []).append(first)
    reached, new = {name}, {name}
    while new:
        new = {other for one in new for other in near.get(one, ())} - reached
        reached |= new
    return reached


def ordered(link: Iterable[str]) -> Edge:
    """The two ends of a link in alphabetical order."""
    first, second = sorted(link)
    return first, second


class Agreement:
    """Comes to an agreement with the other sites on who continues after a loss.

    Parameters
    ----------
    membership : the statements that are known here.
    outbox : where statements are signed. It has the site, and what it does when a neighbour is lost (``on_loss``).
    peering : where the streams of lost links are closed.

    Attributes
    ----------
    lost : the lost links of the view that all its members have signed. More links may have been lost since.
    """

    def __init__(self, membership: Membership, outbox: Outbox, peering: Peering) -> None:
        self.membership, self.outbox, self.peering = membership, outbox, peering
        self.setup, self.clock = outbox.setup, outbox.clock
        self.lost: tuple[Edge, ...] = ()
        # When the set of lost links last grew. The members must agree on it within a bounded time.
        self._since = self.clock.now

    @property
    def is_needed(self) -> bool:
        """Whether links were lost since the current epoch began."""
        return self.membership.lost != self.outbox.epoch.lost

    def sign_view(self) -> None:
        """Sign the current set of lost links, after it has grown."""
        self._since = self.clock.now
        self.outbox.state(Topic.VIEW, [*self.membership.view, self.outbox.public_key(self.membership.lost)])

    def lose(self, names: list[str]) -> ev.Deliver | ev.Wait | None:
        """React to lost neighbours as ``on_loss`` demands. Returns the same as ``agree``."""
        setup, links = self.setup, self.outbox.epoch.links
        silent = ", ".join(name for name in names if links[name].joined)
        absent = ", ".join(name for name in names if not links[name].joined)
        reasons = [f"has heard nothing from {silent} for {setup.patience_s:g} s"] if silent else []
        reasons += [f"has waited {setup.join_s:g} s for {absent} to join"] if absent else []
        text = f"{setup.name} {' and '.join(reasons)}."
        if setup.has_result:
            # The others may go on without this site, so they are not told.
            self.outbox.fail(ParkedError(f"{setup.name} has its result. {text}"))
            return None
        if setup.on_loss == "abort":
            self.outbox.end(LostNeighbourError(text, names))
            return None
        if setup.on_loss == "wait":
            parked = f"{setup.name} parked the run: {text} Start all sites again to continue."
            self.outbox.fail(ParkedError(parked), parked)
            return None
        self.outbox.log(f"{text} The remaining sites now agree on who continues.")
        for name in names:
            self.outbox.state(Topic.LOST, sorted((setup.name, name)))
            self.peering.drop(name)
        self.sign_view()
        return self.agree()

    def agree(self) -> ev.Deliver | ev.Wait | None:
        """Wait until every member has signed the view. Neighbours that fall silent meanwhile are lost, too.

        Returns the answer to the solver, or for whom it has to wait, or None if the run has ended.
        """
        membership, setup, links = self.membership, self.setup, self.outbox.epoch.links
        left = {name for link in membership.links if setup.name in link for name in link if name != setup.name}
        try:
            self._require_possible([link.name for link in links.values() if link.finished and link.name in left])
        except TransportError as error:
            self.outbox.end(error)
            return None
        if setup.name in membership.undecided:
            # An earlier process heard of the loss, and crashed before its signature was on the disk.
            self.sign_view()
        for name in membership.fallen_silent & left:
            # It has been there, even if this site has never met it, so it is not waited for until it joins.
            links[name].join(self.clock.now)
        if not membership.undecided and not self.outbox.has_unsent:
            self.lost = membership.lost
            return ev.Deliver(ev.MembersChanged(membership.lost))
        silent = [name for name in links if name in left and links[name].lost]
        return (self.lose(silent) if silent else None) or ev.Wait(tuple(sorted(left)))

    def _require_possible(self, finished: list[str]) -> None:
        """Raise unless the members can continue without the sites that are missing."""
        membership, setup = self.membership, self.setup
        membership.require_majority()
        if setup.masked and len(membership.members) < MIN_SITES:
            missing, who = ", ".join(membership.missing), " and ".join(membership.members)
            text = f"{missing} is lost; only {who} are left, and each would find the other's numbers by subtraction"
            raise TransportError(f"{text}; start all sites again.")
        if finished:
            who, gone = ", ".join(finished), ", ".join(map("-".join, membership.lost))
            raise TransportError(f"{who} finished before {gone} was lost; use its result, which is of all sites.")
        if self.clock.now - self._since > MAX_PATIENCES * setup.patience_s + setup.join_s:
            who = ", ".join(membership.undecided)
            raise TransportError(f"{who} did not agree on who continues; start the run again.")
