"""Options with their help texts, one type alias each, shared between commands."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenmesh.averaging import AVERAGINGS
from eigenmesh.data import CovarianceKind, TableOptions
from eigenmesh.data._files import READERS
from eigenmesh.errors import InputError
from eigenmesh.fitting import Costs
from eigenmesh.graphs import TOPOLOGIES, WEIGHTS
from eigenmesh.solvers import SOLVERS
from eigenmesh.transports import TRANSPORTS

DATA, STREAM, NETWORK, METHOD = "Data", "Stream", "Network", "Method"
COSTS, OUTPUT = "What things cost", "Output"
STARTED_BY_NAME = [kind for kind in TRANSPORTS.values() if kind.starts_by_name]


def option(panel: str | None, metavar: str | None, text: str, *names: str, **more: Any) -> Any:
    """An option in a panel of the help, called like its parameter unless there are ``names``.

    ``metavar`` is the placeholder of its value in the help; a flag has none.
    """
    return typer.Option(*names, metavar=metavar or "", help=text, rich_help_panel=panel, **more)


def takes_options(
    place: str, options: Mapping[str, Any], read: Callable[..., Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace one parameter of a command by several options, whose values ``read`` converts into the parameter.

    All options are None by default.
    """

    def expanded(command: Callable[..., None]) -> Callable[..., None]:
        given = inspect.signature(command, eval_str=True).parameters.values()
        added = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)
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


def argument(metavar: str, text: str) -> Any:
    """A positional argument of a command."""
    return typer.Argument(metavar=metavar, show_default=False, help=text)


FILE_KINDS = f"{', '.join(READERS)}; .gz of a text file"
SOURCES_HELP = (
    f"One file ({FILE_KINDS}), its rows split over the nodes; several files or a pattern "
    "(site-*.csv), one node per file (site-{rank}.npy if every node is a process); or a data set: "
    "digits, mnist, cifar10, hapmap3, synthetic:kind=paper,d=20,k=5,gap=0.8,n=100000. With --stream also folders."
)
SPLIT_HELP = (
    "How rows are split: random (default), contiguous, label, dirichlet:0.1 (by label, skewed), sizes:10,20,30."
)
BINOMIAL_HELP = "Genotypes: divide by sqrt(2p(1-p)), p pooled; missing entries are 2p; monomorphic variants left out."
PARTITION_HELP = (
    "What is split over the nodes: samples of the same columns, or columns of the same samples in the same order; "
    "files with --id-column are compared by their ids."
)
NODES_HELP = "Number of nodes; by default one per file, one per label with --split label, else 10."
TOPOLOGY_HELP = f"{', '.join(TOPOLOGIES)}; or a file of links, two names per line."
TRANSPORT_HELP = (
    "Real messages instead of a simulation. Each node reads only its own data and is "
    f"{', '.join(f'{kind.description} ({kind.name})' for kind in STARTED_BY_NAME)}. See also eigenmesh launch."
)
PRIVACY_HELP = "masked: only sums over all nodes are revealed; open: neighbours see the numbers that they sum."
AVERAGING_HELP = f"How exact averages are computed: auto, {', '.join(AVERAGINGS)}."
COMPONENTS_HELP = "Number of components (5 by default), or the share of the variance to explain, such as 0.9."
COVARIANCE_HELP = f"How covariances are stored: auto, {', '.join(CovarianceKind)}."
CONDITIONS_HELP = (
    "Latency, bandwidth, loss, speeds, outages, kills; eigenmesh site rehearse --example prints such a file."
)
TRANSPORT_NAMES = "|".join(kind.name for kind in STARTED_BY_NAME)

SiteFile = Annotated[Path, argument("SITE.toml", "Settings of the site, as eigenmesh site init writes them.")]
Sources = Annotated[list[str], argument("DATA", SOURCES_HELP)]
SplitName = Annotated[str | None, option(DATA, "NAME", SPLIT_HELP)]
ByLabel = Annotated[bool, option(DATA, None, "The same as --split label.", "--by-label")]
Missing = Annotated[str, option(DATA, "error|mean", "Empty and infinite entries: an error, or set to the pooled mean.")]
Scale = Annotated[bool, option(DATA, None, "Divide each column by its pooled standard deviation.", "--scale")]
Binomial = Annotated[bool, option(DATA, None, BINOMIAL_HELP, "--binomial")]
Partition = Annotated[str, option(DATA, "samples|features", PARTITION_HELP)]
Nodes = Annotated[int | None, option(NETWORK, "M", NODES_HELP, min=1)]
Topology = Annotated[str, option(NETWORK, "NAME|FILE", TOPOLOGY_HELP)]
WeightsName = Annotated[str, option(NETWORK, "NAME", f"auto, {', '.join(WEIGHTS)}.", "--weights")]
PrivacyName = Annotated[str, option(NETWORK, "NAME", PRIVACY_HELP, "--privacy")]
AveragingName = Annotated[str, option(NETWORK, "NAME", AVERAGING_HELP, "--averaging")]
TransportName = Annotated[str | None, option(NETWORK, TRANSPORT_NAMES, TRANSPORT_HELP, "--transport")]
ConditionsPath = Annotated[Path | None, option(NETWORK, "FILE.toml", CONDITIONS_HELP, "--conditions")]
Device = Annotated[str | None, option(METHOD, "NAME", "NumPy if left out; cpu, cuda, cuda:1 for PyTorch.")]
Components = Annotated[str | None, option(METHOD, "K", COMPONENTS_HELP, "--components", "-k")]
ComponentCount = Annotated[int | None, option(METHOD, "K", "Number (5 by default).", "--components", "-k", min=1)]
SolverName = Annotated[str, option(METHOD, "NAME", f"auto, {', '.join(SOLVERS)}.", "--solver")]
StepSize = Annotated[str, option(METHOD, "FLOAT|auto", "Step size, for solvers that have one.")]
Tol = Annotated[float, option(METHOD, "SINE", "Bound on the sine of angles to the true components.")]
MaxRounds = Annotated[int, option(METHOD, "N", "Budget of neighbour exchanges.", min=1)]
CovarianceName = Annotated[str, option(METHOD, "NAME", COVARIANCE_HELP, "--covariance")]
Seed = Annotated[int, option(METHOD, "N", "Seed of split, graph and start.", min=0)]
DrawnSeed = Annotated[
    int | None, option(METHOD, "N", "Seed of split, graph and start; by default the start is random.", min=0)
]
Latency = Annotated[float, option(COSTS, "MS", "Time of one round between neighbours.", "--latency-ms")]
Bandwidth = Annotated[float, option(COSTS, "MBIT/S", "Sending speed of a node.", "--bandwidth-mbit")]
Gigaflops = Annotated[float, option(COSTS, "GFLOP/S", "Arithmetic speed of a node.", "--gflops")]
Memory = Annotated[float, option(COSTS, "GB", "Memory of a node, in addition to its data.", "--memory-gb")]
ArraysFile = Annotated[Path | None, option(OUTPUT, "FILE.npz", "Write components, variances, mean and more.", "--out")]
NumbersFile = Annotated[
    str | None, option(OUTPUT, "FILE|-", "Write certificate, cost and settings; - for standard output.", "--json")
]
PictureFile = Annotated[Path | None, option(OUTPUT, "FILE", "Draw a picture, .png, .svg or .pdf.", "--plot")]
EventsFile = Annotated[Path | None, option(OUTPUT, "FILE.jsonl", "Write all events, one per line.", "--events")]
ReportFile = Annotated[
    Path | None, option(OUTPUT, "FILE.html", "Write a page that shows the whole run, in one file.", "--report")
]
Live = Annotated[bool, option(OUTPUT, None, "Serve a page on this machine that shows the run live.", "--live")]
AsJson = Annotated[bool, option(OUTPUT, None, "Print the results as JSON instead.", "--json")]
Quiet = Annotated[bool, option(OUTPUT, None, "Print only warnings and errors.", "--quiet", "-q")]

USUAL = Costs()
LATENCY_MS, BANDWIDTH_MBIT = USUAL.latency_s * 1e3, USUAL.bandwidth_bytes_s * 8 / 1e6
GFLOPS, MEMORY_GB = USUAL.flops_s / 1e9, USUAL.memory_bytes / 1e9


def read_costs(latency_ms: float, bandwidth_mbit: float, gflops: float, memory_gb: float) -> Costs:
    """The costs, converted to the units of the library; errors name the option and its value as it was typed."""
    if not latency_ms >= 0:
        raise InputError(f"--latency-ms {latency_ms:g} must be 0 or more.")
    given = {"--bandwidth-mbit": bandwidth_mbit, "--gflops": gflops, "--memory-gb": memory_gb}
    for name, value in given.items():
        if not value > 0:
            raise InputError(f"{name} {value:g} must be above 0.")
    return Costs(latency_ms / 1e3, bandwidth_mbit * 1e6 / 8, gflops * 1e9, memory_gb * 1e9)


LIST = "names, or numbers from 0, separated by commas"
Text = str | None
# Parameters of a command, in the order of its help.
TABLE_OPTIONS: dict[str, Any] = {
    "columns": Annotated[Text, option(DATA, "A,B,..", f"Use these columns, in this order: {LIST}.")],
    "drop": Annotated[Text, option(DATA, "A,B,..", f"Leave these columns out: {LIST}.")],
    "id_column": Annotated[
        Text, option(DATA, "NAME", "Column with the names of the samples; it is copied to the scores.")
    ],
    "label_column": Annotated[Text, option(DATA, "NAME", "Column of labels: its name, or its number from 0.")],
    "weight_column": Annotated[
        Text, option(DATA, "NAME", "Column of sample weights: how many samples a row stands for; 1 by default.")
    ],
    "category": Annotated[
        list[str] | None,
        option(
            DATA, "NAME=A,B,..", "A column of categories and its levels, one column of 0 and 1 each. Can be repeated."
        ),
    ],
    "header": Annotated[
        Text, option(DATA, "auto|yes|no", "Whether the first line has names; by default if a field is not a number.")
    ],
    "delimiter": Annotated[Text, option(DATA, "SIGN", "Separator of fields; detected by default. tab for a tab.")],
    "decimal": Annotated[Text, option(DATA, ".|,", "Decimal mark; detected by default.")],
    "layer": Annotated[Text, option(DATA, "NAME", "Dataset of a .h5 file, or layer of a .h5ad file; X by default.")],
    "encoding": Annotated[Text, option(DATA, "NAME", "Encoding of text files, such as latin-1; UTF-8 by default.")],
}


def takes_table(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``table`` of a command by all options of tables; it gets a TableOptions."""
    return takes_options("table", TABLE_OPTIONS, _read_table)(command)


def _read_table(
    *, columns: str | None, drop: str | None, category: Sequence[str] | None, delimiter: str | None, **texts: str | None
) -> TableOptions:
    """The typed texts as TableOptions."""
    lists = {
        name: None if text is None else list(map(_column, _words(text) or [""]))
        for name, text in (("columns", columns), ("drop", drop))
    }
    special = {name: _column(text) for name, text in texts.items() if text is not None and name.endswith("_column")}
    plain = {name: text for name, text in texts.items() if not name.endswith("_column")}
    sign = "\t" if delimiter in ("tab", r"\t") else delimiter
    return TableOptions.of(**lists, **special, **plain, delimiter=sign, categories=dict(map(_category, category or ())))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _column(text: str) -> str | int:
    """A column by its name, or by its number from 0."""
    return int(text) if text.isdecimal() else text


def _category(text: str) -> tuple[str, list[str]]:
    name, equals, levels = text.partition("=")
    if not equals or not _words(levels):
        raise InputError(f"--category {text} must be a column and its levels, such as --category sex=f,m.")
    return name.strip(), _words(levels)


STREAM_HELP = (
    "Read the data batch by batch: the files of a folder in the order of their names (several folders: one per node), "
    "or runs of rows of a file. After each batch the components are those of all samples so far."
)
STREAM_OPTIONS: dict[str, Any] = {
    "stream": Annotated[bool | None, option(STREAM, None, STREAM_HELP, "--stream")],
    "batch_rows": Annotated[int | None, option(STREAM, "N", "Rows of a file per batch; 1,000 by default.", min=1)],
    "averages_per_batch": Annotated[
        int | None, option(STREAM, "N", "Budget, at least 2; by default as many as --tol needs.", min=2)
    ],
    "forgetting": Annotated[
        float | None, option(STREAM, "SHARE", "Factor on the weight of a sample per later batch; 1 by default.")
    ],
    "window": Annotated[int | None, option(STREAM, "N", "Only the last N batches count.", min=1)],
    "store": Annotated[
        Path | None, option(STREAM, "FOLDER", "Keep rows in files there instead of d x d moments in memory.")
    ],
}


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream; None where an option was not given."""

    batch_rows: int | None
    averages_per_batch: int | None
    forgetting: float | None
    window: int | None
    store: Path | None

    @property
    def of_the_estimator(self) -> dict[str, Any]:
        """The given options that are parameters of ``StreamingPCA``, under the same names."""
        asked = {name: value for name, value in vars(self).items() if value is not None}
        return {name: value for name, value in asked.items() if name != "batch_rows"}


def takes_stream(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``batches`` of a command by these options; it gets StreamOptions, or None for no stream."""
    return takes_options("batches", STREAM_OPTIONS, _read_stream)(command)


def _read_stream(*, stream: bool | None, **values: Any) -> StreamOptions | None:
    if stream:
        return StreamOptions(**values)
    for field in fields(StreamOptions):
        if values[field.name] is not None:
            raise InputError(f"--{field.name.replace('_', '-')} needs --stream; add --stream, or leave it out.")
    return None
