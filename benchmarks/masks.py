"""Cost of masks: arithmetic of one site per average, and whole fits of MNIST by digit compared with open fits.

Run it with ``make bench-masks``; ``python benchmarks/masks.py cost`` runs one part of ``cost``, ``mnist``, ``engines``.
MNIST is read from the folder EIGENMESH_DATA.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from parts import run_parts
from rich.console import Console
from rich.table import Table
from timing import side_by_side

from eigenmesh import DecentralizedPCA
from eigenmesh.averaging.integers import Scaled
from eigenmesh.data import LabelSplit, Shards, load
from eigenmesh.errors import UnreadableFileError
from eigenmesh.masking import ALL_PAIRS_UP_TO, MaskContext, PairwiseMasks, SiteKey, pairwise_masks
from eigenmesh.metrics import largest_angle
from eigenmesh.transports import TRANSPORTS

console = Console(width=130)
SHAPES, NODES = ((784, 15), (14_079, 15), (100_000, 25)), (5, 20, 100)
# Targets: true angles, and bytes relative to open averages of 64 bits.
MOST_SINE, MOST_BYTES = 1e-8, 1.05
K, SITES = 10, 20
# Fields that depend on which nodes a process holds, and the digest of a file that has such fields.
OF_THE_PROCESS = ("node_components", "node_names", "digest")


def table_of(title: str, *headings: str) -> Table:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def masks_of(n_nodes: int, all_pairs: bool) -> PairwiseMasks:
    """Masks of the first site; its partners are all other sites, or those in the mask graph of a run."""
    keys = [SiteKey.generate() for _ in range(n_nodes)]
    context = MaskContext("benchmark", 0, b"", tuple(map(str, range(n_nodes))))
    partners = range(1, n_nodes) if all_pairs else None
    return pairwise_masks(keys[0], [key.public for key in keys], 0, context, partners)


def milliseconds(d: int, b: int, masks: PairwiseMasks) -> list[float]:
    """Adding up two arrays of one average at a site: as floating-point numbers, as integers, and with masks."""
    own, received = np.random.default_rng(0).standard_normal((1, d, b)), np.ones((1, d, b), np.uint64)
    codec, numbers = Scaled.within(np.full((d, 1), 1e3)), itertools.count()

    def masked() -> np.ndarray:
        words = masks.masked(next(numbers), codec.encode(own, [0]).ravel())
        return codec.decode(words.reshape(own.shape) + received)

    ways: dict[str, Callable[[], object]] = {
        "float64": lambda: own + own,
        "integers": lambda: codec.decode(codec.encode(own, [0]) + received),
        "masked": masked,
    }
    passes = 3 if own.size * len(masks.partners) > 1e8 else 9
    # Processor time: this is the work of one thread, which a busy machine interrupts.
    least = side_by_side(ways, repeats=1, passes=passes, clock=time.process_time)
    return [1e3 * least[name] for name in ways]


def cost() -> bool:
    """One line per shape and number of sites, with all pairs and with the graph of partners of a large run."""
    title = "One average at one site, in ms of processor time: adding up its own numbers and a neighbour's"
    table = table_of(title, "d x b", "sites", "partners", "float64", "integers", "masked", "masks, per partner")
    for (d, b), n_nodes in product(SHAPES, NODES):
        for all_pairs in (True, False) if n_nodes > ALL_PAIRS_UP_TO else (True,):
            masks = masks_of(n_nodes, all_pairs)
            bare, plain, masked = milliseconds(d, b, masks)
            each = (masked - plain) / len(masks.partners)
            cells = (f"{d:,} x {b}", str(n_nodes), str(len(masks.partners)))
            table.add_row(*cells, f"{bare:.2f}", f"{plain:.2f}", f"{masked:.2f}", f"{each:.3f}")
    console.print(table)
    return True


def read() -> tuple[np.ndarray, np.ndarray]:
    try:
        data = load("mnist")
    except UnreadableFileError as error:
        raise SystemExit(f"MNIST was not found: {error}") from error
    return np.asarray(data.X, dtype=np.float64), data.labels


def leading(X: np.ndarray) -> np.ndarray:
    """True components (d, K). Pixels are whole numbers over 255, so the sums are exact."""
    pixels = np.rint(255 * X)
    sums = pixels.sum(axis=0)
    return np.linalg.eigh(pixels.T @ pixels - np.outer(sums, sums) / len(X))[1][:, ::-1][:, :K]


def fitted(samples: Any, labels: Any = None, **settings: Any) -> DecentralizedPCA:
    settings = {"n_components": K, "split": "label", "random_state": 0, "topology": "erdos_renyi"} | settings
    nodes = {} if isinstance(samples, Shards) else {"n_nodes": SITES}
    return DecentralizedPCA(**nodes, **settings).fit(samples, labels)


def mnist() -> bool:
    """Fits of MNIST by digit, open and masked; true if the masked ones are as good and as short."""
    X, labels = read()
    true = leading(X)
    headings = ("averages", "graph", "tol", "bound", "true sin", "rounds", "MB", "ratio")
    table = table_of(f"MNIST by digit, {SITES} nodes, K = {K}", *headings)
    kept, ways = [], {"float64": {"averaging": "tree"}, "integers": {"averaging": "integers"}, "masked": {}}
    for topology, tol in (("erdos_renyi", 1e-6), ("cycle", 1e-6), ("erdos_renyi", 1e-10)):
        runs = {}
        for way, settings in ways.items():
            privacy = "masked" if way == "masked" else "open"
            pca = runs[way] = fitted(X, labels, topology=topology, tol=tol, privacy=privacy, **settings)
            sine = largest_angle(pca.components_.T[np.newaxis], true)
            ratio = pca.traffic_.bytes / runs["float64"].traffic_.bytes
            cells = (f"{pca.certificate_.error_bound:.1e}", f"{sine:.1e}", str(pca.traffic_.rounds))
            table.add_row(way, topology, f"{tol:g}", *cells, f"{pca.traffic_.bytes / 1e6:.2f}", f"{ratio:.3f}")
        same = runs["masked"].components_.tobytes() == runs["integers"].components_.tobytes()
        rounds = {way: pca.result_.traffic_by_phase["iterations"].rounds for way, pca in runs.items()}
        kept += [pca.result_.converged, sine < MOST_SINE, ratio <= MOST_BYTES, same, len(set(rounds.values())) == 1]
    console.print(table)
    console.print("Ratio: bytes over those of open averages in float64. Rounds of the products are the same for all.")
    return all(kept)


def engines() -> bool:
    """The result files of the same masked fit on two graphs, in another order of ranks and with other engines."""
    X, labels = read()
    with tempfile.TemporaryDirectory() as folder:
        rows = [block.rows for block in Shards.from_array(X, SITES, LabelSplit(), labels).blocks]
        files = [Path(folder) / f"site-{rank}.npy" for rank in range(SITES)]
        for file, own in zip(files, rows, strict=True):
            np.save(file, X[own])
        del X
        found = {name: file.read_bytes() for name, file in _results(Path(folder), files)}
    table = table_of("Result files of a masked fit of MNIST by digit", "run", "bytes", "the same bits")
    first = next(iter(found.values()))
    for name, content in found.items():
        table.add_row(name, f"{len(content):,}", "yes" if content == first else "NO")
    console.print(table)
    return set(found.values()) == {first}


def _results(folder: Path, files: list[Path]) -> Iterator[tuple[str, Path]]:
    """Run commands; returns for each the numbers that do not depend on how many nodes a process holds."""
    command = ["fit", "-k", str(K), "--privacy", "masked", "--seed", "0", "--quiet"]
    at_rank = str(folder / "site-{rank}.npy")
    shuffled = [str(files[rank]) for rank in np.random.default_rng(0).permutation(SITES)]
    in_order = [str(file) for file in files]
    runs = {
        "simulation": ([], in_order, "erdos_renyi"),
        "simulation, ring": ([], in_order, "cycle"),
        "simulation, other order": ([], shuffled, "erdos_renyi"),
        "threads": (["--transport", "threads"], in_order, "erdos_renyi"),
        "mpi": (["--transport", "mpi"], [at_rank], "erdos_renyi"),
        "mpi, tree": (["--transport", "mpi", "--averaging", "tree"], [at_rank], "erdos_renyi"),
        "torch": (["--transport", "torch", "--device", "cpu"], [at_rank], "erdos_renyi"),
    }
    for name, (engine, samples, topology) in runs.items():
        launcher = TRANSPORTS[engine[1]].launcher if engine else None
        start = launcher(SITES) if launcher is not None else [sys.executable]
        out = folder / "result.npz"
        words = [*start, "-m", "eigenmesh", *command, *engine, "--topology", topology, "--out", str(out), *samples]
        environment = {**(TRANSPORTS[engine[1]].environment if engine else {}), "OMP_NUM_THREADS": "1", **os.environ}
        subprocess.run(words, check=True, env=environment, stdin=subprocess.DEVNULL)
        kept = folder / "kept.npz"
        with np.load(out) as model:
            numbers = {key: model[key] for key in sorted(model.files) if key not in OF_THE_PROCESS}
        np.savez(kept, **numbers)
        yield name, kept


def main() -> None:
    run_parts({"cost": cost, "mnist": mnist, "engines": engines})


if __name__ == "__main__":
    main()
