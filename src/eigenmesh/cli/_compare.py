"""``eigenmesh compare``: any solvers on the same data, network and start, error against cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from eigenmesh._atomic_write import require_writable, write_atomically
from eigenmesh._lookup import canonical_name, find_name
from eigenmesh.cli import _options as options
from eigenmesh.cli._fit import DEFAULT_COMPONENTS
from eigenmesh.cli._messages import Messages
from eigenmesh.cli._methods import parse_methods
from eigenmesh.cli._problem import Problem, read_problem
from eigenmesh.errors import InputError, MissingExtraError, UnreadableFileError
from eigenmesh.events import event_log
from eigenmesh.experiments._curves import UNITS, Curve
from eigenmesh.experiments._problems import ROUNDS_ALONE, Comparison, leading_eigenvectors, pooled_covariance
from eigenmesh.experiments._settings import Method
from eigenmesh.experiments._tables import CostRow, Line, costs_csv, line_of, lines_csv
from eigenmesh.experiments._trials import follow
from eigenmesh.fitting import Request, prepare
from eigenmesh.iteration import DEFAULT_MAX_ROUNDS
from eigenmesh.report import require_picture, save_picture
from eigenmesh.report._cost_table import cost_table
from eigenmesh.report._error_picture import Axis, errors_picture
from eigenmesh.report._run_tables import facts_table
from eigenmesh.solvers import SOLVERS
from eigenmesh.solvers._bases import random_basis

DEFAULT_SOLVERS = "fast-pca,deepca,block-krylov"
DEFAULT_OUT = (Path("out/compare"),)

Solvers = Annotated[
    str,
    typer.Option(
        metavar="NAME[:FIELD=VALUE],...",
        help=f"Which, with settings: fast-pca:step_size=0.1,sa-dot:start=2,cap=30,oi. There are: {', '.join(SOLVERS)}.",
        rich_help_panel=options.METHOD,
    ),
]
Components = Annotated[
    int | None,
    typer.Option(
        "--components", "-k", min=1, metavar="K", help="How many (5 by default).", rich_help_panel=options.METHOD
    ),
]
Cost = Annotated[
    str, typer.Option(metavar="UNIT", help=f"What is counted: {', '.join(UNITS)}.", rich_help_panel=options.OUTPUT)
]
Out = Annotated[
    list[Path],
    typer.Option(
        "--out",
        metavar="FOLDER|FILE",
        help="A folder for pictures and tables; or names, ending in .png, .svg or .csv (the table), again and again.",
        rich_help_panel=options.OUTPUT,
    ),
]


def compare(
    data: options.Sources,
    solvers: Solvers = DEFAULT_SOLVERS,
    label_column: options.LabelColumn = None,
    split: options.SplitName = None,
    by_label: options.ByLabel = False,
    missing: options.Missing = "error",
    scale: options.Scale = False,
    nodes: options.Nodes = None,
    topology: options.Topology = "erdos_renyi",
    weights: options.WeightsName = "metropolis",
    averaging: options.AveragingName = "auto",
    components: Components = None,
    max_rounds: options.MaxRounds = DEFAULT_MAX_ROUNDS,
    covariance: options.CovarianceName = "auto",
    seed: options.Seed = 0,
    cost: Cost = "rounds",
    out: Out = list(DEFAULT_OUT),  # noqa: B006 - Typer copies it
    quiet: options.Quiet = False,
) -> None:
    """Set solvers against each other: what it costs each to get how near to the true components.

    All get the same data, network and start. The error is the mean over nodes and components of the squared sine of
    the angle to the truth, which this command, unlike the nodes, knows. Centralised methods (oi, seq-pm, krasulina,
    sanger) run in one place on the pooled data and count one unit an iteration. **--averaging auto** takes the exact
    average with the fewest rounds, or a tree if bytes are counted.

    Examples:

    - `eigenmesh compare digits -k 3 --solvers fast-pca,deepca,block-krylov`

    - `eigenmesh compare digits --solvers "fast-pca:step_size=0.002,deepca:mixes=5,oi" --cost matrices --out digits.png`

    - `eigenmesh compare a.csv b.csv c.csv --topology path --cost bytes --out comparison`
    """
    messages = Messages.of(quiet)
    methods = parse_methods(solvers)
    cost = canonical_name("unit of cost", cost, UNITS)
    files = Files.checked(out, data)
    request = Request.parse(
        n_components=components or DEFAULT_COMPONENTS,
        at_most=components is None,
        # Covariances are held in the way that suits the method with the most products.
        solver=max((method.solver for method in methods), key=lambda solver: solver.traits.expected_products),
        averaging="tree" if cost == "bytes" and find_name(averaging, ["auto"]) else averaging,
        max_rounds=max_rounds,
        scale=scale,
        missing=missing,
        covariance=covariance,
        random_state=seed,
        costs=ROUNDS_ALONE,
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
    with messages.waiting("finding the truth"):
        comparison = _comparison(request, problem)
    messages.tell(facts_table(problem.facts(comparison.prepared.moments.n_samples)))
    curves = _run(messages, methods, comparison, max_rounds)
    rows = [CostRow.of(method, [curve]) for method, curve in curves]
    messages.tell(cost_table(rows, cost))
    _write(messages, files, problem, rows, curves, cost)


@dataclass(frozen=True)
class Files:
    """Where pictures and tables go; ``undrawn`` says why there will be no pictures."""

    pictures: tuple[Path, ...]
    costs: tuple[Path, ...]
    errors: tuple[Path, ...]
    undrawn: MissingExtraError | None = None

    @classmethod
    def checked(cls, out: Sequence[Path], inputs: Sequence[str]) -> Files:
        """Raise now if any could not be written later, or would overwrite an input."""
        pictures, costs, errors = [], [], []
        for path in out:
            if path.is_dir() or not path.suffix:
                folder = _made(path)
                pictures += [folder / "compare.png", folder / "compare.svg"]
                costs.append(folder / "costs.csv")
                errors.append(folder / "errors.csv")
            elif path.suffix.lower() == ".csv":
                costs.append(path)
            else:
                pictures.append(path)
        taken = {Path(name).resolve() for name in inputs}
        for path in (*costs, *errors, *pictures):
            if path.resolve() in taken:
                raise InputError(f"{path} is an input already; choose another name.")
        for path in (*costs, *errors):
            require_writable(path)
        try:
            for path in pictures:
                require_picture(path)
        except MissingExtraError as error:
            return cls((), tuple(costs), tuple(errors), error)
        return cls(tuple(pictures), tuple(costs), tuple(errors))


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableFileError(
            f"cannot make the folder {folder}: {error.strerror}; choose another --out."
        ) from error
    return folder


def _comparison(request: Request, problem: Problem) -> Comparison:
    prepared = prepare(request, problem.data)
    k = int(prepared.n_components)
    _, truth = leading_eigenvectors(pooled_covariance(prepared.covariance, prepared.facts.n_nodes), k)
    return Comparison(prepared, truth, random_basis(prepared.facts.n_features, k, request.seed))


def _run(
    messages: Messages, methods: Sequence[Method], comparison: Comparison, max_rounds: int
) -> list[tuple[Method, Curve]]:
    curves = []
    for number, method in enumerate(methods, start=1):
        if not messages.quiet:
            messages.alert(f"{number} of {len(methods)}: {method.label}", style="none")
        with messages.progress() as show, event_log(None, show) as log:
            curves.append((method, follow(method, comparison, max_rounds, log)))
    return curves


def _write(
    messages: Messages,
    files: Files,
    problem: Problem,
    rows: Sequence[CostRow],
    curves: Sequence[tuple[Method, Curve]],
    cost: str,
) -> None:
    name = problem.source.name
    # What sends nothing has no place on an axis of bytes.
    lines: list[Line] = [line_of(m, [c], cost) for m, c in curves if not (cost == "bytes" and m.centralised)]
    for path in files.costs:
        text = costs_csv([(name, rows)])
        write_atomically(path, lambda file, text=text: file.write(text.encode()))
    for path in files.errors:
        text = lines_csv([(name, lines)], cost)
        write_atomically(path, lambda file, text=text: file.write(text.encode()))
    if files.pictures and lines:
        about = f"{problem.topology}, {problem.shards.n_nodes} nodes, {problem.split} split"
        figure = errors_picture([Axis(name, about, lines)], cost)
        for path in files.pictures:
            save_picture(figure, path)
    if files.undrawn is not None:
        messages.alert(f"no picture: {files.undrawn}", style="yellow")
    for path in (*files.costs, *files.errors, *(files.pictures if lines else ())):
        messages.tell(f"wrote {path}")
