"""``eigenmesh audit``: a summary of the messages that left a site."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from eigenmesh._text import readable_bytes
from eigenmesh.cli._exit_codes import BROKEN_CHAIN
from eigenmesh.cli._messages import Messages, plain_errors
from eigenmesh.cli._options import argument, option
from eigenmesh.masking import known_of_all
from eigenmesh.report._tables import new_table
from eigenmesh.sites._audit_summary import Chain, Count, RunSummary, summary

AuditFile = Annotated[Path, argument("FILE", "The audit.jsonl of a site.")]
AsJson = Annotated[bool, option(None, None, "Print the summary as JSON instead.", "--json")]
# Shapes and broken lines that are listed at most.
MOST_SHAPES = 12


@plain_errors()
def audit(file: AuditFile, as_json: AsJson = False) -> None:
    """Summarise what left a site: how much, to whom, of which kinds and shapes.

    The file has one line per message: time, receiver, kind, round, shapes, bytes and SHA-256. This command adds them up
    for each run, and says whether any message had the shape of samples or of a covariance. Each line contains the hash
    of the line before it; the command says where that chain is broken. Exit status: 1 if the chain is broken.

    Examples:

    - `eigenmesh audit out/audit.jsonl`

    - `eigenmesh audit out/audit.jsonl --json`
    """
    found = summary(file)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        messages = Messages.of()
        for run in found.runs:
            _print_run(messages, run)
        messages.print(_chain(found.chain))
        for line in _damage(found.chain, found.damaged):
            messages.alert(line, style="yellow")
    if found.chain.broken:
        raise typer.Exit(BROKEN_CHAIN)


def _print_run(messages: Messages, run: RunSummary) -> None:
    messages.print(_sentence(run))
    messages.print(_neighbours(run))
    messages.print(_shapes(run))
    for line in _words(run):
        messages.print(line)
    for line in _warnings(run):
        messages.alert(line, style="yellow")
    messages.print()


def _chain(chain: Chain) -> str:
    unlinked = f", after {chain.unlinked:,} of an earlier version without hashes" if chain.unlinked else ""
    broken = "" if chain.broken else " and no hash is wrong"
    follows = (
        f" The file continues {chain.follows}, whose last line has SHA-256 {chain.after}." if chain.follows else ""
    )
    return f"{chain.lines:,} lines{unlinked}{broken}; the last line has SHA-256 {chain.head}.{follows}"


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


def _sentence(found: RunSummary) -> str:
    sent = f"{found.total.messages:,} messages with {readable_bytes(found.total.bytes)}"
    restarts = f" in {found.starts} starts" if found.starts > 1 else ""
    run = f"run {found.run!r}{restarts}, from {_minute(found.first)} to {_minute(found.last)} UTC"
    return f"{found.site or 'The site'} sent {sent} to {len(found.by_neighbour)} neighbours for {run}."


def _neighbours(found: RunSummary) -> Table:
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
    table = new_table("arrays", "times", left=1)
    for name, times in sorted(found.shapes.items(), key=lambda item: -item[1])[:MOST_SHAPES]:
        table.add_row(name, f"{times:,}")
    if len(found.shapes) > MOST_SHAPES:
        table.caption = f"and {len(found.shapes) - MOST_SHAPES} more shapes; --json has them"
    return table


def _words(found: RunSummary) -> list[str]:
    lines, d, matrix = [], f"{found.length:,}", "Gram matrix" if found.by_columns else "covariance"
    if found.largest is not None:
        size, kind, to = readable_bytes(found.largest["bytes"]), found.largest["kind"], found.largest["to"]
        lines.append(f"The largest message had {size}: {kind} to {to}.")
    if found.unanswered.messages:
        lines.append(f"{found.unanswered.messages:,} calls were not answered and are not counted.")
    if found.again.messages:
        lines.append(f"{found.again.messages:,} messages were sent again after a link had broken.")
    if not found.sample_shaped:
        lines.append(f"No message had the shape of samples ({found.n_samples:,} rows of {found.n_features:,}).")
    if not found.covariance_shaped:
        lines.append(f"No message had the shape of a {matrix} ({d} x {d}).")
    if found.by_columns and not found.loading_shaped:
        lines.append(f"No message had the shape of loadings of this site's {found.n_features:,} columns.")
    if found.masked:
        return lines + _learned(found)
    most = max((count.columns for count in found.by_neighbour.values()), default=0)
    if most < found.enough_columns:
        shown = f"They show this site's {matrix} in at most that many of its {d} dimensions."
        lines.append(f"No neighbour received more than {most:,} columns of {d} numbers. {shown}")
    return lines


def _learned(found: RunSummary) -> list[str]:
    """What the other sites learned from a masked run."""
    lines = [
        "Masked: every number that this site added to a sum was masked; nobody learned a number of this site alone, "
        "unless the others have continued without it.",
        f"All sites now know at most {known_of_all(found.pooled_columns, found.length, found.by_columns)}.",
    ]
    if len(found.by_epoch) > 1:
        own = "number of columns, total variance" if found.by_columns else "number of samples, mean, variances"
        what = f"their {own} and some products follow from the difference of the two sums"
        lines.append(f"Sites were lost during this run, and the others know more about them: {what}.")
    return lines


def _warnings(found: RunSummary) -> list[str]:
    lines: list[str] = []
    matrix = "Gram matrix" if found.by_columns else "covariance"
    shaped = ((found.sample_shaped, "samples"), (found.covariance_shaped, f"a {matrix}"))
    for times, what in (*shaped, (found.loading_shaped, "loadings")):
        if times:
            lines.append(f"warning: {times:,} messages had the shape of {what}; the numbers may be something else.")
    if found.masked:
        return lines
    many = [name for name, count in found.by_neighbour.items() if count.columns >= found.enough_columns]
    if many:
        received = f"{found.enough_columns:,} or more columns of {found.length:,} numbers"
        risk = f"If these are products with this site's own {matrix}, it can be computed from them."
        lines.append(f"note: {', '.join(sorted(many))} received {received}. {risk}")
    return lines


def _cells(count: Count) -> tuple[str, str, str]:
    return f"{count.messages:,}", readable_bytes(count.bytes), readable_bytes(count.frame_bytes)


def _minute(at: str) -> str:
    return at[:19].replace("T", " ")
