"""Real peers with masks against the same peers without: HapMap3, MNIST, and the time of a round of 8 peers.

``python benchmarks/masked_peers.py hapmap3`` runs 11 processes over mutual TLS, one per population, and ``mnist`` 20 on
a random graph, by digit. Both check the certificate, the true angles, rounds, bytes, and whether the result files have
the same bits at all sites; they need EIGENMESH_DATA. ``python benchmarks/masked_peers.py rounds`` runs 8
peers on a ring in turns with and without masks, and compares the time from the first number to the result, per round.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from eigenmesh import graphs
from eigenmesh.data import LabelSplit, Shards, load
from eigenmesh.sites.audit import read_audit
from mesh import Mesh, pooled_components, ring
from problems import angles

REPEATS, N_PEERS = 5, 8
Parts = Mapping[str, np.ndarray]


def seconds_of_numbers(mesh: Mesh, name: str) -> float:
    """From the first message with numbers to the last."""
    at = [
        datetime.fromisoformat(line["at"])
        for line in read_audit(mesh.out(name) / "audit.jsonl")
        if line and line["kind"] == "DATA"
    ]
    return (max(at) - min(at)).total_seconds()


def run(parts: Parts, privacy: str, edges: Sequence[tuple[str, str]] | None = None, **settings: Any) -> dict[str, Any]:
    """One run of real peers, on a ring unless links are given; raises SystemExit unless all end with a result."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Mesh(Path(folder), parts, edges or ring(list(parts)), privacy=privacy, **settings) as mesh,
    ):
        mesh.start_anew()
        # Status 1: the budget of rounds ended, which is intended when rounds are timed.
        if not set(mesh.wait().values()) <= {0, 1}:
            raise SystemExit("a peer failed: " + mesh.said(next(iter(parts))))
        numbers = [mesh.numbers(name) for name in parts]
        files = {hashlib.sha256((mesh.out(name) / "result.npz").read_bytes()).hexdigest() for name in parts}
        return {
            "bound": max(one["error_bound"] for one in numbers),
            "components": [mesh.result(name)["components"] for name in parts],
            "rounds": numbers[0]["rounds"],
            "bytes": numbers[0]["bytes"],
            "seconds": max(seconds_of_numbers(mesh, name) for name in parts),
            "files": len(files),
        }


def compare(name: str, K: int, tols: Sequence[float], edges: Callable[[list[str]], Sequence[tuple[str, str]]]) -> None:
    """Masked and open runs side by side, one peer per node of a data set."""
    table = load(name)
    X, labels = np.asarray(table.X, dtype=float), np.asarray(table.labels)
    shards = Shards.from_array(X, 20, LabelSplit(), labels) if name == "mnist" else Shards.from_labels(X, labels)
    parts = {f"site{place}": X[block.rows] for place, block in enumerate(shards.blocks)}
    vectors = pooled_components(X)
    print(f"{name}: {len(parts)} peers, {len(X)} x {X.shape[1]}, K = {K}")
    print("| privacy | tol | rounds | bytes | beside open | certified | true angle | different result files |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for tol in tols:
        least = 0
        for privacy in ("open", "masked"):
            found = run(parts, privacy, edges(list(parts)), n_components=K, tol=tol, patience_s=300)
            least = least or found["bytes"]
            angle = max(float(angles(one, vectors).max()) for one in found["components"])
            print(
                f"| {privacy} | {tol:.0e} | {found['rounds']} | {found['bytes'] / 1e6:.1f} MB | "
                f"{found['bytes'] / least:.3f} | {found['bound']:.1e} | {angle:.1e} | {found['files']} |",
                flush=True,
            )


def hapmap3() -> None:
    compare("hapmap3", 5, (1e-6, 1e-8), ring)


def mnist() -> None:
    graph = graphs.topology("erdos_renyi", 20, seed=0)
    compare("mnist", 10, (1e-6,), lambda names: [(names[a], names[b]) for a, b in graph.edges])


def rounds() -> None:
    rng = np.random.default_rng(0)
    parts = {f"site{place}": rng.standard_normal((300, 1024)) * np.linspace(1, 3, 1024) for place in range(N_PEERS)}
    taken: dict[str, list[float]] = {"masked": [], "open": []}
    for _ in range(REPEATS):
        for privacy, times in taken.items():
            found = run(parts, privacy, n_components=5, tol=1e-6, max_rounds=200)
            times.append(found["seconds"] / found["rounds"])
    masked, plain = (statistics.median(taken[privacy]) for privacy in ("masked", "open"))
    print(
        f"{N_PEERS} peers, products of 1024 x 10, median of {REPEATS}: {1e3 * masked:.1f} ms a round masked, "
        f"{1e3 * plain:.1f} ms open, ratio {masked / plain:.2f}"
    )


if __name__ == "__main__":
    for part in sys.argv[1:] or ["hapmap3", "mnist", "rounds"]:
        {"hapmap3": hapmap3, "mnist": mnist, "rounds": rounds}[part]()
