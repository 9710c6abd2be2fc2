"""Real peers with masks against the same peers without: HapMap3 by population, and the time of a round of 8 peers.

``python benchmarks/masked_peers.py hapmap3`` runs 11 processes over mutual TLS, one per population, and looks at the
certificate, the true angles, and whether result files are the same bits at all sites; EIGENMESH_DATA says where the
file is. ``python benchmarks/masked_peers.py rounds`` runs 8 peers on a ring in turns with and without masks, and
compares the time from the first number to the result, per round.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from eigenmesh.data import load
from eigenmesh.sites._audit import read_audit
from mesh import Mesh, pooled_components, ring
from problems import angles

REPEATS, N_PEERS = 5, 8


def seconds_of_numbers(mesh: Mesh, name: str) -> float:
    """From the first message with numbers to the last."""
    at = [
        datetime.fromisoformat(line["at"])
        for line in read_audit(mesh.out(name) / "audit.jsonl")
        if line and line["kind"] == "DATA"
    ]
    return (max(at) - min(at)).total_seconds()


def run(parts: Mapping[str, np.ndarray], privacy: str, **settings: Any) -> dict[str, Any]:
    """One run of real peers; raises SystemExit unless all end with a result."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Mesh(Path(folder), parts, ring(list(parts)), privacy=privacy, **settings) as mesh,
    ):
        mesh.start_anew()
        # Status 1: the budget of rounds has ended, as it should where rounds are timed.
        if not set(mesh.wait().values()) <= {0, 1}:
            raise SystemExit("a peer failed: " + mesh.said(next(iter(parts))))
        numbers = [mesh.numbers(name) for name in parts]
        components = [mesh.result(name)["components"] for name in parts]
        vectors = pooled_components(np.vstack(list(parts.values())))
        return {
            "bound": max(one["error_bound"] for one in numbers),
            "angle": max(float(angles(one, vectors).max()) for one in components),
            "rounds": numbers[0]["rounds"],
            "bytes": numbers[0]["bytes"],
            "seconds": max(seconds_of_numbers(mesh, name) for name in parts),
            "files": len({hashlib.sha256((mesh.out(name) / "result.npz").read_bytes()).hexdigest() for name in parts}),
        }


def hapmap3() -> None:
    table = load("hapmap3")
    X, labels = np.asarray(table.X, dtype=float), np.asarray(table.labels)
    parts = {f"site{place}": X[labels == label] for place, label in enumerate(np.unique(labels))}
    print(f"HapMap3: {len(parts)} peers, {len(X)} x {X.shape[1]}, K = 5")
    print(
        "| privacy | tol | rounds | bytes | certified | true angle | different result files |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    for privacy, tol in (("masked", 1e-6), ("open", 1e-6), ("masked", 1e-8)):
        found = run(parts, privacy, n_components=5, tol=tol, patience_s=120)
        print(
            f"| {privacy} | {tol:.0e} | {found['rounds']} | {found['bytes'] / 1e6:.1f} MB | {found['bound']:.1e} | "
            f"{found['angle']:.1e} | {found['files']} |",
            flush=True,
        )


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
    for part in sys.argv[1:] or ["hapmap3", "rounds"]:
        {"hapmap3": hapmap3, "rounds": rounds}[part]()
