"""``eigenmesh fit``: the principal components of data in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import typer

from eigenmesh.averaging import name_of
from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages, note_node
from eigenmesh.cli.options import StreamOptions, takes_stream, takes_table
from eigenmesh.cli.output import STANDARD_OUTPUT, Outputs, wait_until_all_have_written, write_fit_report
from eigenmesh.cli.problem import IMAGE_SHAPES, Problem, is_one_table, parse_components, parse_solver, read_problem
from eigenmesh.cli.process import NOT_CONVERGED
from eigenmesh.data import TableOptions
from eigenmesh.errors import InputError
from eigenmesh.events import Entry, Listener
from eigenmesh.fitting import PARTITIONS, Prepared, Request, fit_numbers, model_of, prepare
from eigenmesh.fitting import fit as run_fit
from eigenmesh.graphs import WEIGHTS
from eigenmesh.report import save_picture
from eigenmesh.report.pictures import counted
from eigenmesh.report.tables import facts_table
from eigenmesh.transports import Transport, transport_by_name, transport_kind
from eigenmesh.words import canonical_name, readable_bytes

DEFAULT_COMPONENTS = 5


@takes_table
@takes_stream
@options.takes_settings
def fit(
    data: options.Sources,
    table: TableOptions,
    batches: StreamOptions | None,
    settings: dict[str, Any],
    split: options.SplitName = None,
    partition: options.Partition = "samples",
    scale: options.Scale = False,
    binomial: options.Binomial = False,
    nodes: options.Nodes = None,
    topology: options.Topology = "erdos_renyi",
    weights: options.WeightsName = "auto",
    transport: options.TransportName = None,
    components: options.Components = None,
    solver: options.SolverName = "auto",
    seed: options.DrawnSeed = None,
    costs: options.CostsText = None,
    out: options.ArraysFile = None,
    json_file: options.NumbersFile = None,
    plot: options.PictureFile = None,
    events: options.EventsFile = None,
    report: options.ReportFile = None,
    live: options.Live = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the principal components of data that are spread over nodes.

    The result is that of PCA on the pooled samples, within **--tol**. It comes with a certificate, which the nodes
    compute without knowing the truth. By default the nodes are simulated in this process, and the bytes that they would
    send are counted; with **--transport** they are threads or processes that exchange real messages.

    Exit status: 0 if the certificate reached the tolerance; 1 if not, but all files are written; 2 for invalid
    input or a lost node, and no file is written.

    Examples:

    - `eigenmesh fit digits -k 3 --plot digits.png --report digits.html`

    - `eigenmesh fit patients.csv --label-column site --split label --scale`

    - `eigenmesh fit a.csv b.csv c.csv --topology links.txt --json -`

    - `eigenmesh fit lab.csv genes.csv --partition features --id-column patient`

    - `mpiexec -n 20 eigenmesh fit site-{rank}.npy --transport mpi --out pca.npz`

    - `eigenmesh fit months/ --stream --nodes 8 --forgetting 0.99`
    """
    messages = Messages.of(quiet, machine_output=json_file == STANDARD_OUTPUT, live=live)
    outputs = Outputs(out, json_file, plot, events, report)
    outputs.check(data)
    if transport is None and outputs.has_rank:
        raise InputError("{rank} in the name of an output needs nodes that are processes or threads; add --transport.")
    engine = None if transport is None else transport_kind(transport, settings["device"])
    settings |= {
        "n_components": parse_components(components) or DEFAULT_COMPONENTS,
        "solver": parse_solver(solver),
        "scale": "binomial" if binomial else scale,
        "random_state": seed,
        "costs": options.read_costs(costs),
    }
    request = Request.parse(at_most=components is None, **settings)
    if batches is not None:
        # Imported only here: the estimator needs scikit-learn, which is slow to import.

        where: Any = {"transport": transport, "topology": topology, "nodes": nodes, "split": split, "weights": weights}
        if canonical_name("partition", partition, PARTITIONS) != "samples":
            raise InputError(f"--partition {partition} needs all samples at once; a stream is split by samples.")
        # It imports scikit-learn, which a fit of files does without.
        from eigenmesh.cli.fit_stream import fit_stream

        converged = fit_stream(messages, outputs, data, table, batches, **where, **settings)
        raise typer.Exit(0 if converged else NOT_CONVERGED)
    if transport is not None and split is None and is_one_table(data):
        # Each node reads only its own samples, so they are consecutive rows of the file.
        split = "contiguous"
    read = partial(
        read_problem,
        table=table,
        split=split,
        nodes=nodes,
        topology=topology,
        weights=weights,
        partition=partition,
        seed=request.layout_seed,
    )
    about = {
        "weights": canonical_name("weights", weights, ["auto", *WEIGHTS]),
        "transport": None if engine is None else engine.name,
    }
    if engine is None:
        converged = _with_page(messages, outputs, request, read(messages, data), about)
    elif engine.run_nodes is not None:
        problem = read(messages, data)
        converged = _at_every_node(engine.run_nodes, messages, outputs, request, problem, about)
    else:
        with transport_by_name(engine.name, device=settings["device"]) as link:
            note_node(link.rank)
            messages, outputs = _of_node(link, messages, outputs)
            problem = read(messages, data, transport=link)
            converged = _with_page(messages, outputs, request, problem, about)
    if not converged:
        raise typer.Exit(NOT_CONVERGED)


def _of_node(link: Transport, messages: Messages, outputs: Outputs) -> tuple[Messages, Outputs]:
    """Messages and outputs of one node: only node 0 prints, and only it writes files without {rank} in their name."""
    return (messages if link.rank == 0 else Messages.silent()), outputs.of_rank(link.rank)


def _at_every_node(
    run_nodes: Callable[..., list[bool]],
    messages: Messages,
    outputs: Outputs,
    request: Request,
    problem: Problem,
    about: dict[str, Any],
) -> bool:
    """Run all nodes in this process, each with its own samples; True if node 0 converged."""

    # The page is served from this thread, because only the main thread receives Ctrl-C, which ends it.
    with messages.page(problem.title) as page:

        def node(link: Transport) -> bool:
            own = replace(problem, shards=problem.shards.take([link.rank]), transport=link)
            seen = page if link.rank == 0 else None
            return _carry_out(*_of_node(link, messages, outputs), seen, request, own, about)

        return run_nodes(problem.shards.n_nodes, node)[0]


def _with_page(messages: Messages, outputs: Outputs, request: Request, problem: Problem, about: dict[str, Any]) -> bool:
    with messages.page(problem.title) as page:
        return _carry_out(messages, outputs, page, request, problem, about)


def _carry_out(
    messages: Messages,
    outputs: Outputs,
    page: Listener | None,
    request: Request,
    problem: Problem,
    about: dict[str, Any],
) -> bool:
    """Prepare the fit, print its settings, run it, write and print the result; True if it converged."""
    with messages.waiting("preparing"):
        prepared = prepare(request, problem.data)
    messages.print(facts_table(_facts(prepared, problem)))
    entries: list[Entry] = []
    keep = None if outputs.report is None else entries.append
    watched = page is not None or keep is not None or outputs.events is not None
    planned = problem.planned(request) if watched else None
    with messages.log(outputs.events, page, keep) as log:
        if planned is not None:
            log.emit(planned)
        fitted = run_fit(prepared, events=log)
        log.emit(fitted.result.ended)
    parameters = {"solver_parameters": dict(vars(prepared.solver))}
    numbers = fit_numbers(fitted, {**problem.asked(fitted), **parameters, **about})
    written = outputs.write(model_of(fitted), numbers)
    if outputs.picture is not None:
        title = f"{problem.title}: {fitted.moments.n_samples:,} samples at {fitted.result.n_nodes} nodes"
        written.append(save_picture(problem.picture(fitted, title), outputs.picture))
    if outputs.report is not None:
        written.append(write_fit_report(outputs.report, entries, fitted, problem))
    if outputs.events is not None:
        written.append(outputs.events)
    # Loadings of single pixels say little; components of images are shown in the picture.
    messages.print_fit(fitted, loadings=problem.name not in IMAGE_SHAPES)
    outputs.print(numbers)
    for path in written:
        messages.print(f"wrote {path}")
    if not fitted.result.converged:
        wait_until_all_have_written(problem.transport)
    return fitted.result.converged


def _facts(prepared: Prepared, problem: Problem) -> dict[str, str]:
    request, wanted, choice = prepared.request, prepared.n_components, prepared.choice
    many = counted(wanted, "component") if isinstance(wanted, int) else f"components for {wanted:.4g} of the variance"
    return {
        **problem.facts(prepared.moments.n_samples),
        "method": f"{prepared.solver.name} with {name_of(prepared.averaging)} averaging: {many}, tol {request.tol:g}, "
        f"at most {request.max_rounds:,} rounds",
        "covariance": f"{choice.kind}, {readable_bytes(choice.bytes)} beyond the data ({choice.reason})",
    }
