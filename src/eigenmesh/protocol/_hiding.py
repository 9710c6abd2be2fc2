"""Sixth layer of a site's machine: keys for masks, the record that no mask is used twice, and what sites have heard."""

from eigenmesh.errors import InputError, TransportError
from eigenmesh.protocol import _events as ev
from eigenmesh.protocol._agreement import Agreement, Question
from eigenmesh.protocol._membership import TwiceError
from eigenmesh.protocol._records import Mark
from eigenmesh.protocol._statements import ENDING, HEARD, SET_UP, Statement

HASH_BYTES = 32


class Hiding(Agreement):
    """Public keys are part of signed statements: of the instance of each process, and after a loss of each view.

    A site in the middle can tell its neighbours different sums. Masks are bound to what a site has heard, so such a lie
    turns later sums into noise. To name it, each site signs the running hash of what it has heard, at the end of the
    set-up, with its result, and when a site is about to end the run with an error, which may be due to the noise.
    """

    def _count_keys(self) -> None:
        """Answer once the keys of all members are known."""
        shown = self.membership.keys()
        missing = [name for name in self.members if name not in shown]
        if missing:
            self._wait(self._bringers_of(missing), "to send its key")
            return
        without = [name for name, public in shown.items() if not public]
        if without:
            text = f"{', '.join(without)} sent no key for masks; without one its numbers would be visible"
            self.fail(TransportError(f"{text}."), f"{self.setup.name} ended the run: {text}.")
            return
        # Masks are made with these keys from now on, so no site may change its key.
        self.membership.fresh = False
        self._answer(ev.PublicKeys(shown))

    def _keep_masked(self, event: ev.Mask) -> None:
        """Record the masked words, or answer with those that an earlier process recorded and may have sent."""
        if event.number < self.next_masked:
            text = f"average {event.number} would be masked again; the next one is {self.next_masked}"
            self.fail(InputError(f"{text}."), f"{self.setup.name} ended the run: {text}.")
            return
        self.hear(event.heard)
        self.next_masked = event.number + 1
        before, bound_to = self.masked.pop(event.number, None), self.heard[-1]
        recorded = bound_to + event.masked if before is None else self.past.read(before)
        heard, masked = recorded[:HASH_BYTES], recorded[HASH_BYTES:]
        if len(masked) != len(event.masked):
            self._misfit(
                f"average {event.number} has {len(masked)} bytes in it, but this run needs {len(event.masked)}"
            )
            return
        if heard != bound_to:
            text = f"what was heard before average {event.number} has another hash now"
            self._misfit(f"{text}; continue on the computer, and with the versions, that the run began with")
            return
        if before is None:
            self.masked_record = self.append(Mark.MASKED, recorded, round_=event.number)
        self._answer(ev.Masked(masked))

    def _misfit(self, text: str) -> None:
        error = InputError(f"the journal of {self.setup.name} does not fit this run: {text}.")
        self.fail(error, f"{self.setup.name} ended the run: its journal does not fit it.")

    @property
    def last_heard(self) -> str:
        """The running hash of what the solver has heard, in hexadecimal; empty without masks."""
        return self.heard[-1].hex() if self.heard else ""

    def hear(self, heard: tuple[bytes, ...]) -> None:
        """Add the solver's running hashes, and compare them with what other sites have signed."""
        self.heard.extend(heard)
        self._answer_ending()
        for stage in (SET_UP, ENDING):
            for statement in self.membership.heard(self.epoch, stage).values():
                self._compare(statement)

    def learn(self, statement: Statement, source: str) -> None:
        super().learn(statement, source)
        if statement.kind != HEARD or statement.content[0] != self.epoch or statement.site not in self.members:
            return
        if statement.content[1] == ENDING and self.ending_at is None:
            self.ending_at = statement.content[2]
            self._answer_ending()
        self._compare(statement)

    def _answer_ending(self) -> None:
        """Sign what this site has heard up to the error of another one, which waits for that."""
        if self.ending_at is not None and self.heard:
            self.sign_heard(ENDING, self.ending_at)

    def _compare(self, statement: Statement) -> None:
        """End the run if another site has heard something else than this one, up to the point that it has signed."""
        position, digest = statement.content[2:4]
        if position < len(self.heard) and self.heard[position].hex() != digest:
            self.told_apart(statement.site)

    def told_apart(self, site: str) -> None:
        """End the run: a site in between has told this site and another one different numbers."""
        text = (
            f"{site} was told other numbers than {self.setup.name}: a site does not follow the protocol, or has "
            "continued with other arithmetic. There is no result. From the first such number on masks did not cancel, "
            "so they still hide each site."
        )
        self.fail(TransportError(text), f"{self.setup.name} ended the run: {text}")

    def sign_heard(self, stage: str, position: int | None = None) -> None:
        """Sign the running hash at this position, or at the last one if it is not there yet; once per start."""
        last, start = len(self.heard) - 1, self.past.instance.start if stage == ENDING else 0
        position = last if position is None else min(position, last)
        known = self.membership.heard(self.epoch, stage).get(self.setup.name)
        if known is not None and stage == ENDING and known.content[4] == start:
            return
        try:
            self.state(HEARD, [self.epoch, stage, position, self.heard[position].hex(), start])
        except TwiceError:
            self._misfit("this site has signed that it has heard something else")

    def _count_heard(self, question: Question, stage: str) -> None:
        """Answer once all members have signed what they have heard."""
        last, signed = len(self.heard) - 1, self.membership.heard(self.epoch, stage)
        apart = [site for site, statement in signed.items() if stage == SET_UP and statement.content[2] != last]
        if apart:
            self.told_apart(apart[0])
        elif self._all_ended(question.since) if stage == ENDING else len(signed) == len(self.members):
            if not self._unsent:
                self._answer(ev.Compared())
        else:
            missing = [name for name in self.members if name not in signed]
            self._wait(self._bringers_of(missing), "to sign what it has heard")

    def _all_ended(self, since: float) -> bool:
        """Whether all members have signed what they have heard up to the error of this site, or take too long."""
        signed = self.membership.heard(self.epoch, ENDING)
        own = signed[self.setup.name].content[2] if self.setup.name in signed else 0
        there = [site for site, statement in signed.items() if statement.content[2] >= own]
        return len(there) == len(self.members) or self.now - since > self.setup.patience_s

    def _settle_doubt(self) -> None:
        """End the run with the error in doubt, unless sites have heard different numbers, which is the reason then."""
        if self.doubt is None:
            return
        if self.heard and self.doubt_since is None:
            self.doubt_since = self.now
            self.sign_heard(ENDING)
        if self.failure is None and (self.doubt_since is None or self._all_ended(self.doubt_since)):
            self.fail(*self.doubt)
