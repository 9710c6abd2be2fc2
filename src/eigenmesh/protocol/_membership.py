"""Which sites continue when some are lost: all remaining sites come to the same view, without a server."""

import hashlib
import json
from collections import deque
from collections.abc import Iterable

from eigenmesh.errors import FrameError, TransportError
from eigenmesh.protocol._statements import ENDING, HEARD, INSTANCE, LOST, RESULT, SET_UP, VIEW, Statement

Link = tuple[str, str]
# Most starts of one site. Each start is kept and passed on, so the number must be bounded; no run comes near it.
MAX_STARTS = 10_000
KEY_BYTES = 32


class Membership:
    """The signed statements that a site knows, and what follows from them.

    A view is a set of lost links; a dead site has lost all of its links. Only the two ends of a link can declare it
    lost. Views only grow, and statements reach all connected sites, so all of these come to the same view. A *member*
    is a site that the remaining links connect to this one. The view is *agreed* once every member has signed it. Every
    round needs every member, so a view that grows later stops the run and must be agreed on again: an error here costs
    time, but never gives a wrong result. The memory is bounded: per site one instance, one view, one statement about
    each of its links, and per epoch one result and two statements of what it has heard.
    """

    def __init__(self, name: str, sites: Iterable[str], edges: Iterable[Link], lost: Iterable[Link] = ()) -> None:
        self.name, self.sites = name, tuple(sites)
        self.edges = tuple(ordered(edge) for edge in edges)
        self.lost = tuple(sorted({ordered(link) for link in lost}))
        self._known: dict[tuple[object, ...], Statement] = {}
        # Whether no number of any site has been used here yet; until then a site may start over with a new journal.
        self.fresh = True

    def add(self, statement: Statement) -> bool:
        """Add a statement whose signature was checked; False if it is not new. Raises FrameError if it is wrong."""
        if not self.is_new(statement):
            return False
        self._known[self._key(statement)] = statement
        if statement.kind == LOST:
            self.lost = tuple(sorted({*self.lost, ordered(statement.content)}))
        return True

    def is_new(self, statement: Statement) -> bool:
        """Whether ``add`` would add it."""
        known = self._known.get(self._key(statement))
        return known is None or self._is_newer(statement, known)

    def _key(self, statement: Statement) -> tuple[object, ...]:
        kind, site, content = statement.kind, statement.site, statement.content
        if site not in self.sites:
            raise FrameError(f"{site!r} is not a site of this network.")
        try:
            if kind == INSTANCE and len(content) == 4 and isinstance(content[0], str) and 0 < content[1] <= MAX_STARTS:
                require_key(content[3])
                return kind, site
            if kind == LOST and site in content and ordered(content) in self.edges:
                return kind, site, ordered(content)
            if kind == VIEW and 0 < content[0] <= len(self.edges) and isinstance(content[1], str):
                require_key(content[2])
                return kind, site
            if kind == HEARD and 0 <= content[0] <= len(self.edges) and content[1] in (SET_UP, ENDING):
                position, digest, start = content[2:]
                if isinstance(position, int) and position >= 0 and isinstance(digest, str) and 0 <= start <= MAX_STARTS:
                    return kind, site, int(content[0]), str(content[1])
            if kind == RESULT and 0 <= content[0] <= len(self.edges) and all(isinstance(it, str) for it in content[1:]):
                epoch, _, _ = content
                return kind, site, int(epoch)
        except (TypeError, ValueError, IndexError, KeyError):
            pass
        raise FrameError(f"a statement of {site} is not valid.")

    def _is_newer(self, statement: Statement, known: Statement) -> bool:
        new, old = statement.content, known.content
        if statement.kind == INSTANCE:
            # A newer journal, whose numbers must not be mixed with those of the older one; or two copies of a journal.
            newer = new[0] > old[0]
            if (newer and not self.fresh) or (new[:2] == old[:2] and new[2] != old[2]):
                raise TwiceError(f"{statement.site} has started the run over, or runs twice")
            if new[0] == old[0] and new[3] != old[3]:
                raise TwiceError(f"{statement.site} has sent two keys for masks")
            return bool(newer or (new[0] == old[0] and new[1] > old[1]))
        if statement.kind == RESULT and new != old:
            raise TwiceError(f"{statement.site} has signed two results")
        if statement.kind == HEARD:
            if new[4] == old[4] and new != old:
                raise TwiceError(f"{statement.site} has signed two accounts of what it has heard")
            return bool(new[4] > old[4])
        if statement.kind == VIEW and new[0] == old[0] and new != old:
            raise TwiceError(f"{statement.site} has signed two views that do not follow from each other")
        return bool(statement.kind == VIEW and new[0] > old[0])

    @property
    def statements(self) -> list[Statement]:
        return list(self._known.values())

    def instance(self, site: str) -> tuple[str, int, str] | None:
        """Identity of the site's journal, the number of starts from it, and a random number drawn at the last start."""
        known = self.instance_statement(site)
        return None if known is None else tuple(known.content[:3])

    def instance_statement(self, site: str) -> Statement | None:
        return self._known.get((INSTANCE, site))

    def keys(self) -> dict[str, bytes]:
        """Public keys of the members: from their signed views, or, if no link is lost, from their instances."""
        kind = VIEW if self.lost else INSTANCE
        found = {site: self._known.get((kind, site)) for site in self.members}
        return {site: bytes.fromhex(known.content[-1]) for site, known in found.items() if known is not None}

    def heard(self, epoch: int, stage: str) -> dict[str, Statement]:
        """What the members have heard in this epoch, as they have signed it at this stage."""
        found = {site: self._known.get((HEARD, site, epoch, stage)) for site in self.members}
        return {site: statement for site, statement in found.items() if statement is not None}

    def results(self, epoch: int) -> dict[str, Statement]:
        """The signed results of the members in this epoch."""
        found = {site: self._known.get((RESULT, site, epoch)) for site in self.members}
        return {site: statement for site, statement in found.items() if statement is not None}

    @property
    def view(self) -> list[object]:
        """The view to sign: the number of lost links, and their digest."""
        return [len(self.lost), view_digest(self.lost)]

    @property
    def links(self) -> tuple[Link, ...]:
        """Remaining links, in the order of the network."""
        return tuple(edge for edge in self.edges if edge not in self.lost)

    @property
    def members(self) -> tuple[str, ...]:
        """Sites that the remaining links connect to this one, including itself, in the order of the network."""
        linked: dict[str, list[str]] = {site: [] for site in self.sites}
        for first, second in self.links:
            linked[first].append(second)
            linked[second].append(first)
        reached, waiting = {self.name}, deque([self.name])
        while waiting:
            new = [site for site in linked[waiting.popleft()] if site not in reached]
            reached.update(new)
            waiting.extend(new)
        return tuple(site for site in self.sites if site in reached)

    @property
    def missing(self) -> tuple[str, ...]:
        """Sites that are no longer members."""
        members = self.members
        return tuple(site for site in self.sites if site not in members)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Members that have not signed this view."""
        mine = self.view
        views = {site: self._known.get((VIEW, site)) for site in self.members}
        return tuple(site for site, view in views.items() if view is None or list(view.content[:2]) != mine)

    @property
    def agreed(self) -> bool:
        """Whether every member has signed this view."""
        return not self.undecided

    def require_majority(self) -> None:
        """Raise unless more than half of all sites are members: if the network splits, at most one part continues."""
        members = self.members
        if 2 * len(members) <= len(self.sites):
            raise TransportError(
                f"only {len(members)} of {len(self.sites)} sites can still reach each other ({', '.join(members)}), "
                f"without {', '.join(self.missing)}; there is no majority, so there is no result here. "
                "Start the run again unless the others continue."
            )


def require_key(text: object) -> None:
    """Raise ValueError unless the text is a public key in hexadecimal, or empty (no key)."""
    if not isinstance(text, str) or len(bytes.fromhex(text)) not in (0, KEY_BYTES):
        raise ValueError(text)


class TwiceError(FrameError):
    """Two statements of one site that cannot both be true."""


def view_digest(lost: Iterable[Link]) -> str:
    return hashlib.sha256(json.dumps(sorted(lost)).encode()).hexdigest()[:32]


def ordered(link: Iterable[str]) -> Link:
    first, second = sorted(link)
    return first, second
