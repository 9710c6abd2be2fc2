"""Options with their help texts, one type alias each, shared between commands."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from eigenmesh.data import READERS, TableOptions
from eigenmesh.errors import InputError
from eigenmesh.fitting import Costs
from eigenmesh.graphs import TOPOLOGIES, WEIGHTS
from eigenmesh.settings import A_STREAM, OF_REQUESTS, ONE_FIT, SETTINGS, Names
from eigenmesh.solvers import SOLVERS
from eigenmesh.transports import TRANSPORTS
from eigenmesh.words import canonical_name

DATA, STREAM, NETWORK, METHOD = "Data", "Stream", "Network", "Method"
OUTPUT = "Output"
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
PANELS = {"missing": DATA, "averaging": NETWORK, "privacy": NETWORK}
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
    if isinstance(first, Names):
        text = row.brief or f"{default} (default), {', '.join(known for known in first.known if known != default)}."
    # The words have the default of a name.
    shows = {"show_default": False} if isinstance(first, Names) else {}
    return option(PANELS.get(name, METHOD), METAVARS.get(first.python), text, row.command, **shows)


def annotated(name: str, optional: bool = False) -> Any:
    """The type of the option for a setting, with the option; ``optional`` ones may be None."""
    row = SETTINGS[name]
    kind: Any = row.allowed[0].python
    kind = kind | None if optional or row.default is None else kind
    # Type checkers cannot read a type that is computed.
    return Annotated.__class_getitem__((kind, option_for(name)))  # type: ignore[attr-defined]


def takes_options(
    place: str, options: Mapping[str, Any], read: Callable[..., Any], defaults: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace one parameter of a command by several options, whose values ``read`` converts into the parameter.

    Options are None by default, but for those with ``defaults``.
    """

    def expanded(command: Callable[..., None]) -> Callable[..., None]:
        given = inspect.signature(command, eval_str=True).parameters.values()
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        added = [
            inspect.Parameter(name, kind, default=(defaults or {}).get(name), annotation=annotation)
            for name, annotation in options.items()
        ]
        parameters = [new for one in given for new in (added if one.name == place else [one])]

        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            command(**{place: read(**{name: values.pop(name) for name in options})}, **values)

        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {one.name: one.annotation for one in parameters}
        return with_options

    return expanded


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``settings`` of a command by an option for every setting whose option is its value.

    The command gets their values by name.
    """
    rows = {name: row for name, row in SETTINGS.items() if name in OF_REQUESTS - READ_BY_HAND and row.command}
    defaults = {name: row.default_at("command") for name, row in rows.items()}
    return takes_options("settings", {name: annotated(name) for name in rows}, dict, defaults)(command)


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
PARTITION_HELP = "What the nodes split: samples (default), or features (columns of the same samples)."
NODES_HELP = "One per file or label by default, else 10."
TOPOLOGY_HELP = f"{', '.join(TOPOLOGIES)}; or a file of links, two names per line."
NETWORKS_HELP = "erdos_renyi (default), cycle, ... (see eigenmesh graph --help), or a file of links."
TRANSPORT_HELP = (
    "Real messages, each node with only its own data: "
    f"{', '.join(f'{kind.description} ({kind.name})' for kind in STARTED_BY_NAME)}."
)
WEIGHTS_HELP = f"auto (default), {', '.join(WEIGHTS)}."
COMPONENTS_HELP = "How many (5 by default), or the share of the variance, such as 0.9."
SOLVER_HELP = f"auto (default), {', '.join(SOLVERS)}; with settings: fast-pca:step_size=0.1."
CONDITIONS_HELP = (
    "Latency, bandwidth, loss, speeds, outages, kills; eigenmesh site rehearse --example prints such a file."
)

SiteFile = Annotated[Path, argument("SITE.toml", "Settings of the site, as eigenmesh site init writes them.")]
Sources = Annotated[list[str], argument("DATA", SOURCES_HELP)]
SplitName = Annotated[str | None, option(DATA, "NAME", SPLIT_HELP)]
Missing = Annotated[str, option_for("missing")]
Scale = Annotated[bool, option(DATA, None, "Divide each column by its pooled standard deviation.", "--scale")]
Binomial = Annotated[bool, option(DATA, None, BINOMIAL_HELP, "--binomial")]
Partition = Annotated[str, option(DATA, "NAME", PARTITION_HELP, show_default=False)]
Nodes = Annotated[int | None, option(NETWORK, "M", NODES_HELP, min=1)]
Topology = Annotated[str, option(NETWORK, "NAME|FILE", NETWORKS_HELP, show_default=False)]
WeightsName = Annotated[str, option(NETWORK, "NAME", WEIGHTS_HELP, "--weights", show_default=False)]
AveragingName = Annotated[str, option_for("averaging")]
TransportName = Annotated[str | None, option(NETWORK, "NAME", TRANSPORT_HELP, "--transport")]
ConditionsPath = Annotated[Path | None, option(NETWORK, "FILE.toml", CONDITIONS_HELP, "--conditions")]
Components = Annotated[str | None, option(METHOD, "K", COMPONENTS_HELP, "--components", "-k")]
ComponentCount = Annotated[int | None, option(METHOD, "K", "Number (5 by default).", "--components", "-k", min=1)]
SolverName = Annotated[str, option(METHOD, "NAME", SOLVER_HELP, "--solver", show_default=False)]
Tol = Annotated[float, option_for("tol")]
MaxRounds = Annotated[int, option_for("max_rounds")]
CovarianceName = Annotated[str, option_for("covariance")]
Seed = Annotated[int, option(METHOD, "N", "Seed of split, graph and start.", min=0)]
DrawnSeed = Annotated[int | None, option(METHOD, "N", "Of split, graph and start, which is random by default.", min=0)]
CostsText = Annotated[str | None, option(METHOD, "A=1,B=2,..", COSTS_HELP, "--costs")]
ArraysFile = Annotated[Path | None, option(OUTPUT, "FILE.npz", "Write components, variances, mean and more.", "--out")]
NumbersFile = Annotated[
    str | None, option(OUTPUT, "FILE|-", "Write certificate, cost and settings; - to print.", "--json")
]
PictureFile = Annotated[Path | None, option(OUTPUT, "FILE", "Draw a picture, .png, .svg or .pdf.", "--plot")]
EventsFile = Annotated[Path | None, option(OUTPUT, "FILE.jsonl", "Write all events, one per line.", "--events")]
ReportFile = Annotated[Path | None, option(OUTPUT, "FILE.html", "Write a page that shows the whole run.", "--report")]
Live = Annotated[bool, option(OUTPUT, None, "Serve a page that shows the run live.", "--live")]
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


# Of text files, each with an example.
TEXT = {"header": "no", "delimiter": "tab", "decimal": ",", "encoding": "latin-1"}
TEXT_HELP = f"How to read text: {', '.join(map('='.join, TEXT.items()))}. Can be repeated."
Text = str | None
# Parameters of a command, in the order of its help.
TABLE_OPTIONS: dict[str, Any] = {
    "columns": Annotated[Text, option(DATA, "A,B,..", "Use only these columns: names, or numbers from 0.")],
    "drop": Annotated[Text, option(DATA, "A,B,..", "Leave these columns out.")],
    "id_column": Annotated[Text, option(DATA, "NAME", "Names of the samples, copied to the scores.")],
    "label_column": Annotated[Text, option(DATA, "NAME", "Labels of the samples.")],
    "weight_column": Annotated[Text, option(DATA, "NAME", "How many samples a row stands for.")],
    "category": Annotated[
        list[str] | None, option(DATA, "NAME=A,B,..", "Levels that become columns of 0 and 1. Can be repeated.")
    ],
    "text": Annotated[list[str] | None, option(DATA, "NAME=VALUE", TEXT_HELP)],
    "layer": Annotated[Text, option(DATA, "NAME", "Of a .h5 or .h5ad file; X by default.")],
}


def takes_table(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``table`` of a command by all options of tables; it gets a TableOptions."""
    return takes_options("table", TABLE_OPTIONS, _read_table)(command)


def _read_table(
    *,
    columns: str | None,
    drop: str | None,
    category: Sequence[str] | None,
    text: Sequence[str] | None,
    layer: str | None,
    **special: str | None,
) -> TableOptions:
    """The typed texts as TableOptions."""
    lists = {
        name: None if typed is None else list(map(_column, _words(typed) or [""]))
        for name, typed in (("columns", columns), ("drop", drop))
    }
    named = {name: _column(typed) for name, typed in special.items() if typed is not None}
    written = dict(map(_text, text or ()))
    return TableOptions.of(**lists, **named, **written, layer=layer, categories=dict(map(_category, category or ())))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _column(text: str) -> str | int:
    """A column by its name, or by its number from 0."""
    return int(text) if text.isdecimal() else text


def _text(typed: str) -> tuple[str, str]:
    """A property of text files and its value."""
    name, equals, value = typed.partition("=")
    name = canonical_name("property of text", name.strip(), TEXT)
    if not equals or not value:
        raise InputError(f"--text {typed} must be a property and its value, such as --text {name}={TEXT[name]}.")
    return name, "\t" if (name, value) in (("delimiter", "tab"), ("delimiter", r"\t")) else value


def _category(text: str) -> tuple[str, list[str]]:
    name, equals, levels = text.partition("=")
    if not equals or not _words(levels):
        raise InputError(f"--category {text} must be a column and its levels, such as --category sex=f,m.")
    return name.strip(), _words(levels)


STREAM_HELP = "Batch by batch: the files of a folder (several: one per node), or runs of rows."
STREAM_OPTIONS: dict[str, Any] = {
    "stream": Annotated[bool | None, option(STREAM, None, STREAM_HELP, "--stream")],
    "batch_rows": Annotated[int | None, option(STREAM, "N", "Rows per batch of a file; 1,000 by default.", min=1)],
    # The parameters of StreamingPCA that have an option; None where it was not given.
    **{name: annotated(name, optional=True) for name, row in A_STREAM.items() if name not in ONE_FIT and row.command},
}


class StreamOptions(NamedTuple):
    """Options of a stream.

    Attributes
    ----------
    batch_rows : int or None
        Rows of a file per batch; None for the default.
    of_the_estimator : dict
        The given options that are parameters of ``StreamingPCA``, under the same names.
    """

    batch_rows: int | None
    of_the_estimator: dict[str, Any]


def takes_stream(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``batches`` of a command by these options; it gets StreamOptions, or None for no stream."""
    return takes_options("batches", STREAM_OPTIONS, _read_stream)(command)


def _read_stream(*, stream: bool | None, batch_rows: int | None, **settings: Any) -> StreamOptions | None:
    given = {name: value for name, value in settings.items() if value is not None}
    if stream:
        return StreamOptions(batch_rows, given)
    for name in given if batch_rows is None else ["batch_rows"]:
        raise InputError(f"--{name.replace('_', '-')} needs --stream; add --stream, or leave it out.")
    return None
