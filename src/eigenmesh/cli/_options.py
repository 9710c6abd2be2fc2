"""Options with their help texts, one type alias each, shared between commands."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenmesh.averaging import AVERAGINGS
from eigenmesh.data import CovarianceKind
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
TRANSPORT_NAMES = "|".join(kind.name for kind in STARTED_BY_NAME)

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
