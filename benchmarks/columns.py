"""Columns split over sites: MNIST's pixels on 8 and HapMap3's variants on 11, simulated and as real peers.

Run it with ``make bench-columns``; it needs EIGENMESH_DATA. Peers are processes on this machine, over mutual TLS and
masked, which is the default; their audits are searched for arrays with the length of loadings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from truth import leading

from eigenmesh import DecentralizedPCA
from eigenmesh.cli.site_keys import init
from eigenmesh.data import load
from eigenmesh.errors import DataWarning
from eigenmesh.metrics import largest_angle
from eigenmesh.model import read_model

# Data set, sites, components.
CASES = [("mnist", 8, 5), ("hapmap3", 11, 5), ("hapmap3", 11, 10)]
TOL = 1e-9
FIRST_PORT = 21400
PEER = [sys.executable, "-m", "eigenmesh", "site", "run"]

console = Console(width=150)


def simulated(parts: list[np.ndarray], k: int, true: np.ndarray) -> list[str]:
    start = time.perf_counter()
    pca = DecentralizedPCA(k, partition="features", topology="cycle", averaging="tree", tol=TOL, random_state=0)
    pca.fit(parts)
    seconds = time.perf_counter() - start
    angle = largest_angle(pca.components_.T[np.newaxis], true)
    message = 8 * (len(parts[0]) - 1) * (k + 5)
    cells = [f"{pca.n_iter_}", f"{message / 1e6:.2f}", f"{angle:.1e}", f"{pca.certificate_.error_bound:.1e}"]
    return [*cells, f"{seconds:.1f}", "", ""]


def peers(parts: list[np.ndarray], k: int, true: np.ndarray, folder: Path) -> list[str]:
    """Real processes; the last two cells say what their audits show."""
    names = [f"site{number}" for number in range(len(parts))]
    lines = ['topology = "cycle"']
    for number, name in enumerate(names):
        address = f"127.0.0.1:{FIRST_PORT + number}"
        lines += ["[[site]]", f'name = "{name}"', f'address = "{address}"']
    lines += ["[settings]", f"n_components = {k}", 'partition = "features"', f"tol = {TOL}", "seed = 0"]
    (folder / "network.toml").write_text("\n".join(lines))
    init(folder / "network.toml", folder / "mesh")
    for name, part in zip(names, parts, strict=True):
        np.save(folder / "mesh" / name / "data.npy", part)
        toml = folder / "mesh" / name / "site.toml"
        toml.write_text(toml.read_text().replace('file = "data.csv"', 'file = "data.npy"'))
    start = time.perf_counter()
    files = [str(folder / "mesh" / name / "site.toml") for name in names]
    running = [subprocess.Popen([*PEER, "--quiet", file], env={**os.environ, "OMP_NUM_THREADS": "1"}) for file in files]
    ended = [process.wait() for process in running]
    seconds = time.perf_counter() - start
    if any(ended):
        raise SystemExit(f"peers ended with {ended}")
    out = [folder / "mesh" / name / "out" for name in names]
    V = np.concatenate([read_model(path / "result.npz").components for path in out], axis=1).T
    numbers = json.loads((out[0] / "result.json").read_text())
    shapes = {tuple(shape) for path in out for shape in sent_shapes(path / "audit.jsonl")}
    lengths = {part.shape[1] for part in parts} | {sum(part.shape[1] for part in parts)}
    loadings = sum(bool(set(shape) & lengths) for shape in shapes)
    bound = f"{numbers['error_bound']:.1e}"
    cells = [f"{numbers['iterations']}", f"{8 * max(map(np.prod, shapes)) / 1e6:.2f}"]
    cells += [f"{largest_angle(V[np.newaxis], true):.1e}", bound, f"{seconds:.1f}"]
    return [*cells, str(len(shapes)), str(loadings)]


def sent_shapes(path: Path) -> list[list[int]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [shape for line in lines for shape in json.loads(line).get("shapes", ())]


def main() -> None:
    warnings.simplefilter("ignore", DataWarning)
    table = Table(title=f"Columns split over sites of a ring, tol {TOL:g}, trees; peers are processes on this machine")
    headings = ["data", "sites", "K", "as", "products", "MB a message", "true angle", "bound", "s", "shapes sent"]
    for heading in [*headings, "of loadings"]:
        table.add_column(heading, justify="right")
    for name, n_sites, k in CASES:
        X = np.asarray(load(name).X, dtype=np.float64)
        true, parts = leading(X, k), np.array_split(X, n_sites, axis=1)
        table.add_row(name, str(n_sites), str(k), "estimator", *simulated(parts, k, true))
        with tempfile.TemporaryDirectory() as folder:
            table.add_row(name, str(n_sites), str(k), "peers", *peers(parts, k, true, Path(folder)))
    console.print(table)


if __name__ == "__main__":
    main()
