"""``eigenmesh simulate``: run solvers on data in virtual time, under given conditions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import METHOD, option, parse_solvers
from eigenmesh.cli.output import Outputs, facts_of
from eigenmesh.cli.process import NOT_CONVERGED
from eigenmesh.errors import InputError
from eigenmesh.events import EventLog, event_log
from eigenmesh.experiments.claims import Line
from eigenmesh.experiments.experiment import Method
from eigenmesh.experiments.figures import Axis, errors_picture
from eigenmesh.experiments.problems import leading_eigenvectors, pooled_covariance
from eigenmesh.fitting import NodeData, Request, Spread, prepare
from eigenmesh.graphs import Weights
from eigenmesh.iteration import DEFAULT_TOL
from eigenmesh.rehearsal import Conditions, read_conditions
from eigenmesh.rehearsal.simulation import Simulated
from eigenmesh.rehearsal.simulation import simulate as run_in_virtual_time
from eigenmesh.report import save_picture
from eigenmesh.report.tables import facts_table, new_table
from eigenmesh.solvers import AT_OWN_PACE, SOLVERS, Solver
from eigenmesh.words import one_line, readable_bytes

DEFAULT_SOLVERS = "block-krylov,tracked-subspace,deadlines,asynchronous"
SOLVERS_HELP = (
    f"Names, with settings such as deadlines:tick_s=0.2. From: {', '.join([*SOLVERS, *AT_OWN_PACE])}. Only "
    "in the last two do nodes not wait for each other."
)
SolverNames = Annotated[str, option(METHOD, "NAME,...", SOLVERS_HELP, "--solvers")]
MOST_ROUNDS = 20_000


def simulate(
    data: options.Sources,
    table: options.Table,
    where: options.Where,
    conditions: options.ConditionsPath = None,
    solvers: SolverNames = DEFAULT_SOLVERS,
    scale: options.Scale = False,
    components: options.ComponentCount = None,
    tol: options.Tol = DEFAULT_TOL,
    max_rounds: options.MaxRounds = MOST_ROUNDS,
    seed: options.Seed = 0,
    plot: options.PictureFile = None,
    events: options.EventsFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Run solvers on data in virtual time: how long each takes, how much it sends, and how accurate it is.

    The file of conditions describes links and machines; there, nodes are called 0, 1, 2, ..., or like their files.
    **block-krylov** sums over a tree and **tracked-subspace** mixes, both in rounds that wait for every message;
    **deadlines** closes a round after a tick; **asynchronous** has no rounds.

    **eigenmesh watch** shows a file of **--events** as a page.

    Exit status: 1 if a certificate does not reach the tolerance.

    Examples:

    - `eigenmesh simulate digits --split label --conditions conditions.toml --plot seconds.png`

    - `eigenmesh simulate a.csv b.csv c.csv --topology cycle --solvers block-krylov,asynchronous`
    """
    messages = Messages.of()
    Outputs(None, None, plot, events).check(data)
    chosen = solvers_named(solvers, tol)
    request = Request.parse(
        n_components=components or options.DEFAULT_COMPONENTS,
        at_most=components is None,
        averaging="tree",
        tol=tol,
        max_rounds=max_rounds,
        scale=scale,
        random_state=seed,
    )
    with messages.waiting("reading the data"):
        problem = Spread(**where, seed=request.layout_seed).of_words(data, table)
    names, under = conditions_of(problem, conditions)
    with messages.waiting("computing the true components"):
        prepared = prepare(request, problem)
        pooled = pooled_covariance(prepared.covariance, prepared.facts.n_nodes)
        _, truth = leading_eigenvectors(pooled, int(prepared.n_components))
    found = {}
    with event_log(events) as log:
        at_start = EventLog(*log.listeners, clock=lambda: 0.0)
        for latency in under.latencies:
            at_start.emit(latency)
        for solver in chosen:
            with messages.waiting(f"simulating {solver.name}"):
                asked = replace(request, solver=solver)
                found[solver.name] = run_in_virtual_time(asked, problem, under, names, truth, seed, log.listeners)
    if plot is not None:
        _draw(plot, problem, chosen, found)
    if as_json:
        typer.echo(json.dumps({name: _numbers(each) for name, each in found.items()}, indent=2))
    else:
        messages.print(facts_table(facts_of(problem, prepared.moments.n_samples)))
        _print_tables(messages, found)
        messages.print(in_order(found))
    for path in filter(None, (plot, events)):
        messages.alert(f"wrote {path}", style="none")
    converged = all(each.result is not None and each.result.converged for each in found.values())
    raise typer.Exit(0 if converged else NOT_CONVERGED)


def conditions_of(problem: NodeData, path: Path | None) -> tuple[tuple[str, ...], Conditions]:
    """Names of the nodes, and the conditions of their links and machines: from a file, or the default ones."""
    names = problem.shards.node_names or tuple(str(node) for node in range(problem.shards.n_nodes))
    if not isinstance(problem.weights, Weights):
        raise InputError("conditions need a network that stays the same; choose another --topology.")
    edges = tuple((names[min(link)], names[max(link)]) for link in sorted(problem.weights.graph.edges))
    return names, Conditions.usual(names, edges) if path is None else read_conditions(path, names, edges)


def in_order(found: dict[str, Simulated]) -> str:
    """A sentence that lists the certified solvers, the quickest first."""
    certified = {name: each for name, each in found.items() if each.result is not None and each.result.converged}
    order = sorted(certified, key=lambda name: certified[name].seconds)
    words = (f"{name} in {_seconds(certified[name].seconds)}" for name in order)
    return f"Certified under these conditions, the quickest first: {', '.join(words) or 'none'}."


def solvers_named(text: str, tol: float) -> list[Solver]:
    """Solvers with their settings; the tolerance goes to those without common rounds."""
    named: list[Any] = parse_solvers(text, {**SOLVERS, **AT_OWN_PACE})
    found = [replace(solver, tol=tol) if solver.name in AT_OWN_PACE else solver for solver in named]
    if len({solver.name for solver in found}) < len(found):
        raise InputError(f"--solvers {text} names a solver twice; leave one out.")
    return found


def _print_tables(messages: Messages, found: dict[str, Simulated]) -> None:
    table = new_table("solver", "ends", "to 1e-6", "to 1e-10", "in all", "payload", "bound", left=2, narrow=True)
    for name, each in found.items():
        end = "-" if each.result is None else each.result.stop_reason.label
        to = (_seconds(each.seconds_to(goal)) for goal in (1e-6, 1e-10))
        bound = "-" if each.result is None else f"{each.result.certificate.error_bound:.1e}"
        table.add_row(name, end, *to, _seconds(each.seconds), readable_bytes(each.bytes), bound)
    messages.print(table)
    for name, each in found.items():
        if each.why:
            messages.alert(f"{name}: {one_line(each.why)}", style="yellow")


def _seconds(seconds: float) -> str:
    """A time in at most eight characters; a dash for never."""
    if seconds >= 1e5:
        return f"{seconds / 3600:,.0f} h" if seconds < 1e9 else "-"
    return f"{seconds:,.1f} s" if seconds < 1e3 else f"{seconds:,.0f} s"


def _numbers(each: Simulated) -> dict[str, Any]:
    return {
        "stop_reason": None if each.result is None else each.result.stop_reason.label,
        "why": each.why,
        "seconds": each.seconds,
        "messages": each.messages,
        "bytes": each.bytes,
        "error_bound": None if each.result is None else each.result.certificate.error_bound,
        "curve": each.curve.tolist(),
    }


def _draw(plot: Path, problem: NodeData, solvers: list[Solver], found: dict[str, Simulated]) -> None:
    about = f"{problem.topology}, {problem.shards.n_nodes} nodes, {problem.split} split"
    curves = {solver: found[solver.name].curve.T for solver in solvers if len(found[solver.name].curve)}
    lines = [Line(Method(solver.name, solver), at, *[errors] * 3) for solver, (at, errors) in curves.items()]
    save_picture(errors_picture([Axis(problem.name, about, lines, "seconds")]), plot)
