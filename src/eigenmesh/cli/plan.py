"""``eigenmesh plan``: forecast the cost of a fit."""

from __future__ import annotations

from typing import Annotated

import typer

from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.output import facts_of
from eigenmesh.fitting import Request, Spread
from eigenmesh.fitting import plan as make_plan
from eigenmesh.report.tables import facts_table, plan_table


def plan(
    data: options.Sources,
    table: options.Table,
    where: options.Where,
    method: options.Method,
    seed: options.Seed = 0,
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
    """
    messages = Messages.of()
    request = Request.parse(**method, random_state=seed)
    with messages.waiting("reading the data"):
        problem = Spread(**where, seed=request.layout_seed).of_words(data, table)
    with messages.waiting("planning") as tell:
        planned = make_plan(request, problem, report=tell)
    messages.print(facts_table({**facts_of(problem, planned.n_samples), "components": f"{planned.n_components:g}"}))
    messages.print(plan_table(planned, everything))
    messages.print(f"{planned.reason} Forecast from {planned.rehearsed_on}.")
