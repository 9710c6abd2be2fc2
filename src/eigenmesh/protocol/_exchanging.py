"""Seventh layer of a site's machine: one round of arrays, from the neighbours or from the journal."""

from eigenmesh.errors import InputError, TransportError
from eigenmesh.protocol import _events as ev
from eigenmesh.protocol import _wire as wire
from eigenmesh.protocol._agreement import Question
from eigenmesh.protocol._hiding import Hiding
from eigenmesh.protocol._link import Arrived, Link, Message, misfit_of
from eigenmesh.protocol._records import Mark


class Exchanging(Hiding):
    """Sends a round, waits for the frames of neighbours, and writes them to the journal."""

    def _collect(self, question: Question, event: ev.Exchange, durable: int) -> None:
        message = question.message
        if message is None:
            return
        if message.round == self.round:
            if event.send_to and self.masked_record >= durable:
                # Wait for the disk: after a crash, a mask that is not on record could be used for other numbers.
                self._waits = ()
                return
            full = [name for name in event.send_to if self.links[name].full]
            if full and message.round >= self.finished_at:
                self._wait(full, "to acknowledge what was sent")
                return
            self.round += 1
            for name in event.send_to:
                if self.links[name].retain(message):
                    self.write(self.links[name], message)
        missing = [name for name in event.receive_from if name not in question.got and not self._pick(name, question)]
        if self.failure is not None:
            return
        if not missing:
            self._answer(ev.Received(question.got))
        else:
            self._wait(missing, f"to send round {message.round}")

    def _pick(self, name: str, question: Question) -> bool:
        """Take a neighbour's frame from the journal or from those that have arrived; False if it is not there yet."""
        link, message = self.links[name], question.message
        if message is None:
            return False
        if link.replay:
            return self._pick_from_journal(link, question, message)
        if link.next_in <= message.round:
            if link.complete:
                self.fail(
                    TransportError(f"{name} has finished, but its round {message.round} is still needed."),
                    f"{self.setup.name} ended the run: {name} finished early.",
                )
            return False
        arrived = link.take(message.round)
        misfit = misfit_of(arrived, message)
        if arrived is None or misfit:
            self.strike(link, message.round, misfit)
            return False
        question.got[name] = arrived.frame
        link.strikes = 0
        link.unreported_bytes += len(arrived.data)
        number = self.append(Mark.FRAME, arrived.data, name, message.round)
        self._not_durable.append((number, name, message.round + 1, self.epoch))
        return True

    def _pick_from_journal(self, link: Link, question: Question, message: Message) -> bool:
        entry = link.replay.popleft()
        data = self.past.read(entry)
        frame = wire.decode(data, self.setup.run.max_message_bytes)
        misfit = misfit_of(Arrived(frame, data), message)
        if entry.round != message.round or misfit:
            what = misfit or f"has round {entry.round} in it, but this run needs {message.round}"
            error = InputError(f"the journal of {self.setup.name} does not fit this run: {link.name} {what}.")
            self.fail(error, f"{self.setup.name} ended the run: its journal does not fit it.")
            return False
        # The neighbour had these rounds on its disk then, so they need not be kept for it: a replay waits for nobody.
        link.acknowledge(frame.acknowledged)
        question.got[link.name] = frame
        return True
