"""``eigenmesh status``: how a run is going at this site."""

import datetime as dt
import json
import math
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from eigenmesh._text import one_line, readable_bytes
from eigenmesh.cli._messages import Messages, plain_errors
from eigenmesh.cli._options import argument, option
from eigenmesh.events import NeighbourStatus
from eigenmesh.report._tables import facts_table, new_table
from eigenmesh.sites._site import read_site
from eigenmesh.sites._status import Status, health, plain_values, read_status

SiteFile = Annotated[Path, argument("SITE.toml", "Settings of the site.")]
AsJson = Annotated[bool, option(None, None, "Print the status as JSON instead.", "--json")]
LONGEST_REASON = 300


@plain_errors()
def status(site: SiteFile, as_json: AsJson = False) -> None:
    """Show how the run is going at this site: round, residual, bytes, neighbours, and whom it waits for.

    Reads a file that the running peer keeps up to date; nothing is sent over the network. Warns if the file is stale
    or the process has ended.

    Example:

    - `eigenmesh status site.toml`
    """
    found = read_status(read_site(site).out.status)
    now = time.time()
    state = health(found, now)
    if as_json:
        waits = {"waiting_s": found.waiting_s, "waiting_for": found.waiting_for}
        plain = {**plain_values(found), **waits, "health": state, "age_s": now - found.written}
        typer.echo(json.dumps(plain, indent=2, allow_nan=False))
        return
    messages = Messages.of()
    messages.print(facts_table(_facts(found, now)))
    messages.print(_neighbours(found, now))
    for neighbour in found.neighbours:
        if neighbour.refusal and not neighbour.connected and not found.ended:
            messages.alert(f"{neighbour.name}: {one_line(neighbour.refusal, LONGEST_REASON)}", style="yellow")
    line, style = _words(found, state, now)
    if style:
        messages.alert(line, style=style)
    else:
        messages.print(line)


def _facts(found: Status, now: float) -> dict[str, str]:
    began = dt.datetime.fromtimestamp(found.started, dt.UTC) if found.started else None
    facts = {
        "site": f"{found.site}, run {found.run!r}",
        "phase": found.phase if not found.message else f"{found.phase}: {one_line(found.message)}",
        "round": f"{found.round:,} of a budget of {found.max_rounds:,}" if found.max_rounds else f"{found.round:,}",
        "residual": f"{found.residual:.1e}" if math.isfinite(found.residual) else "not known yet",
        "sent": readable_bytes(found.bytes),
        "process": f"{found.pid}" + (f", since {began:%Y-%m-%d %H:%M:%S} UTC" if began else ""),
        "written": f"{_ago(found.written, now)} ago",
    }
    if found.epoch:
        facts["membership"] = f"changed {found.epoch} times"
    return facts


def _neighbours(found: Status, now: float) -> Table:
    table = new_table("neighbour", "link", "last heard", "round trip", "at round", "sent", "received", left=2)
    # Narrow enough for 80 columns.
    table.collapse_padding = True
    for neighbour in found.neighbours:
        troubled = not found.ended and (neighbour.waiting or not neighbour.connected)
        table.add_row(*_row(neighbour, now), style="yellow" if troubled else None)
    return table


def _row(neighbour: NeighbourStatus, now: float) -> tuple[str, ...]:
    return (
        neighbour.name,
        ("waited for" if neighbour.waiting else "up") if neighbour.connected else "down",
        f"{_ago(neighbour.last_heard, now)} ago" if neighbour.last_heard else "never",
        f"{1e3 * neighbour.round_trip_s:.3g} ms" if neighbour.round_trip_s else "-",
        f"{neighbour.round:,}",
        readable_bytes(neighbour.bytes_sent),
        readable_bytes(neighbour.bytes_received),
    )


def _words(found: Status, state: str, now: float) -> tuple[str, str]:
    """A sentence about the state of the run, and its colour; none if all is well."""
    age = _ago(found.written, now)
    if state == "gone":
        return f"Process {found.pid} ended without reporting it; start eigenmesh peer again to resume.", "bold red"
    if state == "stale":
        return f"Process {found.pid} has written nothing for {age}; it may be stopped, or stuck.", "yellow"
    if state == "ended":
        return f"The run ended here {age} ago: {found.phase}.", "" if found.phase == "done" else "yellow"
    if found.waiting_for:
        return f"Waiting for {', '.join(found.waiting_for)}, for {found.waiting_s:.0f} s so far.", "yellow"
    return "Running.", ""


def _ago(then: float, now: float) -> str:
    seconds = max(0.0, now - then)
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
