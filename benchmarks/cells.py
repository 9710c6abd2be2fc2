"""Single cells: a made-up sparse .h5ad of 200,000 cells and 3,000 genes at 5 %, five sites, read in pieces, K = 50.

Beside it scikit-learn's PCA with ARPACK on the pooled sparse matrix in memory, which ``scanpy.pp.pca`` calls for
sparse data. Each runs in a process of its own, whose peak memory is told.

    python benchmarks/cells.py [--cells 200000]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import scipy.sparse

SITES, GENES, K, GROUPS, AT_ONCE = 5, 3000, 50, 80, 10_000


def write(folder: Path, n_cells: int) -> None:
    """One file a site, as AnnData lays them out: log of 1 + counts of cells in groups with genes of their own."""
    rng = np.random.default_rng(0)
    base = 0.047 * rng.gamma(2.0, 0.5, GENES)
    rates = base * np.exp(1.2 * rng.standard_normal((GROUPS, GENES)) * (rng.random((GROUPS, GENES)) < 0.15))
    sizes = np.geomspace(8, 1, GROUPS)
    for site in range(SITES):
        parts = []
        for start in range(0, n_cells // SITES, AT_ONCE):
            group = rng.choice(GROUPS, min(AT_ONCE, n_cells // SITES - start), p=sizes / sizes.sum())
            parts.append(scipy.sparse.csr_array(np.log1p(rng.poisson(rates[group])).astype(np.float32)))
        matrix = scipy.sparse.vstack(parts, format="csr")
        with h5py.File(folder / f"site{site}.h5ad", "w") as file:
            X = file.create_group("X")
            X.attrs.update({"encoding-type": "csr_matrix", "shape": matrix.shape})
            for name in ("data", "indices", "indptr"):
                X[name] = getattr(matrix, name)
            for name, what, length in (("obs", f"site{site} cell", matrix.shape[0]), ("var", "gene", GENES)):
                file.create_group(name).attrs["_index"] = "_index"
                file[name]["_index"] = [f"{what} {number}" for number in range(length)]


def ours(folder: Path) -> None:
    from eigenmesh import DecentralizedPCA
    from eigenmesh.data import Shards

    # In double precision, as peers work, whatever the file holds.
    shards = replace(Shards.from_files(sorted(folder.glob("*.h5ad"))), precision=np.dtype(np.float64))
    pca = DecentralizedPCA(K, topology="cycle", averaging="tree", random_state=0).fit(shards)
    print(f"{pca.n_iter_} products, certified {pca.certificate_.error_bound:.1e}, {pca.stop_reason_.label}")
    np.savez(folder / "ours.npz", components=pca.components_, variances=pca.explained_variance_)


def theirs(folder: Path) -> None:
    from sklearn.decomposition import PCA

    parts = []
    for path in sorted(folder.glob("*.h5ad")):
        with h5py.File(path) as file:
            parts.append(scipy.sparse.csr_array(tuple(file["X"][name][:] for name in ("data", "indices", "indptr"))))
    pooled = scipy.sparse.vstack(parts, format="csr").astype(np.float64)
    print(f"{pooled.nnz / np.prod(pooled.shape):.1%} of {pooled.shape} stored")
    pca = PCA(K, svd_solver="arpack").fit(pooled)
    np.savez(folder / "theirs.npz", components=pca.components_, variances=pca.explained_variance_)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=200_000)
    parser.add_argument("--only", nargs=2, metavar=("WHO", "FOLDER"), help="what the processes are called with")
    asked = parser.parse_args()
    if asked.only is not None:
        start = time.perf_counter()
        {"ours": ours, "theirs": theirs}[asked.only[0]](Path(asked.only[1]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{asked.only[0]:8} {time.perf_counter() - start:6.1f} s, peak memory {peak:.2f} GB", flush=True)
        return
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), asked.cells)
        for who in ("ours", "theirs"):
            subprocess.run([sys.executable, __file__, "--only", who, name], check=True)
        found, true = (np.load(Path(name) / f"{who}.npz") for who in ("ours", "theirs"))
        turned = found["components"] @ true["components"].T
        away = np.linalg.norm(found["components"] - turned @ true["components"], axis=1).max()
        off = np.abs(found["variances"] / true["variances"] - 1).max()
        print(f"space of {K} components: sine {away:.1e}; variances {off:.1e} apart")


if __name__ == "__main__":
    main()
