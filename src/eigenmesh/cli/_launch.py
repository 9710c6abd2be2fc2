"""``eigenmesh launch``: start the nodes of a network as processes of this machine."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from eigenmesh._lookup import canonical_name
from eigenmesh.cli._messages import Messages
from eigenmesh.cli._processes import Processes
from eigenmesh.errors import InputError
from eigenmesh.transports import TRANSPORTS

NodesToStart = Annotated[int, typer.Option(min=1, metavar="M", help="How many nodes to start.")]
LAUNCHERS = {name: kind.launcher for name, kind in TRANSPORTS.items() if kind.launcher is not None}
TransportToStart = Annotated[
    str,
    typer.Option(
        "--transport",
        metavar="|".join(LAUNCHERS),
        help=f"What a node is: {', '.join(f'{TRANSPORTS[name].description} ({name})' for name in LAUNCHERS)}.",
    ),
]
Words = Annotated[
    list[str], typer.Argument(metavar="-- fit DATA ...", show_default=False, help="What every node is to run.")
]
# The one command that nodes can run together.
COMMAND = "fit"


def launch(words: Words, nodes: NodesToStart = 4, transport: TransportToStart = "mpi") -> None:
    """Start M nodes on this machine, each a process (or a thread) with its own part of the data, and wait for them.

    Node 0 reports. If one node fails or is killed, all end, and so does this command, with the status of the failure;
    nothing is left running. On a cluster start the nodes with the cluster's own mpiexec, srun or torchrun instead.

    Examples:

    - `eigenmesh launch --nodes 8 --transport mpi -- fit digits -k 3`

    - `eigenmesh launch --nodes 4 --transport torch -- fit site-{rank}.npy --out pca.npz`

    - `eigenmesh launch --nodes 5 --transport threads -- fit samples.npy --topology cycle`
    """
    transport = canonical_name("transport", transport, LAUNCHERS)
    kind = TRANSPORTS[transport]
    if words[0] != COMMAND:
        raise InputError(
            f"launch starts nodes that run {COMMAND!r}, not {words[0]!r}: eigenmesh launch ... -- fit DATA"
        )
    for option in ("--transport", "--nodes"):
        if any(word.partition("=")[0] == option for word in words):
            raise InputError(f"launch gives {option} to the nodes itself; write it before the --.")
    # A process that starts all nodes itself must be told how many; launchers know.
    count = ["--nodes", str(nodes)] if kind.run_nodes is not None else []
    command = [*LAUNCHERS[transport](nodes), "-m", "eigenmesh", *words, *count, "--transport", transport]
    with tempfile.TemporaryDirectory(prefix="eigenmesh-") as folder:
        processes = Processes(command, _environment(nodes, kind.environment), Path(folder))
        status = processes.run(Messages.of(quiet="--quiet" in words or "-q" in words))
    if status:
        raise typer.Exit(status)


def _environment(nodes: int, usual: Mapping[str, str]) -> dict[str, str]:
    """What makes many processes run well on few cores, unless the user has said otherwise."""
    # BLAS threads of many processes would fight for the cores.
    return {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // nodes)), **usual, **os.environ}
