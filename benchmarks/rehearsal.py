"""The forecast of ``eigenmesh site rehearse`` against a real run of the same network.

``python benchmarks/rehearsal.py`` starts 5 peers on a ring over loopback, each a process with certificates, journal and
audit, and a proxy with 20 ms of one-way delay on every link. Their run to the result is timed by their audits, from
when every site has sent numbers to the last message with numbers, and compared with the forecast for the same network
and samples. The cost of a message in addition to the delay depends on how busy the machine is: it is measured before
and after each run by bare exchanges of ``benchmarks/peers.py``, and given to the forecast as ``overhead_ms``. The ratio
must be within 20 %. The forecast with the default of ``overhead_ms`` is printed next to it.

Peers that share two cores get one thread each for linear algebra. With more, their threads wait for each other, and a
step of block Krylov on small data takes up to 100 ms more, which no forecast includes.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import io
import multiprocessing
import os
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

# Before NumPy, and for all processes that are started here.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from peers import delay, measure

from eigenmesh.rehearsal.conditions import Conditions, LinkQuality
from eigenmesh.rehearsal.fits import made_up
from eigenmesh.rehearsal.forecast import RunForecast, forecast
from eigenmesh.sites import read_network_file
from eigenmesh.sites.audit import read_audit
from eigenmesh.sites.network_file import NetworkFile, NetworkSite
from eigenmesh.sites.site import Address, RunSettings, in_order
from mesh import Mesh, ring

N_COMPONENTS = 3
SOLVERS: dict[str, dict[str, Any]] = {"block-krylov": {}, "fast-pca": {"tol": 1e-3}}


def real_s(parts: dict[str, np.ndarray], settings: dict[str, Any], delay_s: float) -> float:
    """Seconds of a real run with a proxy on every link, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        mesh = Mesh(Path(folder), parts, ring(list(parts)), **settings)
        with mesh:
            return _span_s(mesh, read_network_file(mesh.root / "network.toml"), delay_s)


def _span_s(mesh: Mesh, network: NetworkFile, delay_s: float) -> float:
    context = multiprocessing.get_context("spawn")
    pipes = []
    for caller, called in network.edges:
        ours, theirs = context.Pipe()
        context.Process(target=delay, args=(mesh.ports[called], delay_s, theirs), daemon=True).start()
        mesh.reroute(caller, called, ours.recv())
        pipes.append(ours)
    mesh.start_anew()
    ended = mesh.wait()
    for ours in pipes:
        ours.send("end")
    if set(ended.values()) != {0}:
        raise SystemExit(f"a peer failed: {ended}\n{mesh.said(network.names[0])}")
    sent = {name: _sent_at(mesh.out(name) / "audit.jsonl") for name in network.names}
    return max(times[-1] for times in sent.values()) - max(times[0] for times in sent.values())


def _sent_at(path: Path) -> list[float]:
    lines = (line for line in read_audit(path) if line is not None and line["kind"] == "DATA")
    return [dt.datetime.fromisoformat(line["at"]).timestamp() for line in lines]


def rehearsed(network: NetworkFile, parts: dict[str, np.ndarray], delay_s: float, overhead_s: float) -> RunForecast:
    """The forecast; a loopback has all the bandwidth that is needed."""
    link = LinkQuality(latency_ms=1e3 * delay_s, bandwidth_mbit=1e4, overhead_ms=1e3 * overhead_s)
    usual = Conditions.usual(network.names, network.edges)
    return forecast(network, replace(usual, links=dict.fromkeys(network.edges, link)), parts)


def overhead(size: int, n_features: int, delay_s: float) -> float:
    """Seconds per round of bare exchanges on a ring, without the delay, with journal and audit."""
    times = measure(size, (1, n_features, N_COMPONENTS), (5, 10), delay_s, True)["peers"]
    return statistics.median(times) - delay_s


def network_of(names: list[str], settings: dict[str, Any]) -> NetworkFile:
    """The network of a mesh, without certificates."""
    sites = tuple(NetworkSite(name, Address("127.0.0.1", 7400), None) for name in names)
    edges = in_order(names, ring(names))
    return NetworkFile(Path("network.toml"), "test", sites, edges, RunSettings(**settings))


def main() -> None:
    """Print both times and their ratio for each solver; fail if a median ratio is off by more than 20 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=5)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    names, delay_s = [f"site{number}" for number in range(options.peers)], options.delay_ms / 1e3
    failed = False
    for solver, more in SOLVERS.items():
        settings = {"n_components": N_COMPONENTS, "seed": 0, "solver": solver, **more}
        network, ratios = network_of(names, settings), []
        for repeat in range(options.repeats):
            tables = made_up(network, options.features, (options.samples,) * len(names), 0.8, repeat)
            parts = dict(zip(names, tables, strict=True))
            before = overhead(options.peers, options.features, delay_s)
            real = real_s(parts, settings, delay_s)
            overhead_s = (before + overhead(options.peers, options.features, delay_s)) / 2
            found = rehearsed(network, parts, delay_s, overhead_s)
            usual = rehearsed(network, parts, delay_s, LinkQuality().overhead_ms / 1e3).rounds_s
            rounds = found.sites[names[0]].rounds
            ratios.append(found.rounds_s / real)
            print(
                f"{solver}: {rounds} rounds, a message costs {options.delay_ms:g} + {1e3 * overhead_s:.1f} ms; "
                f"real {real:.2f} s, rehearsed {found.rounds_s:.2f} s: {ratios[-1]:.2f}; "
                f"with the usual {LinkQuality().overhead_ms:g} ms {usual:.2f} s: {usual / real:.2f}",
                flush=True,
            )
        failed |= abs(statistics.median(ratios) - 1) > 0.2
        print(f"{solver}: median {statistics.median(ratios):.2f} (target 0.8 to 1.2)", flush=True)
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
