"""``eigenmesh launch``: start the nodes of a network as processes of this machine, and leave none behind."""

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

from eigenmesh._lookup import canonical_name
from eigenmesh.cli import _options as options
from eigenmesh.cli._exit_codes import INTERRUPTED
from eigenmesh.cli._messages import NODES_FOLDER, PROGRESS_FILE, Messages
from eigenmesh.cli._options import argument, option
from eigenmesh.cli._signals import signals_interrupt
from eigenmesh.errors import InputError
from eigenmesh.events import EventReader, Listener
from eigenmesh.transports import TRANSPORTS

LAUNCHERS = {name: kind.launcher for name, kind in TRANSPORTS.items() if kind.launcher is not None}
TRANSPORT_HELP = f"What a node is: {', '.join(f'{TRANSPORTS[name].description} ({name})' for name in LAUNCHERS)}."
Words = Annotated[list[str], argument("-- fit DATA ...", "What every node is to run.")]
NodesToStart = Annotated[int, option(None, "M", "How many nodes to start.", min=1)]
TransportToStart = Annotated[str, option(None, "|".join(LAUNCHERS), TRANSPORT_HELP, "--transport")]
# The one command that nodes can run together.
COMMAND = "fit"
# What all processes of one launch carry in their environment, so that none is overlooked at the end.
MARK = "EIGENMESH_LAUNCH"
POLL_S = 0.2
# How long processes that were asked to end may take.
GRACE_S = 5.0


def launch(
    words: Words, nodes: NodesToStart = 4, transport: TransportToStart = "mpi", live: options.Live = False
) -> None:
    """Start M nodes on this machine, each a process (or a thread) with its own part of the data, and wait for them.

    Node 0 reports. If one node fails or is killed, all end, and so does this command, with the status of the failure;
    nothing is left running. On a cluster start the nodes with the cluster's own mpiexec, srun or torchrun instead.

    Examples:

    - `eigenmesh launch --nodes 8 --transport mpi -- fit digits -k 3`

    - `eigenmesh launch --nodes 4 --transport torch -- fit site-{rank}.npy --out pca.npz`

    - `eigenmesh launch --live -- fit digits`

    - `eigenmesh launch --nodes 5 --transport threads -- fit samples.npy --topology cycle`
    """
    transport = canonical_name("transport", transport, LAUNCHERS)
    kind = TRANSPORTS[transport]
    if words[0] != COMMAND:
        raise InputError(f"nodes run {COMMAND!r} alone, not {words[0]!r}: eigenmesh launch ... -- fit DATA")
    for name in ("--transport", "--nodes"):
        if any(word.partition("=")[0] == name for word in words):
            raise InputError(f"launch gives {name} to the nodes itself; write it before the --.")
    # A process that starts all nodes itself must be told how many; launchers know.
    count = ["--nodes", str(nodes)] if kind.run_nodes is not None else []
    command = [*LAUNCHERS[transport](nodes), "-m", "eigenmesh", *words, *count, "--transport", transport]
    # BLAS threads of many processes would fight for the cores.
    environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // nodes)), **kind.environment, **os.environ}
    with tempfile.TemporaryDirectory(prefix="eigenmesh-") as folder:
        processes = Processes(command, environment, Path(folder))
        messages = Messages.of(quiet="--quiet" in words or "-q" in words, live=live)
        with messages.page(f"{nodes} nodes ({transport})") as page:
            status = processes.run(messages, page)
    if status:
        raise typer.Exit(status)


class Processes:
    """An engine's starter (mpiexec, torchrun) and all that it starts: one stream of words, one status."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], folder: Path) -> None:
        self.command, self.folder, self.mark = list(command), folder, uuid.uuid4().hex
        self.progress = folder / "progress"
        self._silenced = threading.Event()
        self.environment = {**environment, MARK: self.mark, NODES_FOLDER: str(folder)}

    def run(self, messages: Messages, page: Listener | None = None) -> int:
        """Start, pass words on, wait; end everything on an interrupt. Gives the exit status."""
        watched = page is not None or (messages.notices.is_terminal and not messages.quiet)
        environment = {**self.environment, **({PROGRESS_FILE: str(self.progress)} if watched else {})}
        starter = subprocess.Popen(
            self.command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Engines write in whatever encoding they like; a reader that gave up would hold them up.
            errors="replace",
            start_new_session=True,
        )
        nothing: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        with signals_interrupt():
            try:
                with self._passed_on(starter), _watched(messages, page, self.progress) if watched else nothing:
                    status = starter.wait()
            except KeyboardInterrupt:
                # What the engine says about being ended is of no use to anybody.
                self._silenced.set()
                messages.alert("interrupted.", style="yellow")
                status = INTERRUPTED
            finally:
                self._end(starter)
        # A starter that was itself killed by signal 9 gives -9; a shell would say 137.
        return status if status >= 0 else 128 - status

    @contextlib.contextmanager
    def _passed_on(self, starter: subprocess.Popen[str]) -> Iterator[None]:
        """Pass on what the processes say; what several nodes say in the same words is said once."""
        said: set[str] = set()

        def once(line: str) -> str:
            again = line.strip() != "" and line in said
            said.add(line)
            return "" if again else self._with_node(line)

        # MPICH tells of a killed process on the standard output.
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
                # Read to the end even if nobody takes the words, or the processes would wait for a reader.
                with contextlib.suppress(OSError, ValueError):
                    if not self._silenced.is_set():
                        target.write(change(line))
                        target.flush()

    def _with_node(self, line: str) -> str:
        """The line, with the node where it speaks of a process by its number."""
        found = re.search(r"\bPID (\d+)", line)
        try:
            node = (self.folder / f"{found.group(1)}.node").read_text() if found else ""
        except OSError:
            node = ""
        return f"{line.rstrip()} (node {node})\n" if node else line

    def _end(self, starter: subprocess.Popen[str]) -> None:
        """End the starter if it still runs, then whatever it left."""
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
    """Processes that carry the mark, where the system lets one look (Linux)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return [process for process in found if process != os.getpid()]


@contextlib.contextmanager
def _watched(messages: Messages, page: Listener | None, progress: Path) -> Iterator[None]:
    """Show live, and on the page, the events that node 0 writes."""
    stop, reader = threading.Event(), EventReader(progress)

    def follow() -> None:
        with contextlib.ExitStack() as stack:
            listeners: list[Listener] | None = None
            ends = False
            while not ends:
                ends = stop.wait(POLL_S)
                for entry in reader.new():
                    if listeners is None:
                        shown = (page, stack.enter_context(messages.progress()))
                        listeners = [one for one in shown if one is not None]
                    for listener in listeners:
                        listener(entry)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        stop.set()
        follower.join(GRACE_S)
