"""``eigenmesh compare``: solvers on the same data, network and start, error against cost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

from eigenmesh.atomic_write import save_text
from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import METHOD, OUTPUT, option, parse_solvers
from eigenmesh.cli.output import facts_of, make_folder, require_apart
from eigenmesh.events import EventLog
from eigenmesh.experiments.claims import as_csv, cost_columns, error_columns
from eigenmesh.experiments.comparison import Compared, compared, methods_of
from eigenmesh.experiments.experiment import Method
from eigenmesh.experiments.figures import cost_table
from eigenmesh.experiments.runs import UNITS
from eigenmesh.fitting import Request, Spread
from eigenmesh.iteration import DEFAULT_MAX_ROUNDS
from eigenmesh.report.pictures import matplotlib, save_picture
from eigenmesh.report.tables import facts_table
from eigenmesh.solvers import SOLVERS
from eigenmesh.words import canonical_name, find_name

DEFAULT_SOLVERS = "fast-pca,deepca,block-krylov"
COSTS, ERRORS, PICTURES = "costs.csv", "errors.csv", ("compare.png", "compare.svg")

SOLVERS_HELP = f"Names, with settings: fast-pca:step_size=0.1,sa-dot:start=2,cap=30,oi. From: {', '.join(SOLVERS)}."

Solvers = Annotated[str, option(METHOD, "NAME[:FIELD=VALUE],...", SOLVERS_HELP)]
Cost = Annotated[str, option(OUTPUT, "UNIT", f"What is counted: {', '.join(UNITS)}.")]
Out = Annotated[Path, option(OUTPUT, "FOLDER", "Folder for pictures and tables; it is created.", "--out")]


def compare(
    data: options.Sources,
    table: options.Table,
    where: options.Where,
    solvers: Solvers = DEFAULT_SOLVERS,
    scale: options.Scale = False,
    missing: options.Missing = "error",
    averaging: options.AveragingName = "auto",
    components: options.ComponentCount = None,
    max_rounds: options.MaxRounds = DEFAULT_MAX_ROUNDS,
    seed: options.Seed = 0,
    cost: Cost = "rounds",
    out: Out = Path("out/compare"),
    quiet: options.Quiet = False,
) -> None:
    """Compare solvers on the same data: how much each costs to reach a given error.

    All solvers get the same data, network and start. The error is the squared sine of the angle to the true component,
    averaged over nodes and components; this command computes the truth from the pooled data, which no node could.
    Centralised methods (oi, seq-pm, krasulina, sanger) run in one place on the pooled data and count one unit per
    iteration. **--averaging auto** takes the exact average with the fewest rounds, or a tree if bytes are counted.

    Examples:

    - `eigenmesh compare digits -k 3 --solvers fast-pca,deepca,block-krylov`

    - `eigenmesh compare digits --solvers "fast-pca:step_size=0.002,deepca:mixes=5,oi" --cost matrices --out digits`

    - `eigenmesh compare a.csv b.csv c.csv --topology path --cost bytes --out comparison`
    """
    messages = Messages.of(quiet)
    methods = parse_methods(solvers)
    cost = canonical_name("unit of cost", cost, UNITS)
    # matplotlib is needed only at the end; if it is missing, fail now.
    matplotlib("figure")
    require_apart([make_folder(out) / name for name in (COSTS, ERRORS, *PICTURES)], data)
    request = Request.parse(
        n_components=components or options.DEFAULT_COMPONENTS,
        at_most=components is None,
        averaging="tree" if cost == "bytes" and find_name(averaging, ["auto"]) else averaging,
        max_rounds=max_rounds,
        scale=scale,
        missing=missing,
        random_state=seed,
    )
    with messages.waiting("reading the data"):
        problem = Spread(**where, seed=request.layout_seed).of_words(data, table)
    with ExitStack() as stack:
        log_of = partial(_log_of, messages, methods, stack)
        comparison, found = compared(request, problem, methods, log_of)
    messages.print(facts_table(facts_of(problem, comparison.prepared.moments.n_samples)))
    written = _write(out, found, cost)
    messages.print(cost_table(found.cost_rows, cost))
    for path in written:
        messages.print(f"wrote {path}")


def _log_of(messages: Messages, methods: Sequence[Method], stack: ExitStack, method: Method) -> EventLog:
    """Say which solver runs now, and show its progress until the next one or the end."""
    stack.close()
    if not messages.quiet:
        messages.alert(f"{methods.index(method) + 1} of {len(methods)}: {method.label}", style="none")
    return stack.enter_context(messages.log())


def _write(folder: Path, found: Compared, cost: str) -> list[Path]:
    written = [save_text(folder / COSTS, as_csv(cost_columns([(found.name, found.cost_rows)])))]
    written.append(save_text(folder / ERRORS, as_csv(error_columns([(found.name, found.runs)]))))
    # Centralised methods send nothing.
    if cost != "bytes" or not all(method.centralised for method in found.methods):
        figure = found.plot(cost)
        written += [save_picture(figure, folder / name) for name in PICTURES]
    return written


def parse_methods(text: str) -> list[Method]:
    """Methods from the solvers of --solvers; those of the same name are told apart by their settings."""
    return methods_of(parse_solvers(text))
