"""``eigenmesh fit``: the principal components of data in files."""

from __future__ import annotations

from typing import Any

import numpy as np
import typer

from eigenmesh.averaging import name_of
from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages, note_node
from eigenmesh.cli.output import STANDARD_OUTPUT, Outputs, facts_of, of_node, title_of, wait_until_all_have_written
from eigenmesh.cli.process import NOT_CONVERGED
from eigenmesh.errors import InputError
from eigenmesh.events import Entry
from eigenmesh.fitting import PARTITIONS, Fit, NodeData, Prepared, Request, Spread, fit_numbers, planned, prepare
from eigenmesh.fitting import fit as run_fit
from eigenmesh.fitting.problem import is_one_table
from eigenmesh.metrics import sin_squared
from eigenmesh.report.pictures import counted
from eigenmesh.report.tables import facts_table
from eigenmesh.transports import Transport, transport_by_name, transport_kind
from eigenmesh.words import canonical_name, readable_bytes


def fit(
    data: options.Sources,
    table: options.Table,
    where: options.Where,
    batches: options.Stream,
    method: options.Method,
    view: options.PictureView,
    partition: options.Partition = "samples",
    transport: options.TransportName = None,
    seed: options.DrawnSeed = None,
    out: options.ArraysFile = None,
    json_file: options.NumbersFile = None,
    plot: options.ResultFile = None,
    plot_network: options.NetworkFile = None,
    events: options.EventsFile = None,
    report: options.ReportFile = None,
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

    - `eigenmesh fit patients.csv --table label_column=site --split label --scale`

    - `eigenmesh fit a.csv b.csv c.csv --topology links.txt --json -`

    - `eigenmesh fit lab.csv genes.csv --partition features --table id_column=patient`

    - `mpiexec -n 20 eigenmesh fit site-{rank}.npy --transport mpi --out pca.npz`

    - `eigenmesh fit months/ --stream --nodes 8 --forgetting 0.99`
    """
    messages = Messages.of(quiet, machine_output=json_file == STANDARD_OUTPUT)
    outputs = Outputs(out, json_file, plot, events, report, plot_network, view, table)
    outputs.check(data)
    if transport is None and outputs.has_rank:
        raise InputError("{rank} in the name of an output needs nodes that are processes or threads; add --transport.")
    engine = None if transport is None else transport_kind(transport, method["device"])
    request = Request.parse(**method, random_state=seed)
    if batches is not None:
        if canonical_name("partition", partition, PARTITIONS) != "samples":
            raise InputError(f"--partition {partition} needs all samples at once; a stream is split by samples.")
        # It imports scikit-learn, which is slow to import and which a fit of files does without.
        from eigenmesh.cli.fit_stream import fit_stream

        converged = fit_stream(messages, outputs, data, table, batches, where, engine, {**method, "random_state": seed})
        raise typer.Exit(0 if converged else NOT_CONVERGED)
    if engine is not None and where["split"] is None and is_one_table(data):
        # Each node reads only its own samples, so they are consecutive rows of the file.
        where["split"] = "contiguous"

    def read(link: Transport | None = None) -> NodeData:
        spread = Spread(**where, partition=partition, seed=request.layout_seed, transport=link)
        about["weights"] = spread.weights
        with messages.waiting("reading the data"):
            return spread.of_words(data, table)

    about: dict[str, Any] = {"transport": None if engine is None else engine.name}
    if engine is None:
        converged = carry_out(messages, outputs, request, read(), about)
    elif engine.run_nodes is not None:
        shared = read()

        def node(link: Transport) -> bool:
            return carry_out(*of_node(link, messages, outputs), request, shared.at_node(link), about)

        converged = engine.run_nodes(shared.shards.n_nodes, node)[0]
    else:
        with transport_by_name(engine.name, device=method["device"]) as link:
            note_node(link.rank)
            messages, outputs = of_node(link, messages, outputs)
            converged = carry_out(messages, outputs, request, read(link), about)
    if not converged:
        raise typer.Exit(NOT_CONVERGED)


def carry_out(
    messages: Messages,
    outputs: Outputs,
    request: Request,
    data: NodeData,
    about: dict[str, Any],
    truth: np.ndarray | None = None,
) -> bool:
    """Prepare the fit, print its settings, run it, write and print the result; True if it converged.

    With the true components, (d, K), the true angles are printed next to the bounds.
    """
    with messages.waiting("preparing"):
        prepared = prepare(request, data)
    facts = facts_of(data, prepared.moments.n_samples)
    messages.print(facts_table({**facts, **(_method(prepared) if truth is None else {})}))
    entries: list[Entry] = []
    keep = None if outputs.report is None else entries.append
    watched = keep is not None or outputs.events is not None
    # A forecast that costs little, if all nodes are in this process.
    forecast = planned(request, data) if watched and data.transport is None else None
    with messages.log(outputs.events, keep) as log:
        if forecast is not None:
            log.emit(forecast)
        fitted = run_fit(prepared, events=log, reference=truth)
        log.emit(fitted.result.ended)
    numbers = fit_numbers(fitted, {**_asked(fitted, data), "solver_parameters": dict(vars(prepared.solver)), **about})
    sines = None
    if truth is not None:
        sines = np.sqrt(sin_squared(fitted.result.node_components.mT, truth).max(axis=0))
    outputs.finish(messages, fitted, numbers, entries, title_of(data), facts, data, sines)
    if not fitted.result.converged:
        wait_until_all_have_written(data.transport)
    return fitted.result.converged


def _asked(fitted: Fit, data: NodeData) -> dict[str, Any]:
    """The settings of a fit, for JSON."""
    request = fitted.request
    return {
        "data": data.name,
        "n_samples": fitted.moments.n_samples,
        "n_features": fitted.facts.n_features,
        "topology": data.topology,
        "split": data.split,
        "averaging": fitted.averaging,
        "covariance": str(fitted.choice.kind),
        "seed": fitted.result.seed,
        "tol": request.tol,
        "max_rounds": request.max_rounds,
        "scale": request.scale,
        "missing": request.missing,
    }


def _method(prepared: Prepared) -> dict[str, str]:
    request, wanted, choice = prepared.request, prepared.n_components, prepared.choice
    many = counted(wanted, "component") if isinstance(wanted, int) else f"components for {wanted:.4g} of the variance"
    return {
        "method": f"{prepared.solver.name} with {name_of(prepared.averaging)} averaging: {many}, tol {request.tol:g}, "
        f"at most {request.max_rounds:,} rounds",
        "covariance": f"{choice.kind}, {readable_bytes(choice.bytes)} beyond the data ({choice.reason})",
    }
