"""``eigenmesh launch``: run the nodes of a network as processes on this machine, and leave none running."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated

import typer

from eigenmesh.cli.messages import NODES_FOLDER
from eigenmesh.cli.options import argument, option
from eigenmesh.cli.process import INTERRUPTED, alert, signals_interrupt
from eigenmesh.errors import InputError
from eigenmesh.transports import TRANSPORTS
from eigenmesh.words import canonical_name

LAUNCHERS = {name: kind.launcher for name, kind in TRANSPORTS.items() if kind.launcher is not None}
TRANSPORT_HELP = f"How a node runs: {', '.join(f'{TRANSPORTS[name].description} ({name})' for name in LAUNCHERS)}."
Words = Annotated[list[str], argument("-- fit DATA ...", "The command that every node runs.")]
NodesToStart = Annotated[int, option(None, "M", "Number of nodes to start.", min=1)]
TransportToStart = Annotated[str, option(None, "|".join(LAUNCHERS), TRANSPORT_HELP, "--transport")]
# The only command that nodes can run together.
COMMAND = "fit"
# Environment variable that marks all processes of one launch, so that all of them are ended.
MARK = "EIGENMESH_LAUNCH"
# How long processes may take to end after SIGTERM.
GRACE_S = 5.0


def launch(words: Words, nodes: NodesToStart = 4, transport: TransportToStart = "mpi") -> None:
    """Start M nodes on this machine, each a process (or a thread) with its own part of the data, and wait for them.

    Node 0 prints the result. If one node fails or is killed, all nodes end, and this command ends with the exit status
    of the failure; nothing is left running. On a cluster, start the nodes with its mpiexec, srun or torchrun instead.

    Examples:

    - `eigenmesh launch --nodes 8 --transport mpi -- fit digits -k 3`

    - `eigenmesh launch --nodes 4 --transport torch -- fit site-{rank}.npy --out pca.npz`

    - `eigenmesh launch -- fit digits --events run.jsonl`, with `eigenmesh watch run.jsonl` at the same time

    - `eigenmesh launch --nodes 5 --transport threads -- fit samples.npy --topology cycle`
    """
    transport = canonical_name("transport", transport, LAUNCHERS)
    kind = TRANSPORTS[transport]
    if words[0] != COMMAND:
        raise InputError(f"nodes can only run {COMMAND!r}, not {words[0]!r}: eigenmesh launch ... -- fit DATA")
    for name in ("--transport", "--nodes"):
        if any(word.partition("=")[0] == name for word in words):
            raise InputError(f"launch passes {name} to the nodes; write it before the --.")
    # A single process that runs all nodes needs their number; mpiexec and torchrun have it already.
    count = ["--nodes", str(nodes)] if kind.run_nodes is not None else []
    command = [*LAUNCHERS[transport](nodes), "-m", "eigenmesh", *words, *count, "--transport", transport]
    # Without this, the BLAS threads of all processes would compete for the cores.
    environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // nodes)), **kind.environment, **os.environ}
    with tempfile.TemporaryDirectory(prefix="eigenmesh-") as folder:
        status = Processes(command, environment, Path(folder)).run()
    if status:
        raise typer.Exit(status)


class Processes:
    """A starter (mpiexec, torchrun) and all processes that it starts, with merged output and one exit status."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], folder: Path) -> None:
        self.command, self.folder, self.mark = list(command), folder, uuid.uuid4().hex
        self._silenced = threading.Event()
        self.environment = {**environment, MARK: self.mark, NODES_FOLDER: str(folder)}

    def run(self) -> int:
        """Start the processes, pass on their output and wait; end them on an interrupt. Returns the exit status."""
        starter = subprocess.Popen(
            self.command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # The encoding is unknown, and a reader that raised an error would block the processes.
            errors="replace",
            start_new_session=True,
        )
        with signals_interrupt():
            try:
                with self._passed_on(starter):
                    status = starter.wait()
            except KeyboardInterrupt:
                # The starter's own messages about being ended would only confuse.
                self._silenced.set()
                alert("interrupted.", style="yellow")
                status = INTERRUPTED
            finally:
                self._end(starter)
        # Popen reports death by signal 9 as -9; a shell reports 137.
        return status if status >= 0 else 128 - status

    @contextlib.contextmanager
    def _passed_on(self, starter: subprocess.Popen[str]) -> Iterator[None]:
        """Pass on the output of the processes; a line that several nodes write to standard error is shown once."""
        seen: set[str] = set()

        def once(line: str) -> str:
            again = line.strip() != "" and line in seen
            seen.add(line)
            return "" if again else self._with_node(line)

        # MPICH reports a killed process on standard output, so the node is added there too.
        streams = [(starter.stdout, sys.stdout, self._with_node), (starter.stderr, sys.stderr, once)]
        threads = [threading.Thread(target=self._pass, args=stream, daemon=True) for stream in streams]
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join(GRACE_S)

    def _pass(self, source: IO[str], target: IO[str], change: Callable[[str], str]) -> None:
        with source:
            for line in source:
                # Read to the end even if nothing can be written: otherwise the pipe fills and the processes block.
                with contextlib.suppress(OSError, ValueError):
                    if not self._silenced.is_set():
                        target.write(change(line))
                        target.flush()

    def _with_node(self, line: str) -> str:
        """The line, with the number of the node added if it names a process by its PID."""
        found = re.search(r"\bPID (\d+)", line)
        try:
            node = (self.folder / f"{found.group(1)}.node").read_text() if found else ""
        except OSError:
            node = ""
        return f"{line.rstrip()} (node {node})\n" if node else line

    def _end(self, starter: subprocess.Popen[str]) -> None:
        """End the starter if it still runs, then all processes that it left behind."""
        if starter.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(starter.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                starter.wait(GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(starter.pid, signal.SIGKILL)
        for process in marked(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        starter.wait()


def marked(mark: str) -> list[int]:
    """Processes of this user with the mark in their environment; only Linux shows it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return [process for process in found if process != os.getpid()]
