"""``eigenmesh plan``: forecast the cost of a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from eigenmesh.averaging import Tree
from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.output import facts_of
from eigenmesh.cli.simulate import DEFAULT_SOLVERS, conditions_of, in_order, solvers_named
from eigenmesh.errors import InputError
from eigenmesh.fitting import Request, Spread
from eigenmesh.fitting import plan as make_plan
from eigenmesh.rehearsal.simulation import simulate as run_in_virtual_time
from eigenmesh.report.tables import facts_table, plan_table


def plan(
    data: options.Sources,
    table: options.Table,
    where: options.Where,
    method: options.Method,
    seed: options.Seed = 0,
    conditions: options.ConditionsPath = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every averaging, not only each solver's best.")
    ] = False,
) -> None:
    """Forecast rounds, bytes, memory and time of every solver with every averaging, and name the one that a fit uses.

    The planner first solves the problem on a few thousand of the samples, without any message, to see how hard it is.
    Nothing is fitted and nothing is written. **eigenmesh fit** with the same options uses the method that is marked.

    Examples:

    - `eigenmesh plan digits -k 5 --nodes 20`

    - `eigenmesh plan samples.npy -k 10 --topology cycle --costs latency_ms=80,bandwidth_mbit=10`

    - `eigenmesh plan samples.npy -k 10 --conditions conditions.toml` also simulates solvers that wait for each other
      and solvers that do not, under these latencies, losses, speeds and outages, and says which is the quickest.
    """
    messages = Messages.of()
    request = Request.parse(**method, random_state=seed)
    with messages.waiting("reading the data"):
        problem = Spread(**where, seed=request.layout_seed).of_words(data, table)
    under = None if conditions is None else conditions_of(problem, conditions)
    if under is not None and (request.masked or not isinstance(request.n_components, int)):
        raise InputError(
            "--conditions needs a whole number for --components and --privacy open; change these, or leave it out."
        )
    with messages.waiting("planning") as sign:
        planned = make_plan(request, problem, report=None if sign is None else sign.update)
    messages.print(facts_table({**facts_of(problem, planned.n_samples), "components": f"{planned.n_components:g}"}))
    messages.print(plan_table(planned, everything))
    messages.print(f"{planned.reason} Forecast from {planned.rehearsed_on}.")
    if under is not None:
        names, given = under
        asked = replace(request, averaging=Tree())
        found = {}
        for each in solvers_named(DEFAULT_SOLVERS, request.tol):
            with messages.waiting(f"simulating {each.name}"):
                found[each.name] = run_in_virtual_time(replace(asked, solver=each), problem, given, names, seed=seed)
        messages.print(in_order(found))
