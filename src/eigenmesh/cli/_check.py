"""``eigenmesh check``: a dry run at one site."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from eigenmesh._text import one_line
from eigenmesh.cli._exit_codes import BAD_INPUT
from eigenmesh.cli._messages import Messages, plain_errors
from eigenmesh.cli._options import argument, option
from eigenmesh.errors import import_extra
from eigenmesh.report._tables import new_table

SiteFile = Annotated[Path, argument("SITE.toml", "Settings of the site.")]
AsJson = Annotated[bool, option(None, None, "Print the findings as JSON instead.", "--json")]
STYLES = {"ok": None, "note": "yellow", "problem": "bold red"}


@plain_errors()
def check(site: SiteFile, as_json: AsJson = False) -> None:
    """Check everything that a run needs at this site, without starting it.

    It checks the settings; the certificates and their dates; whether the port is free; whether the neighbours that this
    site calls answer and accept its certificate; the samples, missing entries and constant columns; the out folder and
    its free space; and how much a run would send if all sites had samples like these. No sample or result is sent, and
    no file is written. Exit status: 2 if there is a problem.

    Examples:

    - `eigenmesh check site.toml`

    - `eigenmesh check site.toml --json`
    """
    import_extra("cryptography", "peers", "eigenmesh check")
    from eigenmesh.sites._check import check as findings_of
    from eigenmesh.sites._site import read_site

    messages = Messages.of()
    described = read_site(site)
    with messages.waiting("checking"):
        findings = list(findings_of(described))
    problems = sum(finding.verdict == "problem" for finding in findings)
    if as_json:
        found = {"site": described.name, "run": described.run, "findings": [asdict(one) for one in findings]}
        typer.echo(json.dumps(found, indent=2))
    else:
        table = new_table("", "", "", left=3)
        table.show_header = False
        for finding in findings:
            table.add_row(finding.about, finding.verdict, one_line(finding.text), style=STYLES[finding.verdict])
        messages.print(table)
        ready = f"{described.name} is ready: eigenmesh peer {site}"
        messages.print(f"Problems found: {problems}." if problems else ready)
    if problems:
        raise typer.Exit(BAD_INPUT)
