"""``eigenmesh compare``: any solvers on the same data, network and start, error against cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenmesh import graphs
from eigenmesh._atomic_write import require_writable, write_atomically
from eigenmesh.averaging import Averaging, Tree, averaging_by_name
from eigenmesh.cli import _options as options
from eigenmesh.cli._fit import COVARIANCES, DEFAULT_COMPONENTS, MISSING
from eigenmesh.cli._messages import Voice
from eigenmesh.cli._methods import parse_methods
from eigenmesh.cli._problem import Problem as StatedProblem
from eigenmesh.cli._problem import state_problem
from eigenmesh.data import CovarianceKind, build_covariance, pooled_moments
from eigenmesh.errors import InputError, MissingExtraError, UnknownNameError, UnreadableFileError
from eigenmesh.experiments._curves import UNITS, Curve
from eigenmesh.experiments._problems import Problem, leading_eigenvectors, pooled_covariance, quickest_averaging
from eigenmesh.experiments._settings import Method
from eigenmesh.experiments._tables import CostRow, Line, costs_csv, line_of, lines_csv
from eigenmesh.experiments._trials import follow
from eigenmesh.iteration._run import DEFAULT_MAX_ROUNDS, require_components
from eigenmesh.networks import Stacked
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
    voice = Voice.of(quiet)
    methods = parse_methods(solvers)
    _require_known("unit of cost", cost, UNITS)
    _require_known("policy for missing entries", missing, MISSING)
    _require_known("covariance", covariance, COVARIANCES)
    if averaging != "auto":
        averaging_by_name(averaging)
    files = Files.checked(out, data)
    stated = state_problem(
        voice,
        data,
        label_column=label_column,
        split=split,
        by_label=by_label,
        nodes=nodes,
        topology=topology,
        weights=weights,
        seed=seed,
    )
    n_components = components or max(1, min(DEFAULT_COMPONENTS, stated.shards.n_features, stated.n_samples - 1))
    require_components(n_components, stated.shards.n_features, stated.n_samples)
    voice.tell(facts_table(stated.facts()))
    with voice.waiting("finding the truth"):
        problem = _problem(
            stated,
            n_components,
            _averaging(averaging, stated.weights, cost),
            seed,
            kind=None if covariance == "auto" else CovarianceKind(covariance),
            scale=scale,
            missing=MISSING[missing],
        )
    curves = _run(voice, methods, problem, max_rounds)
    rows = [CostRow.of(method, [curve]) for method, curve in curves]
    voice.tell(cost_table(rows, cost))
    _write(voice, files, stated, rows, curves, cost)


def _require_known(kind: str, name: str, known: Any) -> None:
    if name not in known:
        raise UnknownNameError(kind, name, known)


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


def _averaging(name: str, weights: graphs.Weights, cost: str) -> Averaging:
    if name != "auto":
        return averaging_by_name(name)
    return Tree() if cost == "bytes" else quickest_averaging(weights)


def _problem(
    stated: StatedProblem,
    n_components: int,
    averaging: Averaging,
    seed: int,
    *,
    kind: CovarianceKind | None,
    **moment_settings: Any,
) -> Problem:
    moments = pooled_moments(stated.shards, Stacked(stated.weights), **moment_settings)
    covariance = build_covariance(stated.shards, moments, kind=kind, n_components=n_components, products=1000)
    _, truth = leading_eigenvectors(pooled_covariance(covariance), n_components)
    basis = random_basis(covariance.n_features, n_components, seed)
    return Problem(covariance, stated.weights, truth, basis, averaging)


def _run(voice: Voice, methods: Sequence[Method], problem: Problem, max_rounds: int) -> list[tuple[Method, Curve]]:
    curves = []
    for number, method in enumerate(methods, start=1):
        if not voice.quiet:
            voice.alert(f"{number} of {len(methods)}: {method.label}", style="none")
        with voice.progress(max_rounds) as show:
            curves.append((method, follow(method, problem, max_rounds, show)))
    return curves


def _write(
    voice: Voice,
    files: Files,
    stated: StatedProblem,
    rows: Sequence[CostRow],
    curves: Sequence[tuple[Method, Curve]],
    cost: str,
) -> None:
    name = stated.source.name
    # What sends nothing has no place on an axis of bytes.
    lines: list[Line] = [line_of(m, [c], cost) for m, c in curves if not (cost == "bytes" and m.centralised)]
    for path in files.costs:
        text = costs_csv([(name, rows)])
        write_atomically(path, lambda file, text=text: file.write(text.encode()))
    for path in files.errors:
        text = lines_csv([(name, lines)], cost)
        write_atomically(path, lambda file, text=text: file.write(text.encode()))
    if files.pictures and lines:
        about = f"{stated.topology}, {stated.shards.n_nodes} nodes, {stated.split} split"
        figure = errors_picture([Axis(name, about, lines)], cost)
        for path in files.pictures:
            save_picture(figure, path)
    if files.undrawn is not None:
        voice.alert(f"no picture: {files.undrawn}", style="yellow")
    for path in (*files.costs, *files.errors, *(files.pictures if lines else ())):
        voice.tell(f"wrote {path}")
