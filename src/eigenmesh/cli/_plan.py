"""``eigenmesh plan``: what a fit would cost, before it is run."""

from __future__ import annotations

from typing import Annotated

import typer

from eigenmesh.cli import _options as options
from eigenmesh.cli._fit import DEFAULT_COMPONENTS
from eigenmesh.cli._inputs import parse_components
from eigenmesh.cli._messages import Messages
from eigenmesh.cli._problem import read_problem
from eigenmesh.fitting import Costs, Request
from eigenmesh.fitting import plan as make_plan
from eigenmesh.iteration import DEFAULT_TOL
from eigenmesh.report._run_tables import facts_table, plan_table

COSTS = "What things cost"
USUAL = Costs()

Latency = Annotated[
    float, typer.Option("--latency-ms", metavar="MS", help="One round between neighbours.", rich_help_panel=COSTS)
]
Bandwidth = Annotated[
    float, typer.Option("--bandwidth-mbit", metavar="MBIT/S", help="What a node can send.", rich_help_panel=COSTS)
]
Gigaflops = Annotated[
    float, typer.Option("--gflops", metavar="GFLOP/S", help="Arithmetic of a node.", rich_help_panel=COSTS)
]
Memory = Annotated[
    float, typer.Option("--memory-gb", metavar="GB", help="What a node may use beside its data.", rich_help_panel=COSTS)
]


def plan(
    data: options.Sources,
    label_column: options.LabelColumn = None,
    split: options.SplitName = None,
    by_label: options.ByLabel = False,
    nodes: options.Nodes = None,
    topology: options.Topology = "erdos_renyi",
    weights: options.WeightsName = "metropolis",
    components: options.Components = None,
    tol: options.Tol = DEFAULT_TOL,
    seed: options.Seed = 0,
    latency_ms: Latency = USUAL.latency_s * 1e3,
    bandwidth_mbit: Bandwidth = USUAL.bandwidth_bytes_s * 8 / 1e6,
    gflops: Gigaflops = USUAL.flops_s / 1e9,
    memory_gb: Memory = USUAL.memory_bytes / 1e9,
    everything: Annotated[bool, typer.Option("--all", help="Every averaging, not only each solver's best.")] = False,
) -> None:
    """Forecast rounds, bytes, memory and time of every solver with every averaging, and say which is best and why.

    Three single nodes solve their own part first, without any message, to see how hard the problem is. Nothing is
    fitted and nothing is written. **eigenmesh fit** chooses in the same way, with the usual costs and no rehearsal.

    Examples:

    - `eigenmesh plan digits -k 5 --nodes 20`

    - `eigenmesh plan samples.npy -k 10 --topology cycle --latency-ms 80 --bandwidth-mbit 10`
    """
    messages = Messages.of()
    request = Request(
        n_components=parse_components(components) or DEFAULT_COMPONENTS,
        at_most=components is None,
        tol=tol,
        seed=seed,
        costs=Costs(latency_ms / 1e3, bandwidth_mbit * 1e6 / 8, gflops * 1e9, memory_gb * 1e9),
    )
    problem = read_problem(
        messages,
        data,
        label_column=label_column,
        split=split,
        by_label=by_label,
        nodes=nodes,
        topology=topology,
        weights=weights,
        seed=seed,
    )
    n_samples, _ = problem.data.count_samples()
    wanted = request.components(n_samples, problem.shards.n_features)
    messages.tell(facts_table({**problem.facts(n_samples), "components": str(wanted)}))
    with messages.waiting("rehearsing on single nodes"):
        planned = make_plan(request, problem.data)
    messages.tell(plan_table(planned, everything))
    messages.tell(planned.reason)
