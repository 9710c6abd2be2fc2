"""The engines that carry transports, and how to start so many nodes on each: one row an engine.

To add an engine: a row in ``ENGINES``, with the name of its row in ``eigenmesh.transports.TRANSPORTS``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from eigenmesh.errors import MissingExtraError
from eigenmesh.transports import TRANSPORTS
from processes import Forked
from transports import node

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Engine:
    """A way to run nodes.

    Attributes
    ----------
    name : of the transport.
    sizes : numbers of nodes that the suite runs.
    missing : why the engine cannot run here, or None.
    processes : whether nodes are processes that the transport's launcher starts, or threads of this process.
    forks : how nodes can be processes without a launcher, which start sooner: (size) -> environment of each, a context.
    reduces : whether its transport has an all-reduce.
    changes_links : whether its links may be others in every round.
    """

    name: str
    sizes: tuple[int, ...]
    missing: Callable[[], str | None]
    processes: bool = False
    forks: Callable[[int], AbstractContextManager[list[dict[str, str]]]] | None = None
    reduces: bool = True
    changes_links: bool = False


@dataclass(frozen=True)
class Ended:
    """How a launch ended.

    Attributes
    ----------
    status : exit status of the command.
    output : what all processes printed, both streams.
    by_itself : whether it ended without being killed at the limit.
    alive : ids of nodes' processes that were still there after the end; they are killed after being counted.
    results : by rank, what the node's scenarios returned, ``"scenario/key" -> value``; None for a node without any.
    errors : by rank, the text of the error that ended the node.
    """

    status: int
    output: str
    by_itself: bool
    alive: tuple[int, ...]
    results: dict[int, dict[str, np.ndarray]]
    errors: dict[int, str]


def _missing(name: str) -> str | None:
    """Why the launcher of a transport cannot start anything here."""
    try:
        TRANSPORTS[name].launcher(1)
    except MissingExtraError as error:
        return str(error)
    return None


def _missing_cryptography() -> str | None:
    return None if importlib.util.find_spec("cryptography") else "cryptography is not installed"


@contextmanager
def _torch_places(size: int) -> Iterator[list[dict[str, str]]]:
    """What torchrun tells its processes, and the store that it keeps for them."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    yield [{"RANK": str(rank), "LOCAL_RANK": str(rank), **meeting} for rank in range(size)]


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("threads", (1, 2, 3, 8), lambda: None, reduces=False, changes_links=True),
        Engine("torch", (1, 4), lambda: _missing("torch"), processes=True, forks=_torch_places, changes_links=True),
        Engine("tls", (1, 2, 3, 8), _missing_cryptography, reduces=False),
        Engine("mpi", (1, 2, 3, 8), lambda: _missing("mpi"), processes=True),
    )
}


def row(engine: str, *more: object) -> object:
    """A row of a table of tests for an engine; slow where nodes are more than threads."""
    return pytest.param(engine, *more, marks=pytest.mark.slow if engine != "threads" else ())


def launch(
    engine: Engine,
    size: int,
    module: str,
    scenarios: Sequence[str],
    folder: Path,
    *,
    timeout_s: float = 60.0,
    limit_s: float = 600.0,
    by_launcher: bool = False,
) -> Ended:
    """Run scenarios of a module, one after another, at every node of one launch.

    Parameters
    ----------
    module : a module with a table ``SCENARIOS``: name -> function of a transport.
    folder : an empty one, for what the nodes write.
    timeout_s : deadline of the transport's own waits.
    limit_s : after so long everything is killed, and the status is that of a killed process.
    by_launcher : the transport's own launcher starts the nodes even if they could be forked.
    """
    settings = node.Settings(engine.name, folder, module, tuple(scenarios), timeout_s)
    if engine.forks is not None and not by_launcher:
        with engine.forks(size) as places:
            status, output, by_itself = _fork(places, settings, time.monotonic() + limit_s)
    elif engine.processes:
        kind = TRANSPORTS[engine.name]
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, **kind.environment, "PYTHONPATH": path}
        command = [*kind.launcher(size), *settings.words()]
        status, output, by_itself = _run(command, environment, folder, time.monotonic() + limit_s)
    else:
        status, output, by_itself = *node.run_in_threads(settings, size), True
    return Ended(status, output, by_itself, _stop_what_is_left(folder, size), *node.read(folder, size))


def _run(command: list[str], environment: dict[str, str], folder: Path, deadline: float) -> tuple[int, str, bool]:
    # Into a file, for a pipe would stay open as long as any process that was left behind.
    with open(folder / "output.txt", "w+b") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder
        )
        by_itself = _ended_by_itself(process, deadline)
    return process.returncode, (folder / "output.txt").read_text(errors="replace"), by_itself


def _fork(places: list[dict[str, str]], settings: node.Settings, deadline: float) -> tuple[int, str, bool]:
    output = settings.folder / "output.txt"
    nodes = [Forked(node.be_one, settings, output=output, environment=place) for place in places]
    ended = [_ended_by_itself(process, deadline) for process in nodes]
    statuses = [process.returncode for process in nodes]
    return next((status for status in statuses if status), 0), output.read_text(errors="replace"), all(ended)


def _ended_by_itself(process: subprocess.Popen[bytes] | Forked, deadline: float) -> bool:
    """Wait for the end of a process, and kill it at the deadline."""
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def _stop_what_is_left(folder: Path, size: int, grace_s: float = 20.0) -> tuple[int, ...]:
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
