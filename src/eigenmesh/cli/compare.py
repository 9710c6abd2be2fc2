"""``eigenmesh compare``: solvers on the same data, network and start, error against cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from eigenmesh.atomic_write import save_text
from eigenmesh.cli import options
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import METHOD, OUTPUT, option, parse_solvers
from eigenmesh.cli.output import facts_of, make_folder, require_apart
from eigenmesh.experiments.claims import CostRow, Line, costs_csv, line_of, lines_csv
from eigenmesh.experiments.experiment import Method
from eigenmesh.experiments.figures import Axis, cost_table, errors_picture
from eigenmesh.experiments.problems import ROUNDS_ALONE, Comparison
from eigenmesh.experiments.runs import UNITS, Curve, follow
from eigenmesh.fitting import NodeData, Request, Spread
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
        # The covariance is stored in the form that suits the solver that multiplies with it most often.
        solver=max((method.solver for method in methods), key=lambda solver: solver.traits.expected_products),
        averaging="tree" if cost == "bytes" and find_name(averaging, ["auto"]) else averaging,
        max_rounds=max_rounds,
        scale=scale,
        random_state=seed,
        costs=ROUNDS_ALONE,
    )
    with messages.waiting("reading the data"):
        problem = Spread(**where, seed=request.layout_seed).of_words(data, table)
    with messages.waiting("computing the true components"):
        comparison = Comparison.of(request, problem)
    messages.print(facts_table(facts_of(problem, comparison.prepared.moments.n_samples)))
    curves = _run(messages, methods, comparison, max_rounds)
    rows = [CostRow.of(method, [curve]) for method, curve in curves]
    written = _write(out, problem, rows, curves, cost)
    messages.print(cost_table(rows, cost))
    for path in written:
        messages.print(f"wrote {path}")


def _run(
    messages: Messages, methods: Sequence[Method], comparison: Comparison, max_rounds: int
) -> list[tuple[Method, Curve]]:
    curves = []
    for number, method in enumerate(methods, start=1):
        if not messages.quiet:
            messages.alert(f"{number} of {len(methods)}: {method.label}", style="none")
        with messages.log() as log:
            curves.append((method, follow(method, comparison, max_rounds, log)))
    return curves


def _write(
    folder: Path, problem: NodeData, rows: Sequence[CostRow], curves: Sequence[tuple[Method, Curve]], cost: str
) -> list[Path]:
    # Centralised methods send nothing, so they are left out where the axis counts bytes.
    lines: list[Line] = [line_of(m, [c], cost) for m, c in curves if not (cost == "bytes" and m.centralised)]
    written = [save_text(folder / COSTS, costs_csv([(problem.name, rows)]))]
    written.append(save_text(folder / ERRORS, lines_csv([(problem.name, lines)], cost)))
    about = f"{problem.topology}, {problem.shards.n_nodes} nodes, {problem.split} split"
    figure = errors_picture([Axis(problem.name, about, lines, cost)])
    return [*written, *(save_picture(figure, folder / name) for name in PICTURES if lines)]


def parse_methods(text: str) -> list[Method]:
    """Methods from the solvers of --solvers; those of the same name are told apart by their settings."""
    methods = [Method(solver.name, solver) for solver in parse_solvers(text)]
    names = Counter(method.label for method in methods)
    return [
        replace(method, label=f"{method.label} ({method.words})") if names[method.label] > 1 else method
        for method in methods
    ]
