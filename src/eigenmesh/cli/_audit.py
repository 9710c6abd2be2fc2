"""``eigenmesh audit``: what has left a site, in plain words."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from eigenmesh._text import readable_bytes
from eigenmesh.cli._file_errors import plain_errors
from eigenmesh.cli._messages import Messages
from eigenmesh.sites._audit_summary import AuditSummary, Count, summary

AuditFile = Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="audit.jsonl of a site.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print plain numbers on standard output instead.")]
MOST_SHAPES = 12


@plain_errors()
def audit(file: AuditFile, as_json: AsJson = False) -> None:
    """Sum up what left a site: how much, to whom, of which kinds and shapes.

    The file has a line for every message: when, to whom, its kind, round, shapes, bytes and SHA-256. This command adds
    them up and says whether any message had the shape of samples or of a covariance.

    Examples:

    - `eigenmesh audit out/audit.jsonl`

    - `eigenmesh audit out/audit.jsonl --json`
    """
    found = summary(file)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
        return
    messages = Messages.of()
    messages.tell(_sentence(found))
    messages.tell(_neighbours(found))
    messages.tell(_shapes(found))
    for line in _words(found):
        messages.tell(line)
    for line in _warnings(found):
        messages.alert(line, style="yellow")


def _sentence(found: AuditSummary) -> str:
    total = found.total
    restarts = f" in {found.starts} starts" if found.starts > 1 else ""
    return (
        f"{found.site or 'The site'} sent {total.messages:,} messages with {readable_bytes(total.bytes)} to "
        f"{len(found.by_neighbour)} neighbours for run {found.run!r}{restarts}, from {_minute(found.first)} to "
        f"{_minute(found.last)} UTC."
    )


def _neighbours(found: AuditSummary) -> Table:
    table = _table("to", "messages", "payload", "with heads", "columns")
    for name, count in sorted(found.by_neighbour.items()):
        table.add_row(name, *_cells(count), f"{count.columns:,}")
    table.add_section()
    for kind, count in sorted(found.by_kind.items()):
        table.add_row(f"of kind {kind}", *_cells(count), "")
    return table


def _shapes(found: AuditSummary) -> Table:
    table = _table("arrays", "times")
    for name, times in sorted(found.shapes.items(), key=lambda item: -item[1])[:MOST_SHAPES]:
        table.add_row(name, f"{times:,}")
    if len(found.shapes) > MOST_SHAPES:
        table.caption = f"and {len(found.shapes) - MOST_SHAPES} more shapes; --json has them"
    return table


def _words(found: AuditSummary) -> list[str]:
    lines = []
    if found.largest is not None:
        largest = found.largest
        lines.append(
            f"The largest message had {readable_bytes(largest['bytes'])}: {largest['kind']} to {largest['to']}."
        )
    if found.again.messages:
        lines.append(f"{found.again.messages:,} messages went again over a link that had broken.")
    if not found.sample_shaped:
        lines.append(f"No message had the shape of samples ({found.n_samples:,} rows of {found.n_features:,}).")
    if not found.covariance_shaped:
        lines.append(f"No message had the shape of a covariance ({found.n_features:,} x {found.n_features:,}).")
    most = max((count.columns for count in found.by_neighbour.values()), default=0)
    if most < found.enough_columns:
        lines.append(
            f"No neighbour got more than {most:,} columns of {found.n_features:,} numbers. They show this site's "
            f"covariance on that many of its {found.n_features:,} dimensions at most."
        )
    return lines


def _warnings(found: AuditSummary) -> list[str]:
    lines = []
    for times, what in ((found.sample_shaped, "samples"), (found.covariance_shaped, "a covariance")):
        if times:
            lines.append(f"warning: {times:,} messages had the shape of {what}; the numbers may be something else.")
    many = [name for name, count in found.by_neighbour.items() if count.columns >= found.enough_columns]
    if many:
        lines.append(
            f"note: {', '.join(sorted(many))} got {found.enough_columns:,} columns of {found.n_features:,} numbers or "
            "more. Where so many are products with this site's own covariance, it can be worked out from them."
        )
    if found.damaged:
        lines.append(
            f"warning: {len(found.damaged)} lines could not be read (the first is line {found.damaged[0]}), as after "
            "a crash; what they stood for is not counted."
        )
    return lines


def _cells(count: Count) -> tuple[str, str, str]:
    return f"{count.messages:,}", readable_bytes(count.bytes), readable_bytes(count.frame_bytes)


def _minute(at: str) -> str:
    return at[:19].replace("T", " ")


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    return table
