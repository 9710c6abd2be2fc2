"""What the solver asks of a site: rounds of arrays, masks that are used once, and accounts of what was heard.

``Rounds`` sends the arrays of a round and collects those of the neighbours, from the journal after a restart. In a
masked run it also keeps the record of what was masked: the masked words of an average are on the disk before they are
sent, and after a crash the same words are sent again, because a mask that hides two different numbers hides neither.

``Accounts`` compares what sites have heard. A site in the middle can tell its neighbours different sums. Masks are
bound to what a site has heard, so such a lie turns later sums into noise. To name it, each site signs the running
hash of what it has heard, at the end of the set-up, with its result, and when a site is about to end the run with an
error, which may be due to the noise.

A method that works on a request of the solver returns its answer, or ``Wait`` with the neighbours that it waits for,
or None if the run has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenmesh.errors import InputError, TransportError
from eigenmesh.masking import pairwise_masks
from eigenmesh.protocol import effects as ev
from eigenmesh.protocol import wire
from eigenmesh.protocol.membership import Membership, TwiceError
from eigenmesh.protocol.outbox import Arrived, Epoch, Link, Message, Outbox
from eigenmesh.protocol.peering import Peering
from eigenmesh.protocol.setup import Stage, Statement, Topic
from eigenmesh.protocol.wire import Frame, JournalRecord, Kind, Mark

if TYPE_CHECKING:
    from eigenmesh.protocol.machine import SiteMachine

HASH_BYTES = 32


@dataclass
class Round:
    """A round that is under way: the request, the message to send, and the frames that are here so far."""

    event: ev.Exchange
    message: Message
    got: dict[str, Frame] = field(default_factory=dict)


class Accounts:
    """What the solver has heard in the current epoch, and what the members have signed about that and their results.

    Parameters
    ----------
    membership : the statements that are known here.
    outbox : where statements are signed and failures are reported. It has the site and how long it waits for others
        when it is about to end the run.

    Attributes
    ----------
    heard : running hashes of what the solver has heard in this epoch, see ``masking.Transcript``.
    """

    def __init__(self, membership: Membership, outbox: Outbox) -> None:
        self.membership, self.outbox, self.setup, self.clock = membership, outbox, outbox.setup, outbox.clock
        # When this site has signed what it has heard because of an error in doubt.
        self._doubt_since: float | None = None
        self.enter()

    def enter(self) -> None:
        """Begin an epoch, in which nothing was heard yet."""
        self.heard: list[bytes] = []
        # How much another site had heard when it asked, before it ends the run, what the others have heard.
        self._ending_at: int | None = None

    @property
    def last_heard(self) -> str:
        """The running hash of what the solver has heard, in hexadecimal; empty without masks."""
        return self.heard[-1].hex() if self.heard else ""

    def hear(self, heard: tuple[bytes, ...]) -> None:
        """Add the solver's running hashes, and compare them with what other sites have signed."""
        self.heard.extend(heard)
        self._answer_ending()
        for stage in (Stage.SET_UP, Stage.ENDING):
            for statement in self.membership.heard(self.outbox.epoch.number, stage).values():
                self._compare(statement)

    def learn(self, statement: Statement) -> None:
        """Act on what another site has signed that it has heard."""
        epoch = self.outbox.epoch
        if statement.content[0] != epoch.number or statement.site not in epoch.members:
            return
        if statement.content[1] == Stage.ENDING and self._ending_at is None:
            self._ending_at = statement.content[2]
            self._answer_ending()
        self._compare(statement)

    def _answer_ending(self) -> None:
        """Sign what this site has heard up to the error of another one, which waits for that."""
        if self._ending_at is not None and self.heard:
            self.sign_heard(Stage.ENDING, self._ending_at)

    def _compare(self, statement: Statement) -> None:
        """End the run if another site has heard something else than this one, up to the point that it has signed."""
        position, digest = statement.content[2:4]
        if position < len(self.heard) and self.heard[position].hex() != digest:
            self._told_apart(statement.site)

    def _told_apart(self, site: str) -> None:
        """End the run: a site in between has told this site and another one different numbers."""
        text = (
            f"{site} was told other numbers than {self.setup.name}: a site does not follow the protocol, or has "
            "continued with other arithmetic. There is no result. From the first such number on masks did not cancel, "
            "so they still hide each site."
        )
        self.outbox.end(TransportError(text))

    def sign_heard(self, stage: str, position: int | None = None) -> None:
        """Sign the running hash at this position, or at the last one if it is not there yet; once per start."""
        last, start = len(self.heard) - 1, self.outbox.past.instance.start if stage == Stage.ENDING else 0
        position = last if position is None else min(position, last)
        epoch = self.outbox.epoch.number
        known = self.membership.heard(epoch, stage).get(self.setup.name)
        if known is not None and stage == Stage.ENDING and known.content[4] == start:
            return
        try:
            self.outbox.state(Topic.HEARD, [epoch, stage, position, self.heard[position].hex(), start])
        except TwiceError:
            self.outbox.end_misfit("this site has signed that it has heard something else")

    def count_heard(self, stage: str, since: float) -> ev.Deliver | ev.Wait | None:
        """Answer once all members have signed what they have heard; ``since`` is the time of the request."""
        epoch = self.outbox.epoch
        last, signed = len(self.heard) - 1, self.membership.heard(epoch.number, stage)
        apart = [site for site, statement in signed.items() if stage == Stage.SET_UP and statement.content[2] != last]
        if apart:
            self._told_apart(apart[0])
            return None
        if self._all_ended(since) if stage == Stage.ENDING else len(signed) == len(epoch.members):
            return None if self.outbox.has_unsent else ev.Deliver(None)
        return ev.Wait(bringers_of(signed, epoch), "to sign what it has heard")

    def _all_ended(self, since: float) -> bool:
        """Whether all members have signed what they have heard up to the error of this site, or take too long."""
        epoch = self.outbox.epoch
        signed = self.membership.heard(epoch.number, Stage.ENDING)
        own = signed[self.setup.name].content[2] if self.setup.name in signed else 0
        there = [site for site, statement in signed.items() if statement.content[2] >= own]
        return len(there) == len(epoch.members) or self.clock.now - since > self.setup.patience_s

    def settle_doubt(self) -> None:
        """End the run with the error in doubt, unless sites have heard different numbers, which is the reason then."""
        doubt = self.outbox.doubt
        if doubt is None:
            return
        if self.heard and self._doubt_since is None:
            self._doubt_since = self.clock.now
            self.sign_heard(Stage.ENDING)
        if self.outbox.failure is None and (self._doubt_since is None or self._all_ended(self._doubt_since)):
            self.outbox.end(doubt)

    def sign_result(self, digest: str) -> None:
        """Sign the digest of the result, and what was heard on the way to it."""
        self.outbox.state(Topic.RESULT, [self.outbox.epoch.number, digest, self.last_heard])

    def count_signatures(self, digest: str) -> ev.Deliver | ev.Wait | None:
        """Answer once all members have signed the same result, after they have heard the same."""
        epoch = self.outbox.epoch
        signed = self.membership.results(epoch.number)
        for site, statement in signed.items():
            if statement.content[1] != digest:
                self.outbox.end(TransportError(f"{site} has signed a different result than {self.setup.name}."))
                return None
            if statement.content[2] != self.last_heard:
                self._told_apart(site)
                return None
        if len(signed) == len(epoch.members) and not self.outbox.has_unsent:
            return ev.Deliver({site: statement.text for site, statement in signed.items()})
        return ev.Wait(bringers_of(signed, epoch), "to sign the result")


class Rounds:
    """Sends a round, waits for the frames of neighbours, and writes them and what was masked to the journal.

    Parameters
    ----------
    membership : the statements that are known here, with the keys for masks.
    outbox : where rounds are sent and kept. It has the site, and its journal when the process started.
    peering : where a frame that does not fit is rejected.
    accounts : what was heard so far; masks are bound to it.

    Attributes
    ----------
    masked : records of what earlier processes masked in this epoch, by the number of the average.
    next_masked : the smallest number of an average that may come next.
    masked_record : the last record of masked words. No numbers are sent before it is on the disk.
    finished_at : an earlier process said farewell before this round, so the neighbours may be gone.
    """

    def __init__(self, membership: Membership, outbox: Outbox, peering: Peering, accounts: Accounts) -> None:
        self.membership, self.outbox, self.peering, self.accounts = membership, outbox, peering, accounts
        self.setup, self.past = outbox.setup, outbox.past
        self.enter()
        for entry in self.past.entries:
            if entry.epoch != outbox.epoch.number:
                continue
            if entry.mark is Mark.MASKED:
                self.masked[entry.round] = entry
            elif entry.mark is Mark.DONE and self.setup.sites[entry.sender] == self.setup.name:
                self.finished_at = entry.round

    def enter(self) -> None:
        """Begin an epoch, in which nothing was masked yet."""
        self.masked: dict[int, JournalRecord] = {}
        self.next_masked, self.masked_record, self.finished_at = 0, -1, 0

    def begin(self, event: ev.Exchange) -> Round:
        """A new round, of which nothing is sent yet."""
        epoch = self.outbox.epoch
        # Usually the same for all receivers, so that they can share one frame.
        safe = max((epoch.links[name].safe_here for name in event.send_to), default=0)
        return Round(event, self.outbox.message(Kind.DATA, event.body, epoch.round, event.tag, safe))

    def collect(self, round_: Round) -> ev.Deliver | ev.Wait | None:
        """Send the round unless it is sent, and answer once the frames of all neighbours are here."""
        epoch, event, message = self.outbox.epoch, round_.event, round_.message
        if message.round == epoch.round:
            if event.send_to and not self.outbox.is_durable(self.masked_record):
                # Wait for the disk: after a crash, a mask that is not on record could be used for other numbers.
                return ev.Wait(())
            full = tuple(name for name in event.send_to if epoch.links[name].full)
            if full and message.round >= self.finished_at:
                return ev.Wait(full, "to acknowledge what was sent")
            epoch.round += 1
            for name in event.send_to:
                if epoch.links[name].retain(message):
                    self.outbox.write(epoch.links[name], message)
        missing = [name for name in event.receive_from if name not in round_.got and not self._pick(name, round_)]
        if self.outbox.failure is not None:
            return None
        if missing:
            return ev.Wait(tuple(missing), f"to send round {message.round}")
        return ev.Deliver(round_.got)

    def _pick(self, name: str, round_: Round) -> bool:
        """Take a neighbour's frame from the journal or from those that have arrived; False if it is not there yet."""
        link, message = self.outbox.epoch.links[name], round_.message
        if link.replay:
            return self._pick_from_journal(link, round_)
        if link.next_in <= message.round:
            if link.complete:
                self.outbox.fail(
                    TransportError(f"{name} has finished, but its round {message.round} is still needed."),
                    f"{self.setup.name} ended the run: {name} finished early.",
                )
            return False
        arrived = link.take(message.round)
        misfit = misfit_of(arrived, message)
        if arrived is None or misfit:
            self.peering.strike(link, message.round, misfit)
            return False
        round_.got[name] = arrived.frame
        link.strikes = 0
        link.unreported_bytes += len(arrived.data)
        self.outbox.keep_frame(link, arrived.data, message.round)
        return True

    def _pick_from_journal(self, link: Link, round_: Round) -> bool:
        message, entry = round_.message, link.replay.popleft()
        data = self.past.read(entry)
        frame = wire.decode(data, self.setup.run.max_message_bytes)
        misfit = misfit_of(Arrived(frame, data), message)
        if entry.round != message.round or misfit:
            what = misfit or f"has round {entry.round} in it, but this run needs {message.round}"
            self.outbox.end_misfit(f"{link.name} {what}")
            return False
        # The neighbour had these rounds on its disk then, so they need not be kept for it: a replay waits for nobody.
        link.acknowledge(frame.acknowledged)
        round_.got[link.name] = frame
        return True

    def count_keys(self) -> ev.Deliver | ev.Wait | None:
        """Answer once all members have joined, and in a masked run their keys are known.

        They are part of signed statements: of the instance of each process, and after a loss of each view.
        """
        epoch, shown = self.outbox.epoch, self.membership.keys()
        if any(name not in shown for name in epoch.members):
            return ev.Wait(bringers_of(shown, epoch), "to send its key")
        if not self.outbox.setup.masked:
            return ev.Deliver(shown)
        without = [name for name, public in shown.items() if not public]
        if without:
            text = f"{', '.join(without)} sent no key for masks; without one its numbers would be visible."
            self.outbox.end(TransportError(text))
            return None
        # Masks are made with these keys from now on, so no site may change its key.
        self.membership.fresh = False
        return ev.Deliver(shown)

    def keep_masked(self, event: ev.Mask) -> ev.Deliver | None:
        """Record the masked words, or answer with those that an earlier process recorded and may have sent."""
        if event.number < self.next_masked:
            text = f"average {event.number} would be masked again; the next one is {self.next_masked}."
            self.outbox.end(InputError(text))
            return None
        self.accounts.hear(event.heard)
        self.next_masked = event.number + 1
        before, bound_to = self.masked.pop(event.number, None), self.accounts.heard[-1]
        recorded = bound_to + event.masked if before is None else self.past.read(before)
        heard, masked = recorded[:HASH_BYTES], recorded[HASH_BYTES:]
        if len(masked) != len(event.masked):
            text = f"average {event.number} has {len(masked)} bytes in it, but this run needs {len(event.masked)}"
            self.outbox.end_misfit(text)
            return None
        if heard != bound_to:
            text = f"what was heard before average {event.number} has another hash now"
            self.outbox.end_misfit(f"{text}; continue on the computer, and with the versions, that the run began with")
            return None
        if before is None:
            self.masked_record = self.outbox.append(Mark.MASKED, recorded, round_=event.number)
        return ev.Deliver(masked)


class JournalledMasks:
    """Masks whose words are in the journal before they are sent. After a crash the same words are sent again.

    Parameters
    ----------
    machine : of the site.
    ask : makes a request to the machine.
    known : the keys that the members of the current epoch have signed.
    """

    signed = True

    def __init__(self, machine: SiteMachine, ask: Callable[[Any], Any], known: dict[str, bytes]) -> None:
        context = machine.mask_context
        publics, rank = [known[name] for name in context.names], context.names.index(machine.setup.name)
        self.left = tuple(name for name in machine.setup.sites if name not in context.names)
        self._ask, self._masks = ask, pairwise_masks(machine.past.site_key(machine.epoch.lost), publics, rank, context)

    def hear(self, digest: bytes) -> None:
        self._masks.hear(digest)

    def news(self) -> tuple[bytes, ...]:
        """Running hashes of what the site has heard since the last call, for the machine."""
        return self._masks.transcript.news()

    def masked(self, number: int, words: np.ndarray) -> np.ndarray:
        """The masked words that may be sent for the average with this number, (n,) -> (n,) uint64."""
        masked = self._masks.masked(number, words).astype("<u8", copy=False).tobytes()
        kept = self._ask(ev.Mask(number, self.news(), masked))
        return np.frombuffer(kept, "<u8").astype(np.uint64, copy=False)


def bringers_of(there: Collection[str], epoch: Epoch) -> tuple[str, ...]:
    """Neighbours to wait for until the statements of the other members arrive. All neighbours pass statements on."""
    near = tuple(name for name in epoch.members if name not in there and name in epoch.links)
    return near or tuple(link.name for link in epoch.links.values() if not link.finished)


def misfit_of(arrived: Arrived | None, message: Message) -> str:
    """What is wrong with a frame in this round; empty if it fits."""
    if arrived is None:
        return f"left out round {message.round}"
    frame = arrived.frame
    if frame.tag != message.tag:
        return f"sent a round of kind {frame.tag} where kind {message.tag} is expected"
    shapes, dtypes = wire.shapes_and_dtypes(frame.arrays)
    if shapes != message.shapes or dtypes != message.dtypes:
        return f"sent shapes {shapes} of {dtypes} where {message.shapes} of {message.dtypes} are expected"
    return ""
