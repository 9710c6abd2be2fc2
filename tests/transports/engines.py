"""The engines that carry transports, and how to start so many nodes on each: one row an engine.

To add an engine: a row in ``ENGINES``, whose name ``transport_by_name`` knows.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from transports import node

TESTS = Path(__file__).parents[1]
# As root, with more ranks than cores, and with one BLAS thread each.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


@dataclass(frozen=True)
class Engine:
    """A way to run nodes.

    Attributes
    ----------
    name : of the transport.
    sizes : numbers of nodes that the suite runs.
    missing : why the engine cannot run here, or None.
    commands : (size, words) -> the commands to start, where words are the arguments of Python that make it a node;
        None where the nodes are threads of this process.
    environment : what the processes get beside this process's own.
    reduces : whether its transport has an all-reduce.
    """

    name: str
    sizes: tuple[int, ...]
    missing: Callable[[], str | None]
    commands: Callable[[int, list[str]], list[list[str]]] | None
    environment: Mapping[str, str] = field(default_factory=dict)
    reduces: bool = True


@dataclass(frozen=True)
class Ended:
    """How a launch ended.

    Attributes
    ----------
    status : exit status of the first command that failed, else 0.
    output : what all processes printed, both streams.
    at : clock time of the end.
    failed_at : clock time of the first error that a node wrote down; that of the end if there was none.
    alive : ids of nodes' processes that were still there after the end; they are killed after being counted.
    results : by rank, what the node's scenarios returned, ``"scenario/key" -> value``; None for a node without any.
    errors : by rank, the text of the error that ended the node.
    """

    status: int
    output: str
    at: float
    failed_at: float
    alive: tuple[int, ...]
    results: dict[int, dict[str, np.ndarray]]
    errors: dict[int, str]


def mpiexec() -> str | None:
    """The mpiexec beside this Python, for an MPI that pip installed, or the system's."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def _missing_mpi() -> str | None:
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    return None if mpiexec() else "there is no mpiexec"


def _under_mpiexec(size: int, words: list[str]) -> list[list[str]]:
    return [[str(mpiexec()), "-n", str(size), sys.executable, *words]]


def _missing_torch() -> str | None:
    return None if importlib.util.find_spec("torch") else "torch is not installed"


def _missing_grpc() -> str | None:
    known = all(importlib.util.find_spec(name) for name in ("grpc", "cryptography"))
    return None if known else "grpcio or cryptography is not installed"


def _under_torchrun(size: int, words: list[str]) -> list[list[str]]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    return [[sys.executable, *torchrun, *words]]


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("threads", (1, 2, 3, 8), lambda: None, None, reduces=False),
        Engine("torch", (1, 4), _missing_torch, _under_torchrun),
        Engine("grpc", (1, 2, 3, 8), _missing_grpc, None, reduces=False),
        Engine("mpi", (1, 2, 3, 8), _missing_mpi, _under_mpiexec, OPEN_MPI),
    )
}


def launch(
    engine: Engine,
    size: int,
    module: str,
    scenarios: Sequence[str],
    folder: Path,
    *,
    timeout_s: float = 60.0,
    limit_s: float = 120.0,
) -> Ended:
    """Run scenarios of a module, one after another, at every node of one launch.

    Parameters
    ----------
    module : a module with a table ``SCENARIOS``: name -> function of a transport.
    folder : an empty one, for what the nodes write.
    timeout_s : deadline of the transport's own waits.
    limit_s : after so long everything is killed, and the status is that of a killed process.
    """
    settings = node.Settings(engine.name, folder, module, tuple(scenarios), timeout_s)
    if engine.commands is None:
        status, output = node.run_in_threads(settings, size)
    else:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **engine.environment, "PYTHONPATH": str(TESTS)}
        commands = engine.commands(size, settings.words())
        status, output = _run(commands, environment, folder, time.monotonic() + limit_s)
    at = time.time()
    failed_at = min([path.stat().st_mtime for path in folder.glob("*.error")], default=at)
    return Ended(status, output, at, failed_at, _stop_what_is_left(folder, size), *node.read(folder, size))


def _run(commands: list[list[str]], environment: dict[str, str], folder: Path, deadline: float) -> tuple[int, str]:
    # Into a file, for a pipe would stay open as long as any process that was left behind.
    with open(folder / "output.txt", "w+b") as output:
        processes = [
            subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder
            )
            for command in commands
        ]
        for process in processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    statuses = [process.returncode for process in processes]
    text = (folder / "output.txt").read_text(errors="replace")
    return next((status for status in statuses if status), 0), text


def _stop_what_is_left(folder: Path, size: int, grace_s: float = 1.0) -> tuple[int, ...]:
    """Kill the nodes whose processes outlived the command that started them; their ids."""
    ids = [int(path.read_text()) for rank in range(size) if (path := folder / f"{rank}.pid").exists()]
    others = [number for number in ids if number != os.getpid()]
    until = time.monotonic() + grace_s
    while (left := [number for number in others if _runs(number)]) and time.monotonic() < until:
        time.sleep(0.02)
    for number in left:
        os.kill(number, 9)
    return tuple(left)


def _runs(number: int) -> bool:
    """Whether the process is there, and more than an entry that nobody has waited for."""
    try:
        os.kill(number, 0)
        state = Path(f"/proc/{number}/stat")
        return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")
    except (ProcessLookupError, FileNotFoundError):
        return False
