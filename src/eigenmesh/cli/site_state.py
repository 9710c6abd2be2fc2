"""``eigenmesh site check``, ``approve``, ``status`` and ``audit``: a site before, during and after a run."""

from __future__ import annotations

import datetime as dt
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from eigenmesh.atomic_write import require_writable
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import AsJson, SiteFile, argument, option
from eigenmesh.cli.process import BAD_INPUT, BROKEN_CHAIN, NOT_WELL
from eigenmesh.errors import InputError, import_extra
from eigenmesh.events import NeighbourStatus
from eigenmesh.masking import known_of_all
from eigenmesh.report.tables import facts_table, new_table
from eigenmesh.sites import read_site
from eigenmesh.sites.audit import Chain, Count, RunSummary, summary
from eigenmesh.sites.status import Status, health, plain_values, read_status
from eigenmesh.words import one_line, readable_bytes

if TYPE_CHECKING:
    from eigenmesh.sites.site import Site

WELL_HELP = "Print nothing: the exit status says whether the peer is well."
IsWell = Annotated[bool, option(None, None, WELL_HELP, "--well")]
STATEMENT_HELP = "Write what this run would send, for the person who decides: this page, and the same as text."
StatementPage = Annotated[Path | None, option(None, "FILE.html", STATEMENT_HELP, "--statement")]
STYLES = {"ok": None, "note": "yellow", "problem": "bold red"}
LONGEST_REASON = 300
Name = Annotated[str, option(None, "NAME", "Name of the person who approves.")]
DIGEST_HELP = "The digest on the statement that was read; its first 16 characters do."
Digest = Annotated[str, option(None, "DIGEST", DIGEST_HELP)]
AuditFile = Annotated[Path, argument("FILE", "The audit.jsonl of a site.")]
# Shapes and broken lines that are listed at most.
MOST_SHAPES = 12


def check(site: SiteFile, as_json: AsJson = False, statement: StatementPage = None) -> None:
    """Check everything that a run needs at this site, without starting it.

    It checks the settings; the certificates and their dates; whether the port is free; whether the neighbours that this
    site calls answer and accept its certificate; the samples, missing entries and constant columns; the out folder and
    its free space; and how much a run would send if all sites had samples like these. No sample or result is sent, and
    no file is written, unless **--statement** asks for it. Exit status: 2 if there is a problem.

    With **--statement** the page for the person who decides is written, as HTML and next to it as text: what this run
    would send, what others would learn, and the digest with which to approve it.

    Examples:

    - `eigenmesh site check site.toml`

    - `eigenmesh site check site.toml --json`

    - `eigenmesh site check site.toml --statement statement.html`
    """
    import_extra("cryptography", "peers", "eigenmesh site check")
    from eigenmesh.sites.check import check as findings_of

    messages = Messages.of()
    described = read_site(site)
    with messages.waiting("checking"):
        findings = list(findings_of(described))
    written = () if statement is None else _statement(described, statement)
    problems = sum(finding.verdict == "problem" for finding in findings)
    if as_json:
        found = {"site": described.name, "run": described.run, "findings": [asdict(one) for one in findings]}
        typer.echo(json.dumps(found, indent=2))
    else:
        table = new_table("", "", "", left=3, show_header=False)
        for finding in findings:
            table.add_row(finding.about, finding.verdict, one_line(finding.text), style=STYLES[finding.verdict])
        messages.print(table)
        ready = f"{described.name} is ready: eigenmesh site {'run' if described.edges else 'key'} {site}"
        messages.print(f"Problems found: {problems}." if problems else ready)
        for path in written:
            messages.print(f"wrote {path}: for the person who decides; it stays here")
    if problems:
        raise typer.Exit(BAD_INPUT)


def _statement(site: Site, path: Path) -> tuple[Path, ...]:
    """Write what the run would send, for the person who decides."""
    from eigenmesh.sites.approval import RunStatement

    if path.suffix != ".html":
        raise InputError(f"the statement {path} is a page; give a name that ends in .html.")
    require_writable(path)
    return RunStatement.of(site).write(path)


def approve(site: SiteFile, name: Name, digest: Digest) -> None:
    """Approve the run that the statement describes, and no other.

    The approval has the name, the date and everything that all sites agree on, and is signed by the key of the site. It
    is written next to site.toml. With approve = true there, a run starts only with an approval for exactly that run. If
    there is an approval for another one, the differences are shown.

    Examples:

    - `eigenmesh site check site.toml --statement statement.html`

    - `eigenmesh site approve site.toml --digest 3f5a9c0e12b47d68 --name "Kari Nordmann"`
    """
    import_extra("cryptography", "peers", "eigenmesh site approve")
    from eigenmesh.sites.approval import RunStatement, changes_since_approval
    from eigenmesh.sites.approval import approve as signed

    messages, described = Messages.of(), read_site(site)
    with messages.waiting("reading the data"):
        manifest = RunStatement.of(described).manifest
    for line in changes_since_approval(described, manifest):
        messages.print(f"changed since the last approval: {one_line(line)}")
    written = signed(described, manifest, name, digest)
    messages.print(f"wrote {written}: {name} approves the run {described.run!r} with digest {manifest.digest[:16]}")
    if not described.approve:
        messages.alert(f"note: {site} does not ask for it; write approve = true at its top.", style="yellow")


def status(site: SiteFile, as_json: AsJson = False, is_well: IsWell = False) -> None:
    """Show how the run is going at this site: round, residual, bytes, neighbours, and whom it waits for.

    Reads a file that the running peer keeps up to date; nothing is sent over the network. Warns if the file is stale
    or the process has ended. With **--well** nothing is printed: exit status 0 if the peer runs and keeps its status up
    to date, or has its result, and 1 if not.

    Examples:

    - `eigenmesh site status site.toml`

    - `eigenmesh site status site.toml --well`, as the health check of a container
    """
    found = read_status(read_site(site).out.status)
    now = time.time()
    state = health(found, now)
    if is_well:
        raise typer.Exit(0 if state == "running" or found.phase == "done" else NOT_WELL)
    if as_json:
        waits = {"waiting_s": found.waiting_s, "waiting_for": found.waiting_for}
        plain = {**plain_values(found), **waits, "health": state, "age_s": now - found.written}
        typer.echo(json.dumps(plain, indent=2, allow_nan=False))
        return
    messages = Messages.of()
    messages.print(facts_table(_facts(found, now)))
    messages.print(_links(found, now))
    for neighbour in found.neighbours:
        if neighbour.refusal and not neighbour.connected and not found.ended:
            messages.alert(f"{neighbour.name}: {one_line(neighbour.refusal, LONGEST_REASON)}", style="yellow")
    line, style = _state(found, state, now)
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


def _links(found: Status, now: float) -> Table:
    head = ("neighbour", "link", "last heard", "round trip", "at round", "sent", "received")
    table = new_table(*head, left=2, narrow=True)
    for neighbour in found.neighbours:
        troubled = not found.ended and (neighbour.waiting or not neighbour.connected)
        table.add_row(*_link(neighbour, now), style="yellow" if troubled else None)
    return table


def _link(neighbour: NeighbourStatus, now: float) -> tuple[str, ...]:
    return (
        neighbour.name,
        ("waited for" if neighbour.waiting else "up") if neighbour.connected else "down",
        f"{_ago(neighbour.last_heard, now)} ago" if neighbour.last_heard else "never",
        f"{1e3 * neighbour.round_trip_s:.3g} ms" if neighbour.round_trip_s else "-",
        f"{neighbour.round:,}",
        readable_bytes(neighbour.bytes_sent),
        readable_bytes(neighbour.bytes_received),
    )


def _state(found: Status, state: str, now: float) -> tuple[str, str]:
    """A sentence about the state of the run, and its colour; none if all is well."""
    age = _ago(found.written, now)
    if state == "gone":
        return f"Process {found.pid} ended without reporting it; start eigenmesh site run again to resume.", "bold red"
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


def audit(file: AuditFile, as_json: AsJson = False) -> None:
    """Summarise what left a site: how much, to whom, of which kinds and shapes.

    The file has one line per message: time, receiver, kind, round, shapes, bytes and SHA-256. This command adds them up
    for each run, and says whether any message had the shape of samples or of a covariance. Each line contains the hash
    of the line before it; the command says where that chain is broken. Exit status: 1 if the chain is broken.

    Examples:

    - `eigenmesh site audit out/audit.jsonl`

    - `eigenmesh site audit out/audit.jsonl --json`
    """
    found = summary(file)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        messages = Messages.of()
        for run in found.runs:
            _print_run(messages, run)
        messages.print(_intact(found.chain))
        for line in _damage(found.chain, found.damaged):
            messages.alert(line, style="yellow")
    if found.chain.broken:
        raise typer.Exit(BROKEN_CHAIN)


def _print_run(messages: Messages, run: RunSummary) -> None:
    messages.print(_sent(run))
    messages.print(_receivers(run))
    messages.print(_shapes(run))
    for line in _findings(run):
        if line.startswith(("warning: ", "note: ")):
            messages.alert(line, style="yellow")
        else:
            messages.print(line)
    messages.print()


def _intact(chain: Chain) -> str:
    broken = "" if chain.broken else " and no hash is wrong"
    follows = (
        f" The file continues {chain.follows}, whose last line has SHA-256 {chain.after}." if chain.follows else ""
    )
    last = f"the last line has SHA-256 {chain.head}"
    if chain.signed_by:
        last += f" and is signed by the key with fingerprint {chain.signed_by}"
    return f"{chain.lines:,} lines{broken}; {last}.{follows}"


def _damage(chain: Chain, damaged: list[int]) -> list[str]:
    lines = []
    if chain.broken:
        where = ", ".join(map(str, chain.broken[:MOST_SHAPES]))
        what = "lines before it were changed, removed or inserted after they were written"
        lines.append(f"warning: the chain of hashes is broken at line {where}: {what}.")
    if damaged:
        unread = f"{len(damaged)} lines could not be read (the first is line {damaged[0]})"
        lines.append(f"warning: {unread}, for example because of a crash; their messages are not counted.")
    return lines


def _sent(found: RunSummary) -> str:
    sent = f"{found.total.messages:,} messages with {readable_bytes(found.total.bytes)}"
    restarts = f" in {found.starts} starts" if found.starts > 1 else ""
    run = f"run {found.run!r}{restarts}, from {_minute(found.first)} to {_minute(found.last)} UTC"
    return f"{found.site or 'The site'} sent {sent} to {len(found.by_neighbour)} neighbours for {run}."


def _receivers(found: RunSummary) -> Table:
    table = new_table("to", "messages", "payload", "with heads", "columns", left=1)
    for name, count in sorted(found.by_neighbour.items()):
        table.add_row(name, *_cells(count), f"{count.columns:,}")
    table.add_section()
    for kind, count in sorted(found.by_kind.items()):
        table.add_row(f"of kind {kind}", *_cells(count), "")
    if len(found.by_epoch) > 1:
        table.add_section()
        for epoch, count in sorted(found.by_epoch.items()):
            table.add_row(f"DATA in epoch {epoch}", *_cells(count), f"{count.columns:,}")
    return table


def _shapes(found: RunSummary) -> Table:
    order, more = sorted(found.shapes.items(), key=lambda item: -item[1]), len(found.shapes) - MOST_SHAPES
    rows = [(name, f"{times:,}") for name, times in order[:MOST_SHAPES]]
    caption = f"and {more} more shapes; --json has them" if more > 0 else None
    return new_table("arrays", "times", left=1, rows=rows, caption=caption)


def _findings(found: RunSummary) -> Iterator[str]:
    """What the messages of a run tell about this site; what may be too much begins with a warning or a note."""
    d, matrix = f"{found.length:,}", "Gram matrix" if found.by_columns else "covariance"
    if found.largest is not None:
        size, kind, to = readable_bytes(found.largest["bytes"]), found.largest["kind"], found.largest["to"]
        yield f"The largest message had {size}: {kind} to {to}."
    if found.again.messages:
        yield f"{found.again.messages:,} messages were sent again after a link had broken."
    for times, what in _telling_shapes(found):
        shaped = f"warning: {times:,} messages had the shape of {what}; the numbers may be something else."
        yield shaped if times else f"No message had the shape of {what}."
    if found.masked:
        yield from _learned(found)
        return
    most = max((count.columns for count in found.by_neighbour.values()), default=0)
    if most < found.enough_columns:
        shown = f"They show this site's {matrix} in at most that many of its {d} dimensions."
        yield f"No neighbour received more than {most:,} columns of {d} numbers. {shown}"
        return
    many = [name for name, count in found.by_neighbour.items() if count.columns >= found.enough_columns]
    risk = f"If these are products with this site's own {matrix}, it can be computed from them."
    yield f"note: {', '.join(sorted(many))} received {found.enough_columns:,} or more columns of {d} numbers. {risk}"


def _telling_shapes(found: RunSummary) -> list[tuple[int, str]]:
    """How many messages had a shape that would tell much about the samples, and which shape that is."""
    matrix, d = "Gram matrix" if found.by_columns else "covariance", f"{found.length:,}"
    samples = f"samples ({found.n_samples:,} rows of {found.n_features:,})"
    shapes = [(found.sample_shaped, samples)]
    if not found.masked:
        shapes.append((found.covariance_shaped, f"a {matrix} ({d} x {d})"))
    if found.by_columns:
        shapes.append((found.loading_shaped, f"loadings of this site's {found.n_features:,} columns"))
    return shapes


def _learned(found: RunSummary) -> list[str]:
    """What the other sites learned from a masked run."""
    # Masked, a sum that is shaped like a covariance is the pooled one.
    whole = found.covariance_shaped > 0
    known = known_of_all(found.length if whole else found.pooled_columns, found.length, found.by_columns, whole)
    lines = [
        "Masked: every number that this site added to a sum was masked; nobody learned a number of this site alone, "
        "unless the others have continued without it.",
        f"All sites now know at most {known}.",
    ]
    if len(found.by_epoch) > 1:
        own = "number of columns, total variance" if found.by_columns else "number of samples, mean, variances"
        what = f"their {own} and some products follow from the difference of the two sums"
        lines.append(f"Sites were lost during this run, and the others know more about them: {what}.")
    return lines


def _cells(count: Count) -> tuple[str, str, str]:
    return f"{count.messages:,}", readable_bytes(count.bytes), readable_bytes(count.frame_bytes)


def _minute(at: str) -> str:
    return at[:19].replace("T", " ")
