"""``eigenmesh demo``: a complete fit, from data to picture and report, that needs no input."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from eigenmesh.cli.fit import carry_out
from eigenmesh.cli.messages import Messages
from eigenmesh.cli.options import option
from eigenmesh.cli.output import Outputs, make_folder
from eigenmesh.cli.process import NOT_CONVERGED, signals_interrupt
from eigenmesh.cli.site_keys import make_network
from eigenmesh.cli.watch import write_report
from eigenmesh.data import load
from eigenmesh.errors import InputError, MissingExtraError, TransportError, import_extra
from eigenmesh.fitting import Request, Spread
from eigenmesh.metrics import sin_squared
from eigenmesh.model import read_model
from eigenmesh.report.tables import new_table

N_NODES, N_COMPONENTS = 20, 5
# The rest is of the demo with peers.
NAMES = ("oslo", "bergen", "tromso", "bodo", "voss", "hamar", "narvik", "molde", "alta", "lom", "vardo")
COMPONENTS = 3
TOL = 1e-8
# FAST-PCA with a short step takes some seconds; an exact solver would end before a site could be killed. FAST-PCA mixes
# blocks, which cannot be masked.
SETTINGS = {"n_components": COMPONENTS, "tol": TOL, "max_rounds": 20000, "patience_s": 60, "solver": "fast-pca"}
SETTINGS["privacy"] = "open"
STEP_SIZE = 0.001
KILL_AT_ROUND = 200
LIMIT_S = 300.0


def demo(
    out: Annotated[Path, option(None, "FOLDER", "Folder for picture and report; it is created.")] = Path("out"),
    peers: Annotated[
        int | None, option(None, "M", "Run M real processes with certificates instead, and kill one during the run.")
    ] = None,
) -> None:
    """Watch 20 nodes find the components of handwritten digits, each holding only some of the images.

    1,797 images are split over the nodes of a random network. The nodes talk only to their neighbours and end with
    the components of the pooled images. The table shows the bound that the nodes certify themselves, next to the true
    angle, which only this command can compute, because it has all images in one place.

    Examples:

    - `eigenmesh demo`

    - `eigenmesh demo --peers 5`

    - `eigenmesh fit digits -k 3 --topology cycle --split label --plot digits.png` runs the same on another network
    """
    messages, folder = Messages.of(), make_folder(out)
    if peers is not None:
        converged = demo_with_peers(messages, peers, folder)
    else:
        converged = demo_of_nodes(messages, folder / "demo.png", folder / "demo.html")
    if not converged:
        raise typer.Exit(NOT_CONVERGED)


def demo_of_nodes(messages: Messages, picture: Path, report: Path) -> bool:
    """Run simulated nodes, and write the report and, with matplotlib, the picture; True if they converged."""
    outputs = Outputs(None, None, picture, None, report)
    try:
        outputs.check([])
    except MissingExtraError as error:
        messages.alert(f"no picture: {error}", style="yellow")
        outputs = replace(outputs, picture=None)
    request = Request.parse(n_components=N_COMPONENTS, solver="block-krylov", random_state=0)
    problem = Spread("erdos_renyi", N_NODES).of_words(["digits"])
    truth = pooled_eigenvectors(load("digits").X, N_COMPONENTS)
    return carry_out(messages, outputs, request, problem, {}, truth)


def pooled_eigenvectors(samples: np.ndarray, n_components: int) -> np.ndarray:
    """The components of the pooled images, which no node can compute alone: (d, K)."""
    vectors = np.linalg.eigh(np.cov(samples, rowvar=False))[1]
    return np.ascontiguousarray(vectors[:, ::-1][:, :n_components])


def demo_with_peers(messages: Messages, n_peers: int, out: Path) -> bool:
    """Run a network of sites, kill one and start it again; True if all sites find the components of the pooled data.

    The sites are in a new folder, and the report is that of a neighbour of the killed site.
    """
    import_extra("cryptography", "peers", "a demo with peers")
    if not 3 <= n_peers <= len(NAMES):
        raise InputError(f"--peers {n_peers} must be between 3 and {len(NAMES)}.")
    folder = Path(tempfile.mkdtemp(prefix="peers-demo-", dir=out))
    sites = _Sites(NAMES[:n_peers], folder)
    messages.print(
        f"{n_peers} sites in {folder}, in a ring, each with a key, a certificate and its part of 1,797 images."
    )
    _run(messages, sites)
    found = write_report(folder / sites.names[n_peers // 2 - 1] / "site.toml", out / "peers-demo.html")
    messages.print(f"wrote {found}")
    return _compare(messages, sites)


@signals_interrupt()
def _run(messages: Messages, sites: _Sites) -> None:
    """Run the sites; kill one of them during the run and start it again."""
    victim = sites.names[len(sites.names) // 2]
    try:
        for name in sites.names:
            sites.start(name)
        with messages.waiting("peers are starting and working"):
            sites.wait(lambda: sites.round(victim) >= KILL_AT_ROUND)
        sites.processes[victim].kill()
        sites.processes[victim].wait()
        messages.print(f"killed {victim} at round {sites.round(victim):,}; the others wait for it")
        time.sleep(2)
        sites.start(victim)
        messages.print(f"started {victim} again; it continues from its journal")
        with messages.waiting("peers are working"):
            sites.wait(lambda: all(process.poll() == 0 for process in sites.processes.values()))
    finally:
        sites.end()


class _Sites:
    """Folders and processes of the sites."""

    def __init__(self, names: tuple[str, ...], folder: Path) -> None:
        self.names, self.folder = names, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.samples = load("digits").X
        (folder / "network.toml").write_text(_network(names))
        make_network(folder / "network.toml", folder)
        for position, name in enumerate(names):
            np.save(folder / name / "data.npy", self.samples[position :: len(names)])
            settings = folder / name / "site.toml"
            settings.write_text(settings.read_text().replace('file = "data.csv"', 'file = "data.npy"'))

    def start(self, name: str) -> None:
        with open(self.folder / name / "said.txt", "ab") as said:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "eigenmesh", "site", "run", str(self.folder / name / "site.toml")],
                stdout=said,
                stderr=subprocess.STDOUT,
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )

    def round(self, name: str) -> int:
        try:
            return int(json.loads((self.folder / name / "out" / "status.json").read_text())["round"])
        except (OSError, ValueError):
            return 0

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until this holds; raise if a site fails before, or if it takes too long."""
        deadline = time.monotonic() + LIMIT_S
        while not done():
            failed = [name for name, process in self.processes.items() if process.poll() not in (None, 0)]
            if failed or time.monotonic() > deadline:
                who = f"{', '.join(failed)} failed" if failed else f"the sites have taken more than {LIMIT_S:g} s"
                raise TransportError(f"{who}; see said.txt in the folders of sites in {self.folder}.")
            time.sleep(0.05)

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


def _compare(messages: Messages, sites: _Sites) -> bool:
    """Print every site's result beside the components of the pooled samples; True if they are the same."""
    vectors = pooled_eigenvectors(sites.samples, COMPONENTS)
    rows, largest = [], 0.0
    for name in sites.names:
        model = read_model(sites.folder / name / "out" / "result.npz")
        sine = float(np.sqrt(sin_squared(model.components.T[np.newaxis], vectors)).max())
        rows.append((name, f"{model.error_bound:.1e}", f"{sine:.1e}"))
        largest = max(largest, sine)
    messages.print(new_table("site", "sin(angle) at most", "true sin(angle)", left=1, rows=rows))
    if largest <= TOL:
        messages.print(f"All {len(rows)} sites have the components of the pooled images, to {largest:.1e}.")
    else:
        messages.print(f"The largest angle is {largest:.1e}, above {TOL:g}.")
    audit = sites.folder / sites.names[0] / "out" / "audit.jsonl"
    messages.print(f"to see what a site sent: eigenmesh site audit {audit}")
    return largest <= TOL


def _network(names: tuple[str, ...]) -> str:
    """A ring of sites on loopback, as a NETWORK.toml."""
    edges = [[name, names[(position + 1) % len(names)]] for position, name in enumerate(names)]
    lines = ['run = "demo"', f"edges = {json.dumps(edges)}"]
    for name, port in zip(names, _free_ports(len(names)), strict=True):
        address = json.dumps(f"127.0.0.1:{port}")
        lines += ["[[site]]", f"name = {json.dumps(name)}", f"address = {address}", f"listen = {address}"]
    lines += ["[settings]", *(f"{key} = {json.dumps(value)}" for key, value in SETTINGS.items())]
    lines += ["[settings.solver_parameters]", f"step_size = {STEP_SIZE}"]
    return "\n".join(lines) + "\n"


def _free_ports(count: int) -> list[int]:
    """Free ports. All sockets stay open until the last port is found, so that no port comes twice."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(each.getsockname()[1]) for each in sockets]
