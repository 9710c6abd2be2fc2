"""Single cells: a made-up sparse .h5ad of 200,000 cells and 3,000 genes at 5 %, read in pieces by five nodes, K = 50.

For comparison, on all cells in memory, scikit-learn's PCA with ARPACK in double precision and, with ``--scanpy``,
``scanpy.pp.pca`` itself. Each runs in its own process, whose peak memory is printed.

    python benchmarks/cells.py [--cells 200000] [--scanpy /path/of/a/python/with/scanpy]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse

SITES, GENES, K, GROUPS, AT_ONCE = 5, 3000, 50, 80, 10_000


def write(path: Path, n_cells: int) -> None:
    """Write an AnnData file: log(1 + counts) of cells in groups, each group with its own genes."""
    rng = np.random.default_rng(0)
    base = 0.047 * rng.gamma(2.0, 0.5, GENES)
    rates = base * np.exp(1.2 * rng.standard_normal((GROUPS, GENES)) * (rng.random((GROUPS, GENES)) < 0.15))
    sizes, parts = np.geomspace(8, 1, GROUPS), []
    for start in range(0, n_cells, AT_ONCE):
        group = rng.choice(GROUPS, min(AT_ONCE, n_cells - start), p=sizes / sizes.sum())
        parts.append(scipy.sparse.csr_array(np.log1p(rng.poisson(rates[group])).astype(np.float32)))
    matrix = scipy.sparse.vstack(parts, format="csr")
    with h5py.File(path, "w") as file:
        mark(file, "anndata", "0.1.0")
        X = mark(file.create_group("X"), "csr_matrix", "0.1.0", shape=matrix.shape)
        for name in ("data", "indices", "indptr"):
            X[name] = getattr(matrix, name)
        for name, what, length in (("obs", "cell", n_cells), ("var", "gene", GENES)):
            frame = mark(file.create_group(name), "dataframe", "0.2.0", _index="_index")
            frame.attrs.create("column-order", [], dtype=h5py.string_dtype())
            frame["_index"] = [f"{what} {number}" for number in range(length)]
            mark(frame["_index"], "string-array", "0.2.0")


def mark(item: Any, kind: str, version: str, **more: Any) -> Any:
    item.attrs.update({"encoding-type": kind, "encoding-version": version, **more})
    return item


def ours(path: Path) -> None:
    from eigenmesh import DecentralizedPCA
    from eigenmesh.data import read_table

    pca = DecentralizedPCA(K, n_nodes=SITES, topology="cycle", averaging="tree", random_state=0)
    pca.fit(read_table(path).source)
    print(f"{pca.n_iter_} products, certified {pca.certificate_.error_bound:.1e}, {pca.stop_reason_.label}")
    np.savez(path.with_name("ours"), components=pca.components_, variances=pca.explained_variance_)


def arpack(path: Path) -> None:
    from sklearn.decomposition import PCA

    with h5py.File(path) as file:
        matrix = scipy.sparse.csr_array(tuple(file["X"][name][:] for name in ("data", "indices", "indptr")))
    matrix = matrix.astype(np.float64)
    print(f"{matrix.nnz / np.prod(matrix.shape):.1%} of {matrix.shape} stored")
    pca = PCA(K, svd_solver="arpack").fit(matrix)
    np.savez(path.with_name("arpack"), components=pca.components_, variances=pca.explained_variance_)


def scanpy(path: Path) -> None:
    """As its users call it: float32 as it is stored, all cells in memory."""
    import anndata
    import scanpy

    adata = anndata.read_h5ad(path)
    scanpy.pp.pca(adata, n_comps=K)
    components, variances = adata.varm["PCs"].T, adata.uns["pca"]["variance"]
    np.savez(path.with_name("scanpy"), components=components, variances=variances)


WAYS = {"ours": ours, "arpack": arpack, "scanpy": scanpy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=200_000)
    parser.add_argument("--scanpy", metavar="PYTHON", help="a Python that has scanpy")
    parser.add_argument("--only", nargs=2, metavar=("WHO", "FILE"), help="what the processes are called with")
    asked = parser.parse_args()
    if asked.only is not None:
        start = time.perf_counter()
        WAYS[asked.only[0]](Path(asked.only[1]))
        # Not ru_maxrss, which includes the memory of the process before exec.
        status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        peak = int(status["VmHWM"].split()[0]) / 1e6
        print(f"{asked.only[0]:8} {time.perf_counter() - start:6.1f} s, peak memory {peak:.2f} GB", flush=True)
        return
    pythons = {"ours": sys.executable, "arpack": sys.executable, **({"scanpy": asked.scanpy} if asked.scanpy else {})}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "cells.h5ad"
        write(path, asked.cells)
        for who, python in pythons.items():
            subprocess.run([python, __file__, "--only", who, str(path)], check=True)
        found, *others = (np.load(Path(name) / f"{who}.npz") for who in pythons)
        for who, true in zip(list(pythons)[1:], others, strict=True):
            turned = found["components"] @ true["components"].T
            away = np.linalg.norm(found["components"] - turned @ true["components"], axis=1).max()
            off = np.abs(found["variances"] / true["variances"] - 1).max()
            print(f"ours and {who}: space of {K} components: sine {away:.1e}; variances {off:.1e} apart")


if __name__ == "__main__":
    main()
