"""``eigenmesh site rehearse``: simulate a run of sites in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import OUTPUT, argument, option
from eigenmesh.cli.output import Outputs
from eigenmesh.cli.process import ENDED, NOT_CONVERGED, PARKED
from eigenmesh.errors import InputError, import_extra
from eigenmesh.events import event_log
from eigenmesh.rehearsal import Conditions, read_conditions
from eigenmesh.rehearsal.conditions import EXAMPLE
from eigenmesh.rehearsal.fits import made_up
from eigenmesh.rehearsal.forecast import RunForecast, forecast
from eigenmesh.report.tables import facts_table, new_table
from eigenmesh.sites import read_network_file
from eigenmesh.sites.site import require_links
from eigenmesh.words import one_line, readable_bytes

DATA = options.DATA
SAMPLES_HELP = "Number of samples per site: one number, or one per site in the order of the file, such as 500,800,200."
GAP_HELP = "Variance of component K+1 divided by that of component K: the nearer to 1, the more rounds."
NetworkPath = Annotated[Path | None, argument("NETWORK.toml", "The network, as eigenmesh site init reads it.")]
Features = Annotated[int, option(DATA, "D", "Columns of the made-up samples.", "--features", min=2)]
Samples = Annotated[str, option(DATA, "N|N,N,..", SAMPLES_HELP, "--samples")]
Gap = Annotated[float, option(DATA, "SHARE", GAP_HELP, "--gap")]
SeedOption = Annotated[int, option(DATA, "N", "Fixes samples, jitter and losses.", "--seed", min=0)]
Example = Annotated[bool, option(OUTPUT, None, "Print an example of a conditions file and stop.", "--example")]
STATUS = {"converged": 0, "killed": 0, "not converged": NOT_CONVERGED, "parked": PARKED, "ended": ENDED}
# Exit statuses, the most serious first.
BY_SEVERITY = (ENDED, PARKED, NOT_CONVERGED, 0)


def rehearse(
    network: NetworkPath = None,
    conditions: options.ConditionsPath = None,
    features: Features = 100,
    samples: Samples = "1000",
    gap: Gap = 0.8,
    seed: SeedOption = 0,
    events: options.EventsFile = None,
    as_json: options.AsJson = False,
    example: Example = False,
) -> None:
    """Simulate a run of sites in virtual time: how long it would take, how it would end, who would wait for whom.

    All sites run in this process, with the real protocol and the real solver on made-up samples; nothing is sent.
    **--events** writes what one of the sites would see, in virtual seconds, and **eigenmesh watch** shows it as a page.

    Exit status: the most serious exit status of a peer, over all sites that are not killed.

    Examples:

    - `eigenmesh site rehearse --example > conditions.toml`

    - `eigenmesh site rehearse network.toml --conditions conditions.toml --features 200 --samples 5000`
    """
    if example:
        typer.echo(EXAMPLE, nl=False)
        return
    import_extra("cryptography", "peers", "eigenmesh site rehearse")
    if network is None:
        raise InputError("no network file; give one, such as eigenmesh site rehearse network.toml.")
    messages = Messages.of()
    Outputs(None, None, None, events).check([str(network)])
    described = read_network_file(network)
    sites, edges = described.names, described.edges
    require_links(network, edges)
    under = Conditions.usual(sites, edges) if conditions is None else read_conditions(conditions, sites, edges)
    tables = made_up(described, features, _sizes(samples, sites), gap, seed)
    with messages.waiting("rehearsing"), event_log(events) as log:
        found = forecast(described, under, dict(zip(sites, tables, strict=True)), seed, log.listeners)
    if as_json:
        typer.echo(json.dumps(_numbers(found), indent=2))
    else:
        _print_forecast(messages, found)
    if events is not None:
        messages.alert(f"wrote {events}", style="none")
    statuses = {STATUS.get(site.end, ENDED) for site in found.sites.values()}
    raise typer.Exit(next(status for status in BY_SEVERITY if status in statuses))


def _sizes(samples: str, sites: tuple[str, ...]) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in samples.split(","))
    except ValueError:
        sizes = ()
    sizes = sizes * len(sites) if len(sizes) == 1 else sizes
    if len(sizes) != len(sites) or min(sizes) < 1:
        raise InputError(f"samples = {samples!r} must be one number above 0, or {len(sites)} of them: one per site.")
    return sizes


def _print_forecast(messages: Messages, found: RunForecast) -> None:
    table = new_table("site", "ends", "after s", "rounds", "work s", "waits s", "most for", left=2)
    table.columns[1].no_wrap = True
    for name, site in found.sites.items():
        most, waits = next(iter(site.waits_s), "-"), sum(site.waits_s.values())
        numbers = f"{site.at_s:,.2f}", f"{site.rounds:,}", f"{site.computes_s:,.2f}", f"{waits:,.2f}"
        table.add_row(name, site.end, *numbers, most, style=None if site.end == "converged" else "yellow")
    messages.print(table)
    rows = [(*way, f"{n:,}", readable_bytes(size), f"{again:,}") for way, (n, size, again) in found.links.items()]
    messages.print(new_table("from", "to", "messages", "bytes", "sent again", left=2, rows=rows))
    messages.print(facts_table(_facts(found)))
    for name, site in found.sites.items():
        if site.why:
            messages.alert(f"{name} {site.end}: {one_line(site.why)}", style="yellow")


def _facts(found: RunForecast) -> dict[str, str]:
    facts = {
        "from start to end": f"{found.run_s:,.2f} s, of these {found.rounds_s:,.2f} s of rounds",
        "result": "none" if found.error_bound is None else f"sin(angle) at most {found.error_bound:.1e}",
    }
    if found.lost_links:
        facts["lost"] = ", ".join(found.lost_sites) or "links only"
    products = {f"{1e3 * work.product_s:.3g} ms" for work in found.work.values()}
    facts["one product"] = ", ".join(sorted(products))
    if found.unmet:
        facts["came too late"] = ", ".join(f"{fault.kind} at {fault.at_s:g} s" for fault in found.unmet)
    return facts


def _numbers(found: RunForecast) -> dict[str, Any]:
    return {
        "run_s": found.run_s,
        "rounds_s": found.rounds_s,
        "error_bound": found.error_bound,
        "sites": {name: {**vars(site), **found.work[name]._asdict()} for name, site in found.sites.items()},
        "links": [
            {"from": sender, "to": receiver, "messages": count, "bytes": size, "resent": resent}
            for (sender, receiver), (count, size, resent) in found.links.items()
        ],
        "lost_sites": found.lost_sites,
        "lost_links": found.lost_links,
        "unmet": [fault._asdict() for fault in found.unmet],
    }
