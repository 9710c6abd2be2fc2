"""``eigenmesh watch``: a page that shows a run live."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import argument, option
from eigenmesh.cli.output import components_of, require_report, save_page
from eigenmesh.errors import EigenmeshError, InputError
from eigenmesh.events import Ended, Entry, EventReader, Planned
from eigenmesh.model import read_model
from eigenmesh.report.page import LOOPBACK, Feed, PageServer, fate_of

EVENTS_FILE = "events.jsonl"
# Pause before the audit is summarised again, as a multiple of the time that a summary took.
REST = 20.0

RunPath = Annotated[Path, argument("RUN", "A site.toml, a peer's out folder, or a file of --events.")]
Port = Annotated[int, option(None, "PORT", "Port of the page; 0 for any free one.", min=0, max=65535)]
Host = Annotated[str, option(None, "ADDRESS", "With any but 127.0.0.1, other machines can reach the page.")]
Report = Annotated[
    Path | None,
    option(None, "FILE.html", "Write the page in its current state to one file, instead of serving it.", "--report"),
]


def watch(run: RunPath, port: Port = 0, host: Host = LOOPBACK, report: Report = None) -> None:
    """Serve a page on this machine that shows a run: the network, the certified bound, traffic, who waits for whom.

    It reads files that the run writes, and does not disturb the run. It can be started before the run, or long after
    its end. The address contains a token; without it, nothing is shown. The page stays until Ctrl-C.

    Examples:

    - `eigenmesh watch hospital-a/site.toml`

    - `eigenmesh watch run.jsonl`

    - `eigenmesh watch hospital-a/site.toml --report run.html`
    """
    messages = Messages.of()
    if report is not None:
        messages.print(f"wrote {write_report(run, require_report(report))}")
        return
    source = _source(run)
    if host != LOOPBACK:
        messages.alert("anybody who can reach this machine and knows the address can see the page.", style="yellow")
    with messages.waiting("forecasting the run"):
        first = source.first_entry(EventReader(source.events).new())
    with PageServer(Feed(source.events, first, source.left), source.title, host, port) as server:
        messages.print(f"watch it at {server.address}")
        if not source.events.exists() or not source.events.stat().st_size:
            messages.alert(f"waiting for the run: there is no event in {source.events} yet.", style="yellow")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


class WatchedRun(NamedTuple):
    """The files of a run, and what its page shows.

    ``left`` summarises what has left the site, ``results`` is the folder of the result, and ``forecast`` plans the run
    if its events have no forecast.
    """

    events: Path
    title: str
    left: Callable[[], dict[str, Any] | None]
    results: Path | None = None
    forecast: Callable[[], Planned | None] = lambda: None

    def first_entry(self, entries: Sequence[Entry]) -> list[Entry]:
        """The forecast, if there is one, as an entry to put before these."""
        planned, at_s = self.forecast(), entries[0].time_s if entries else time.time()
        return [] if planned is None else [Entry(at_s, planned)]


def write_report(run: Path, report: Path) -> Path:
    """Write the page of a run in its current state to a file."""
    source = _source(run)
    entries = EventReader(source.events).new()
    if not entries:
        raise InputError(f"there is no event in {source.events} yet; start the run first.")
    entries = [*source.first_entry(entries), *entries]
    about: dict[str, Any] = {"left": source.left()}
    if not isinstance(entries[-1].event, Ended):
        about["fate"] = fate_of(source.events, entries[-1])
    if source.results is not None and isinstance(entries[-1].event, Ended) and entries[-1].event.outcome == "done":
        numbers = json.loads((source.results / "result.json").read_text(encoding="utf-8"))
        about["components"] = components_of(read_model(source.results / "result.npz"), numbers["error_bounds"])
    return save_page(report, source.title, entries, **about)


def _source(run: Path) -> WatchedRun:
    if run.suffix == ".toml":
        from eigenmesh.sites import read_site
        from eigenmesh.sites.peer import forecast

        site = read_site(run)
        title, out = f"{site.name} in {site.run}", site.out
        return WatchedRun(out.events, title, left_by(out.audit), out.folder, lambda: forecast(site))
    if run.is_dir():
        if (run / "site.toml").exists():
            raise InputError(
                f"{run} is the folder of a site, to which no run writes; give {run / 'site.toml'} instead."
            )
        return WatchedRun(run / EVENTS_FILE, f"Run in {run.resolve().name}", left_by(run / "audit.jsonl"), run)
    if run.exists() or (run.suffix == ".jsonl" and run.parent.is_dir()):
        # An empty file may be of a run that has just started.
        if run.exists() and run.stat().st_size and not EventReader(run).new():
            raise InputError(f"{run} has no events; give a site.toml, a peer's out folder, or a file of --events.")
        return WatchedRun(run, f"Run in {run.name}", lambda: None)
    raise InputError(f"{run} does not exist; give a site.toml, a peer's out folder, or a file of --events.")


def left_by(audit: Path) -> Callable[[], dict[str, Any] | None]:
    """A function that summarises what has left a site by its audit; None if there is none that can be read."""
    next_time = 0.0
    found: dict[str, Any] | None = None

    def summarised() -> dict[str, Any] | None:
        nonlocal next_time, found
        began = time.monotonic()
        if began < next_time or not audit.exists():
            return found
        from eigenmesh.sites.audit import summary

        with suppress(EigenmeshError, IndexError):
            run = summary(audit).runs[-1]
            kind = "masked, so that each alone looks like noise" if run.masked else "open to the neighbours"
            found = {
                "words": [f"{run.data.messages:,} messages with numbers, {kind}; samples never leave."],
                "neighbours": [[name, count.messages, count.bytes] for name, count in run.by_neighbour.items()],
            }
        next_time = began + REST * (time.monotonic() - began)
        return found

    return summarised
