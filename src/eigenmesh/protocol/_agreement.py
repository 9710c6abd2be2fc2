"""Fifth layer of a site's machine: which neighbours it waits for, and which sites continue when some are lost."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from eigenmesh.errors import DeadlineError, LostNeighbourError, ParkedError, TransportError
from eigenmesh.masking import MIN_SITES
from eigenmesh.protocol import _events as ev
from eigenmesh.protocol._incoming import Incoming
from eigenmesh.protocol._link import Message
from eigenmesh.protocol._statements import LOST
from eigenmesh.protocol._wire import Frame

# Longest time for an agreement, in units of ``patience_s``: neighbours may fall silent one after the other.
MAX_PATIENCES = 10


@dataclass
class Question:
    """The solver's open request: the event, when it came, and the frames of an exchange that are here so far."""

    event: ev.Question
    since: float
    message: Message | None = None
    got: dict[str, Frame] = field(default_factory=dict)
    record: int = 0


class Agreement(Incoming):
    """The solver's open request, and its answer when a site is lost."""

    _question: Question | None
    _waits: tuple[str, ...]
    # The lost links of the view that all its members have signed; more links may have been lost since.
    _agreed_lost: tuple[tuple[str, str], ...] = ()

    def _answer(self, answer: Any) -> None:
        self._question, self._waits = None, ()
        self._effects.append(ev.Deliver(answer))

    def _wait(self, names: Collection[str], what: str) -> None:
        """Note which neighbours the solver waits for, and fail if the wait is too long."""
        self._waits = tuple(names)
        lost = [name for name in names if self.links[name].lost]
        question = self._question
        if lost:
            self._lose(lost)
        elif names and question is not None and self.now - question.since > self.setup.round_s:
            text = f"{self.setup.name} waited {self.setup.round_s:g} s for {', '.join(names)} {what}."
            self.fail(DeadlineError(text), f"{self.setup.name} ended the run: {text}")

    def _bringers_of(self, missing: list[str]) -> list[str]:
        """Neighbours to wait for until the statements of these members arrive; others pass statements on."""
        near = [name for name in missing if name in self.links]
        return near or [link.name for link in self.links.values() if not link.finished]

    def _lose(self, names: list[str]) -> None:
        """React to lost neighbours as ``on_loss`` demands."""
        setup = self.setup
        silent = ", ".join(name for name in names if self.links[name].joined)
        absent = ", ".join(name for name in names if not self.links[name].joined)
        reasons = [f"has heard nothing from {silent} for {setup.patience_s:g} s"] if silent else []
        reasons += [f"has waited {setup.join_s:g} s for {absent} to join"] if absent else []
        text = f"{setup.name} {' and '.join(reasons)}."
        if setup.on_loss == "abort":
            self.fail(LostNeighbourError(text, names), f"{setup.name} ended the run: {text}")
        elif setup.on_loss == "wait":
            parked = f"{setup.name} parked the run: {text} Start all sites again to continue."
            self.fail(ParkedError(parked), parked)
        else:
            self.log(f"{text} The remaining sites now agree on who continues.")
            for name in names:
                self.state(LOST, sorted((setup.name, name)))
                self._drop(name)
            self.sign_view()
            self._agree()

    def _drop(self, name: str) -> None:
        number = self.links[name].stream
        if number is not None:
            self.cut(self.streams[number])

    def _agree(self) -> None:
        """Wait until every member has signed the view; neighbours that fall silent meanwhile are lost, too."""
        membership, setup = self.membership, self.setup
        left = {name for link in membership.links if setup.name in link for name in link if name != setup.name}
        finished = [link.name for link in self.links.values() if link.finished and link.name in left]
        try:
            membership.require_majority()
            if setup.masked and len(membership.members) < MIN_SITES:
                missing, who = ", ".join(membership.missing), " and ".join(membership.members)
                text = f"{missing} is lost; only {who} are left, and each would find the other's numbers by subtraction"
                raise TransportError(f"{text}; start all sites again.")
            if finished:
                who, links = ", ".join(finished), ", ".join(map("-".join, membership.lost))
                raise TransportError(f"{who} finished before {links} was lost; use its result, which is of all sites.")
            if self.now - self.view_since > MAX_PATIENCES * setup.patience_s + setup.join_s:
                who = ", ".join(membership.undecided)
                raise TransportError(f"{who} did not agree on who continues; start the run again.")
        except TransportError as error:
            self.fail(error, f"{setup.name} ended the run: {error}")
            return
        if membership.agreed and not self._unsent:
            self._agreed_lost = membership.lost
            self._answer(ev.MembersChanged(membership.lost))
            return
        self._waits = tuple(sorted(left))
        lost = [name for name in self.links if name in left and self.links[name].lost]
        if lost:
            self._lose(lost)
