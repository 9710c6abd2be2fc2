"""Sixth layer of a site's machine: the members' keys for masks, and the record that no mask is used twice."""

from eigenmesh.errors import InputError, TransportError
from eigenmesh.protocol import _events as ev
from eigenmesh.protocol._agreement import Agreement
from eigenmesh.protocol._records import Mark


class Hiding(Agreement):
    """Public keys are part of signed statements: of the instance of each process, and after a loss of each view."""

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
        self.next_masked = event.number + 1
        before = self.masked.pop(event.number, None)
        masked = event.masked if before is None else self.past.read(before)
        if len(masked) != len(event.masked):
            text = f"average {event.number} has {len(masked)} bytes in it, but this run needs {len(event.masked)}"
            error = InputError(f"the journal does not fit this run: {text}.")
            self.fail(error, f"{self.setup.name} ended the run: its journal does not fit it.")
            return
        if before is None:
            self.masked_record = self.append(Mark.MASKED, masked, round_=event.number)
        self._answer(ev.Masked(masked))
