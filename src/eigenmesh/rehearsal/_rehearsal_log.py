"""The events of a rehearsal as one site would emit them, in virtual seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eigenmesh.events import Ended, EventLog, Listener, Lost, Members
from eigenmesh.rehearsal._conditions import Conditions, Fault

RUN = "a rehearsal"


class RehearsalLog:
    """Passes events to listeners: the fit of one site that is not killed for good, and which sites go and come back."""

    def __init__(
        self, sites: tuple[str, ...], faults: Sequence[Fault], listeners: Sequence[Listener], clock: Callable[[], float]
    ) -> None:
        killed = {fault.site for fault in faults if fault.kind == "kill"}
        self.observer = next((site for site in sites if site not in killed), sites[0])
        self._sites, self._log, self._down = sites, EventLog(*listeners, clock=clock), set[str]()

    def log_of(self, site: str) -> EventLog | None:
        """The event log for the fit of a site; None for all sites but the observer."""
        return self._log if site == self.observer else None

    def begin(self, conditions: Conditions) -> None:
        """Emit the members and the latencies of their links."""
        self.members()
        for latency in conditions.latencies:
            self._log.emit(latency)

    def members(self) -> None:
        """Emit the present and the missing members."""
        here, gone = ([site for site in self._sites if (site in self._down) == lost] for lost in (False, True))
        self._log.emit(Members(RUN, self.observer, 0, tuple(here), tuple(gone)))

    def down(self, site: str) -> None:
        """A site has no process any more."""
        if site not in self._down:
            self._down.add(site)
            self._log.emit(Lost((site,), f"{site} was killed."))

    def up(self, site: str) -> None:
        """A site has a process again."""
        if site in self._down:
            self._down.remove(site)
            self.members()

    def over(self, last: Ended) -> None:
        """Emit the end of the run."""
        self._log.emit(last)
