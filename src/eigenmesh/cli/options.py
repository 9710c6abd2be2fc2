"""Options with their help texts, one type alias each, shared between commands."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from eigenmesh.cli.output import View
from eigenmesh.data import READERS, TableOptions
from eigenmesh.errors import InputError
from eigenmesh.fitting import Costs
from eigenmesh.graphs import TOPOLOGIES
from eigenmesh.model import model_file
from eigenmesh.settings import A_STREAM, OF_REQUESTS, ONE_FIT, SETTINGS, Setting
from eigenmesh.solvers import SOLVERS, Solver
from eigenmesh.transports import TRANSPORTS
from eigenmesh.words import canonical_name, find_name

Read = TypeVar("Read", bound=Callable[..., Any])

DATA, STREAM, NETWORK, METHOD = "Data", "Stream", "Network", "Method"
OUTPUT = "Output"
DEFAULT_COMPONENTS = 5
# What --costs names: the field of Costs, and how many of its units are one of the field's.
COSTS = {
    "latency_ms": ("latency_s", 1e3),
    "bandwidth_mbit": ("bandwidth_bytes_s", 8e-6),
    "gflops": ("flops_s", 1e-9),
    "memory_gb": ("memory_bytes", 1e-9),
}
USUAL_COSTS = {name: getattr(Costs(), field) * units for name, (field, units) in COSTS.items()}
COSTS_HELP = f"For the planner, by default {', '.join(f'{name}={cost:g}' for name, cost in USUAL_COSTS.items())}."
# Panels of settings that are not about the method, and placeholders of values by their type.
PANELS = {"missing": DATA, "partition": DATA, "averaging": NETWORK, "weights": NETWORK, "privacy": NETWORK}
PANELS |= {name: STREAM for name in A_STREAM if name not in ONE_FIT}
METAVARS: dict[type, str] = {str: "NAME", int: "N", float: "NUMBER", Path: "FOLDER"}
# Settings of a request whose options are not simply their values: a command writes these out.
READ_BY_HAND = {"n_components", "solver", "scale", "random_state", "costs"}
STARTED_BY_NAME = [kind for kind in TRANSPORTS.values() if kind.starts_by_name]


def option(panel: str | None, metavar: str | None, text: str, *names: str, **more: Any) -> Any:
    """An option in a panel of the help, called like its parameter unless there are ``names``.

    ``metavar`` is the placeholder of its value in the help; a flag has none.
    """
    return typer.Option(*names, metavar=metavar or "", help=text, rich_help_panel=panel, **more)


def option_for(name: str) -> Any:
    """The option for a setting of the table, with its type, its place and its words."""
    row = SETTINGS[name]
    first = row.allowed[0]
    text, default = row.brief or row.text.replace("``", ""), row.default_at("command")
    if first.known:
        text = row.brief or f"{default} (default), {', '.join(known for known in first.known if known != default)}."
    # The words have the default of a name.
    shows = {"show_default": False} if first.known else {}
    return option(PANELS.get(name, METHOD), METAVARS.get(first.python), text, row.command, **shows)


def takes(rows: Mapping[str, Setting], optional: bool = False) -> Callable[[Read], Read]:
    """Give a group of options one more for each of these settings; its function gets their values by name.

    ``optional`` ones are None where they are not given.
    """

    def completed(read: Read) -> Read:
        own = list(inspect.signature(read, eval_str=True).parameters.values())[:-1]
        for name, row in rows.items():
            kind: Any = row.allowed[0].python
            default = None if optional else row.default_at("command")
            # Type checkers cannot read a type that is computed.
            typed = Annotated.__class_getitem__((kind if default is not None else kind | None, option_for(name)))  # type: ignore[attr-defined]
            own.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=typed))
        read.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        return read

    return completed


def argument(metavar: str, text: str) -> Any:
    """A positional argument of a command."""
    return typer.Argument(metavar=metavar, show_default=False, help=text)


FILE_KINDS = f"{', '.join(READERS)}; .gz of a text file"
SOURCES_HELP = (
    f"One file ({FILE_KINDS}) whose rows are split over the nodes; several files or a pattern, one node per file; or a "
    "data set: digits, mnist, cifar10, hapmap3, synthetic:kind=paper,d=20,k=5,n=10000. With --stream also folders."
)
SPLIT_HELP = "random (default), contiguous, label, dirichlet:0.1 (by label, skewed), sizes:10,20,30."
BINOMIAL_HELP = "For genotypes: divide by sqrt(2p(1-p)), and missing entries are 2p."
NODES_HELP = "One per file or label by default, else 10."
TOPOLOGY_HELP = f"{', '.join(TOPOLOGIES)}; or a file of links, two names per line."
NETWORKS_HELP = "erdos_renyi (default), cycle, ... (see eigenmesh graph --help), or a file of links."
TRANSPORT_HELP = (
    "Real messages, each node with only its own data: "
    f"{', '.join(f'{kind.description} ({kind.name})' for kind in STARTED_BY_NAME)}."
)
COMPONENTS_HELP = "How many (5 by default), or the share of the variance, such as 0.9."
SOLVER_HELP = f"auto (default), {', '.join(SOLVERS)}; with settings: fast-pca:step_size=0.1."
CONDITIONS_HELP = (
    "Latency, bandwidth, loss, speeds, outages, kills; eigenmesh site rehearse --example prints such a file."
)

SiteFile = Annotated[Path, argument("SITE.toml", "Settings of the site, as eigenmesh site init writes them.")]
Sources = Annotated[list[str], argument("DATA", SOURCES_HELP)]
Missing = Annotated[str, option_for("missing")]
Scale = Annotated[bool, option(DATA, None, "Divide each column by its pooled standard deviation.", "--scale")]
Partition = Annotated[str, option_for("partition")]
AveragingName = Annotated[str, option_for("averaging")]
TransportName = Annotated[str | None, option(NETWORK, "NAME", TRANSPORT_HELP, "--transport")]
ConditionsPath = Annotated[Path | None, option(NETWORK, "FILE.toml", CONDITIONS_HELP, "--conditions")]
ComponentCount = Annotated[int | None, option(METHOD, "K", "Number (5 by default).", "--components", "-k", min=1)]
Tol = Annotated[float, option_for("tol")]
MaxRounds = Annotated[int, option_for("max_rounds")]
Seed = Annotated[int, option(METHOD, "N", "Seed of split, graph and start.", min=0)]
DrawnSeed = Annotated[int | None, option(METHOD, "N", "Of split, graph and start, which is random by default.", min=0)]
MODEL_HELP = "Write the model for eigenmesh transform; a name without a suffix gets .eigenmesh.npz."
ArraysFile = Annotated[
    Path | None,
    option(OUTPUT, "FILE.npz", MODEL_HELP, "--out", callback=lambda path: None if path is None else model_file(path)),
]
NumbersFile = Annotated[
    str | None, option(OUTPUT, "FILE|-", "Write certificate, cost and settings; - to print.", "--json")
]
PictureFile = Annotated[Path | None, option(OUTPUT, "FILE", "Draw a picture: .png, .svg, .pdf.", "--plot")]
ResultFile = Annotated[Path | None, option(OUTPUT, "FILE", "Draw scree, scores and loadings.", "--plot")]
NetworkFile = Annotated[Path | None, option(OUTPUT, "FILE", "Draw network and convergence.", "--plot-network")]
EventsFile = Annotated[Path | None, option(OUTPUT, "FILE.jsonl", "Write all events; watch shows them.", "--events")]
ReportFile = Annotated[Path | None, option(OUTPUT, "FILE.html", "Write a page that shows the whole run.", "--report")]
AsJson = Annotated[bool, option(OUTPUT, None, "Print the results as JSON instead.", "--json")]
Quiet = Annotated[bool, option(OUTPUT, None, "Print only warnings and errors.", "--quiet", "-q")]


def read_costs(text: str | None) -> Costs:
    """The costs that --costs names, converted to the units of the library, and the usual ones for the rest."""
    given = {}
    for part in text.split(",") if text is not None else ():
        typed, _, number = part.partition("=")
        name = canonical_name("cost", typed.strip(), COSTS)
        field, units = COSTS[name]
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not value >= 0 or (value == 0 and name != "latency_ms"):
            bound = "0 or more" if name == "latency_ms" else "above 0"
            raise InputError(f"--costs {part.strip()} must be a number {bound}, such as {name}={USUAL_COSTS[name]:g}.")
        given[field] = value / units
    return replace(Costs(), **given)


def parse_components(text: str | None) -> int | float | None:
    """K as a whole number, or as a share of the variance strictly between 0 and 1; None stays None."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number >= 1 and number.is_integer() and "." not in text:
        return int(number)
    if not 0 < number < 1:
        raise InputError(f"--components {text} must be a whole number of at least 1, or a share between 0 and 1.")
    return number


def parse_solver(text: str) -> Solver | str:
    """The solver of --solver, with its settings; "auto" for the choice of the planner."""
    canonical_name("solver", re.split("[:,]", text)[0], ["auto", *SOLVERS])
    if find_name(text, ["auto"]) is not None:
        return "auto"
    solvers = parse_solvers(text)
    if len(solvers) > 1:
        raise InputError(f"--solver {text} names {len(solvers)} solvers; give one.")
    return solvers[0]


def parse_solvers(text: str, kinds: Mapping[str, Any] = SOLVERS) -> list[Solver]:
    """Solvers from ``name:field=value,field=value,name``: a part without a colon or an equals sign is a new name."""
    parts: list[tuple[str, dict[str, Any]]] = []
    for part in (piece.strip() for piece in text.split(",")):
        name, colon, setting = part.partition(":")
        if not colon and "=" in part:
            name, setting = "", part
        if name or not (setting and parts):
            parts.append((canonical_name("solver", name or part, kinds), {}))
        if setting or colon:
            name, settings = parts[-1]
            key, value = _setting(name, setting, kinds)
            settings[key] = value
    solvers = [kinds[name](**settings) for name, settings in parts]
    if len(set(solvers)) < len(solvers):
        raise InputError(f"--solvers {text} names a solver twice with the same settings; leave one out.")
    return solvers


def _setting(name: str, text: str, kinds: Mapping[str, Any]) -> tuple[str, Any]:
    key, equals, value = (piece.strip() for piece in text.partition("="))
    if not equals or not value:
        raise InputError(f"settings of a solver are written {name}:field=value; got {text!r}.")
    key = canonical_name(f"setting of {name}", key, [known.name for known in fields(kinds[name])])
    if value.lower() in ("auto", "none"):
        return key, "auto" if value.lower() == "auto" else None
    for kind in (int, float):
        with suppress(ValueError):
            return key, kind(value)
    raise InputError(f"{key} of {name} must be a number, or auto where the solver allows it; got {value!r}.")


# Groups of options: a command has one parameter for each, and the function below gives its value.


# What --table says, by the names of Python and of a site.toml, each with an example: what columns are for, how text is
# written, and which part of a file is meant.
TABLE_KINDS = {
    "Columns": {
        "columns": "age,bmi",
        "drop": "address,3",
        "id_column": "patient",
        "label_column": "site",
        "weight_column": "count",
        "categories.sex": "f,m",
    },
    "Text": {
        "na_values": "-999,unknown",
        "header": "no",
        "skip_rows": "2",
        "comment": "#",
        "delimiter": "tab",
        "decimal": ",",
        "thousands": "space",
        "encoding": "latin-1",
    },
    "Part of a file": {"sheet": "visits", "layer": "counts"},
}
TABLE = {name: example for kind in TABLE_KINDS.values() for name, example in kind.items()}
TABLE_HELP = "How to read files, if it is not as detected; can be repeated. " + " ".join(
    f"{kind}: {'; '.join(map('='.join, examples.items()))}." for kind, examples in TABLE_KINDS.items()
)
# Values that are several words, and those of signs that are hard to write in a shell.
IN_WORDS = ("columns", "drop", "categories", "na_values")
SIGNS = {"tab": "\t", r"\t": "\t", "space": " "}


def read_table_options(
    table: Annotated[list[str] | None, option(DATA, "NAME=VALUE", TABLE_HELP)] = None,
) -> TableOptions:
    """How tables are read."""
    written: dict[str, Any] = {"categories": {}}
    for typed in table or ():
        typed_name, equals, text = typed.partition("=")
        stem, dot, column = typed_name.strip().partition(".")
        known = canonical_name("property of tables", stem, [name.partition(".")[0] for name in TABLE])
        words = [word.strip() for word in text.split(",") if word.strip()]
        if not equals or not (words if known in IN_WORDS else text) or bool(dot) != (known == "categories"):
            example = next(f"{name}={text}" for name, text in TABLE.items() if name.partition(".")[0] == known)
            raise InputError(f"--table {typed} must be a name and its value, such as --table {example}.")
        if known == "categories":
            written[known][column] = words
        elif known in IN_WORDS:
            written.setdefault(known, []).extend(words if known == "na_values" else map(_column, words))
        elif known.endswith("_column") or known in ("sheet", "skip_rows"):
            written[known] = _column(text)
        else:
            written[known] = SIGNS.get(text, text) if known in ("delimiter", "thousands") else text
    return TableOptions.of(**written)


def _column(text: str) -> str | int:
    """A column by its name, or by its number from 0."""
    return int(text) if text.isdecimal() else text


def read_where(
    split: Annotated[str | None, option(DATA, "NAME", SPLIT_HELP)] = None,
    nodes: Annotated[int | None, option(NETWORK, "M", NODES_HELP, min=1)] = None,
    topology: Annotated[str, option(NETWORK, "NAME|FILE", NETWORKS_HELP, show_default=False)] = "erdos_renyi",
    weights: Annotated[str, option_for("weights")] = "auto",
) -> dict[str, Any]:
    """How samples are spread over the nodes of a network: parameters of ``Spread``."""
    return {"topology": topology, "n_nodes": nodes, "weights": weights, "split": split}


@takes({name: row for name, row in SETTINGS.items() if name in OF_REQUESTS - READ_BY_HAND and row.command})
def read_method(
    components: Annotated[str | None, option(METHOD, "K", COMPONENTS_HELP, "--components", "-k")] = None,
    solver: Annotated[str, option(METHOD, "NAME", SOLVER_HELP, "--solver", show_default=False)] = "auto",
    scale: Scale = False,
    binomial: Annotated[bool, option(DATA, None, BINOMIAL_HELP, "--binomial")] = False,
    costs: Annotated[str | None, option(METHOD, "A=1,B=2,..", COSTS_HELP, "--costs")] = None,
    **settings: Any,
) -> dict[str, Any]:
    """What is asked of a fit: settings of a request, but for its seed."""
    wanted = parse_components(components)
    return {
        **settings,
        "n_components": wanted or DEFAULT_COMPONENTS,
        "at_most": wanted is None,
        "solver": parse_solver(solver),
        "scale": "binomial" if binomial else scale,
        "costs": read_costs(costs),
    }


STREAM_HELP = "Batch by batch: the files of a folder (several: one per node), or runs of rows."


# The parameters of StreamingPCA that have an option.
@takes({name: row for name, row in A_STREAM.items() if name not in ONE_FIT and row.command}, optional=True)
def read_stream(
    stream: Annotated[bool, option(STREAM, None, STREAM_HELP, "--stream")] = False,
    batch_rows: Annotated[int | None, option(STREAM, "N", "Rows per batch of a file; 1,000 by default.", min=1)] = None,
    **settings: Any,
) -> dict[str, Any] | None:
    """The rows per batch, and the given parameters of ``StreamingPCA``; None for no stream."""
    given = {name: value for name, value in settings.items() if value is not None}
    if stream:
        return {"batch_rows": batch_rows, **given}
    for name in given if batch_rows is None else ["batch_rows"]:
        raise InputError(f"--{name.replace('_', '-')} needs --stream; add --stream, or leave it out.")
    return None


def read_view(
    plot_components: Annotated[str | None, option(OUTPUT, "A,B", "Of the scores; 1,2 by default.")] = None,
    plot_ellipses: Annotated[
        bool, option(OUTPUT, None, "Draw an ellipse around each group.", "--plot-ellipses")
    ] = False,
) -> View:
    """What a picture of scores shows."""
    if plot_components is None:
        return View(ellipses=plot_ellipses)
    numbers = [part.strip() for part in plot_components.split(",")]
    if len(set(numbers)) != 2 or len(numbers) != 2 or not all(one.isdecimal() and int(one) for one in numbers):
        raise InputError(f"--plot-components {plot_components} must be two different numbers from 1 on, such as 1,3.")
    return View((int(numbers[0]), int(numbers[1])), plot_ellipses)


Table = Annotated[TableOptions, read_table_options]
Where = Annotated[dict[str, Any], read_where]
Method = Annotated[dict[str, Any], read_method]
Stream = Annotated[dict[str, Any] | None, read_stream]
PictureView = Annotated[View, read_view]
