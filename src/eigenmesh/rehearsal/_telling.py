"""Events of a rehearsal, as a page shows them: what one site would tell, in virtual seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eigenmesh.events import Ended, EventLog, Listener, Lost, Members
from eigenmesh.rehearsal._conditions import Conditions
from eigenmesh.rehearsal._scenario import Fault

RUN = "a rehearsal"


class Telling:
    """Tells listeners of the fit of one site that is not killed for good, and of all sites that go and come back."""

    def __init__(
        self, sites: tuple[str, ...], faults: Sequence[Fault], listeners: Sequence[Listener], clock: Callable[[], float]
    ) -> None:
        killed = {fault.site for fault in faults if fault.kind == "kill"}
        self.observer = next((site for site in sites if site not in killed), sites[0])
        self._sites, self._log, self._down = sites, EventLog(*listeners, clock=clock), set[str]()

    def log_of(self, site: str) -> EventLog | None:
        """Where the fit of a site is told; None for all but one."""
        return self._log if site == self.observer else None

    def begin(self, conditions: Conditions) -> None:
        """Tell who is there, and how far apart."""
        self.members()
        for latency in conditions.latencies:
            self._log.emit(latency)

    def members(self) -> None:
        """Tell who is there."""
        here, gone = ([site for site in self._sites if (site in self._down) == lost] for lost in (False, True))
        self._log.emit(Members(RUN, self.observer, 0, tuple(here), tuple(gone)))

    def down(self, site: str) -> None:
        """A process is no longer there."""
        if site not in self._down:
            self._down.add(site)
            self._log.emit(Lost((site,), f"{site} was killed."))

    def up(self, site: str) -> None:
        """A process is there again."""
        if site in self._down:
            self._down.remove(site)
            self.members()

    def over(self, last: Ended) -> None:
        """Tell how it has ended."""
        self._log.emit(last)
