"""The options that commands take, with their help: one alias each, shared where commands agree."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from eigenmesh.averaging import AVERAGINGS
from eigenmesh.data import CovarianceKind
from eigenmesh.fitting import Costs
from eigenmesh.graphs import TOPOLOGIES, WEIGHTS
from eigenmesh.solvers import SOLVERS
from eigenmesh.transports import TRANSPORTS

DATA, NETWORK, METHOD, COSTS, OUTPUT = "Data", "Network", "Method", "What things cost", "Output"
STARTED_BY_NAME = [kind for kind in TRANSPORTS.values() if kind.starts_by_name]

Sources: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA",
        show_default=False,
        help="One file (.csv, .npy, .npz, .parquet), its rows split over the nodes; several files, one node each "
        "(site-{rank}.npy names them all where every node is a process); or a data set: "
        "digits, mnist, cifar10, hapmap3, synthetic:kind=paper,d=20,k=5,gap=0.8,n=100000.",
    ),
]
LabelColumn: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Column of labels in a table: its name, or its number from 0.", rich_help_panel=DATA
    ),
]
SplitName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How one table is dealt out: random (the default), contiguous, label, dirichlet:0.1 (by label, skewed), "
        "sizes:10,20,30.",
        rich_help_panel=DATA,
    ),
]
ByLabel: TypeAlias = Annotated[
    bool, typer.Option("--by-label", help="The same as --split label.", rich_help_panel=DATA)
]
Missing: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="error|mean",
        help="Empty and infinite entries: refuse them, or put the pooled mean there.",
        rich_help_panel=DATA,
    ),
]
Scale: TypeAlias = Annotated[
    bool, typer.Option("--scale", help="Divide each column by its pooled standard deviation.", rich_help_panel=DATA)
]
Nodes: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="M",
        help="Number of nodes; by default one a file, one a label with --split label, else 10.",
        rich_help_panel=NETWORK,
    ),
]
Topology: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE",
        help=f"{', '.join(TOPOLOGIES)}; or a file of links, two names a line.",
        rich_help_panel=NETWORK,
    ),
]
WeightsName: TypeAlias = Annotated[
    str, typer.Option("--weights", metavar="NAME", help=f"{', '.join(WEIGHTS)}.", rich_help_panel=NETWORK)
]
AveragingName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--averaging",
        metavar="NAME",
        help=f"How exact averages are made: auto, {', '.join(AVERAGINGS)}.",
        rich_help_panel=NETWORK,
    ),
]
TransportName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--transport",
        metavar="|".join(kind.name for kind in STARTED_BY_NAME),
        help="Real messages instead of a simulation. Each node reads its own data alone and is "
        f"{', '.join(f'{kind.description} ({kind.name})' for kind in STARTED_BY_NAME)}. See also eigenmesh launch.",
        rich_help_panel=NETWORK,
    ),
]
Device: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Where arrays lie: NumPy if left out; cpu, cuda, cuda:1 with PyTorch.",
        rich_help_panel=METHOD,
    ),
]
Components: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--components",
        "-k",
        metavar="K",
        help="How many (5 by default), or the share of the variance to explain, such as 0.9.",
        rich_help_panel=METHOD,
    ),
]
SolverName: TypeAlias = Annotated[
    str, typer.Option("--solver", metavar="NAME", help=f"auto, {', '.join(SOLVERS)}.", rich_help_panel=METHOD)
]
StepSize: TypeAlias = Annotated[
    str, typer.Option(metavar="FLOAT|auto", help="Step of solvers that have one.", rich_help_panel=METHOD)
]
Tol: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SINE", help="Sine of the largest angle to the true components, at any node.", rich_help_panel=METHOD
    ),
]
MaxRounds: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="Budget of neighbour exchanges.", rich_help_panel=METHOD)
]
CovarianceName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--covariance",
        metavar="NAME",
        help=f"How covariances are held: auto, {', '.join(CovarianceKind)}.",
        rich_help_panel=METHOD,
    ),
]
Seed: TypeAlias = Annotated[
    int, typer.Option(min=0, metavar="N", help="Fixes split, graph and start.", rich_help_panel=METHOD)
]
Latency: TypeAlias = Annotated[
    float,
    typer.Option("--latency-ms", metavar="MS", help="Time of one round between neighbours.", rich_help_panel=COSTS),
]
Bandwidth: TypeAlias = Annotated[
    float,
    typer.Option("--bandwidth-mbit", metavar="MBIT/S", help="What a node can send per second.", rich_help_panel=COSTS),
]
Gigaflops: TypeAlias = Annotated[
    float, typer.Option("--gflops", metavar="GFLOP/S", help="Arithmetic of a node per second.", rich_help_panel=COSTS)
]
Memory: TypeAlias = Annotated[
    float, typer.Option("--memory-gb", metavar="GB", help="What a node may use beside its data.", rich_help_panel=COSTS)
]
ArraysFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE.npz", help="Write components, variances, mean and more.", rich_help_panel=OUTPUT
    ),
]
NumbersFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE|-",
        help="Write certificate, cost and settings; - for standard output.",
        rich_help_panel=OUTPUT,
    ),
]
PictureFile: TypeAlias = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw a picture, .png or .svg.", rich_help_panel=OUTPUT)
]
EventsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--events", metavar="FILE.jsonl", help="Write what happens, one event per line.", rich_help_panel=OUTPUT
    ),
]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.", rich_help_panel=OUTPUT)
]

USUAL = Costs()
LATENCY_MS, BANDWIDTH_MBIT = USUAL.latency_s * 1e3, USUAL.bandwidth_bytes_s * 8 / 1e6
GFLOPS, MEMORY_GB = USUAL.flops_s / 1e9, USUAL.memory_bytes / 1e9


def read_costs(latency_ms: float, bandwidth_mbit: float, gflops: float, memory_gb: float) -> Costs:
    """Costs in the units of the library."""
    return Costs(latency_ms / 1e3, bandwidth_mbit * 1e6 / 8, gflops * 1e9, memory_gb * 1e9)
