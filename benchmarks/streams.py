"""Streams: MNIST in 60 batches over 10 nodes, drift, and a stream larger than memory: ``make bench-streams``."""

from __future__ import annotations

import argparse
import resource
import warnings

import numpy as np
from sklearn.decomposition import IncrementalPCA

from eigenmesh import DecentralizedPCA
from eigenmesh.data import load

K, NODES, BATCHES = 10, 10, 60
RATES = np.arange(1, NODES + 1) / np.sum(np.arange(1, NODES + 1))


def mean_error(components: np.ndarray, truth: np.ndarray) -> float:
    """Mean sin^2 of the angles to the columns of truth: (K, d), (d, K)."""
    along = np.sum(components * truth.T, axis=1)
    beside = components - along[:, np.newaxis] * truth.T
    return float(np.mean(np.sum(beside**2, axis=1)))


def mnist() -> None:
    """Averages to a certified 1e-6, and errors at the end with a budget, beside scikit-learn's IncrementalPCA."""
    table = load("mnist")
    X, labels = np.asarray(table.X, dtype=np.float64), np.asarray(table.labels)
    truth = np.linalg.eigh(np.cov(X.T))[1][:, ::-1][:, :K]
    fitted = DecentralizedPCA(K, n_nodes=NODES, tol=1e-9).fit(X)
    orders = {"random": np.random.default_rng(0).permutation(len(X)), "by digit": np.argsort(labels, kind="stable")}
    print("| order | method | averages per batch | batches certified | mean sin^2 at the end | from `fit` |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, order in orders.items():
        batches = np.array_split(X[order], BATCHES)
        for budget in (None, 2, 3):
            rng, pca = np.random.default_rng(1), DecentralizedPCA(K, n_nodes=NODES, averages_per_batch=budget)
            averages, certified = [], 0
            for batch in batches:
                pca.partial_fit(batch, nodes=rng.choice(NODES, size=len(batch), p=RATES))
                averages.append(pca.n_iter_ + 1)
                certified += pca.certificate_.error_bound < (1e-6 if budget is None else 1)
            how = "certified 1e-6" if budget is None else f"{budget} averages"
            late = np.mean(averages[BATCHES // 2 :])
            apart = mean_error(pca.components_, fitted.components_.T)
            error = mean_error(pca.components_, truth)
            print(f"| {name} | {how} | {late:.1f} | {certified} of {BATCHES} | {error:.1e} | {apart:.1e} |", flush=True)
        theirs = IncrementalPCA(K)
        for batch in batches:
            theirs.partial_fit(batch)
        print(f"| {name} | IncrementalPCA | | | {mean_error(theirs.components_, truth):.1e} | |", flush=True)


def drift(quiet: int) -> None:
    """False alarms over quiet batches, shares beyond the limits, and the alarm after a change."""
    table = load("mnist")
    X = np.asarray(table.X, dtype=np.float64)
    # A hundred pixels of real images: enough for a monitor, and a thousand batches of them take seconds.
    X = X[:, np.argsort(-X.var(axis=0))[:100]]
    spread = np.array([6.0, 5.0, 4.0, *np.linspace(2, 0.5, 47)])
    sources = {
        "Gaussian": lambda rng: rng.standard_normal((100, 50)) * spread,
        "MNIST": lambda rng: X[rng.integers(0, len(X), 100)],
    }
    print("| samples | quiet batches | false alarms | beyond T2 | beyond SPE | alarm after a change |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, draw in sources.items():
        rng, alarms = np.random.default_rng(0), []
        pca = DecentralizedPCA(3, n_nodes=4, averages_per_batch=2, forgetting=0.99, on_alarm=alarms.append)
        shares = []
        for _ in range(quiet):
            pca.partial_fit(draw(rng), nodes=rng.integers(0, 4, 100))
            if pca.batch_ is not None:
                shares.append((pca.batch_.t2_share, pca.batch_.spe_share))
        false, (t2, spe) = len(alarms), np.mean(shares[50:], axis=0)
        turned = draw(rng)[:, ::-1]
        pca.partial_fit(turned, nodes=rng.integers(0, 4, 100))
        found = "within one batch" if len(alarms) > false else "none"
        print(f"| {name} | {quiet} | {false} ({false / quiet:.1%}) | {t2:.2%} | {spe:.2%} | {found} |", flush=True)


def larger_than_memory(cap_mib: int, times: int) -> None:
    """A stream many times as large as the memory that this process may have, and the error of its answer."""
    d, rows = 128, 20000
    cap = cap_mib * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    rng, total, seen = np.random.default_rng(0), np.zeros((d, d)), 0
    mixing = rng.standard_normal((d, d)) * np.linspace(3, 0.1, d)
    mean, pca = np.zeros(d), DecentralizedPCA(5, n_nodes=4, averages_per_batch=2)
    n_batches = -(-times * cap // (rows * d * 8))
    for batch in range(n_batches):
        if batch == n_batches - 1:
            pca.set_params(averages_per_batch=None)
        X = rng.random((rows, d)) @ mixing
        total += X.T @ X
        mean += X.sum(axis=0)
        seen += rows
        pca.partial_fit(X, nodes=np.arange(rows) % 4)
    truth = np.linalg.eigh(total - np.outer(mean, mean) / seen)[1][:, ::-1][:, :5]
    size = n_batches * rows * d * 8 / 2**20
    error = mean_error(pca.components_, truth)
    print(f"{size:,.0f} MiB in {n_batches} batches under a cap of {cap_mib} MiB: mean sin^2 {error:.1e}, ", end="")
    print(f"certified {pca.certificate_.error_bound:.1e}, {pca.n_samples_seen_:,} samples")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["mnist", "drift", "memory"])
    parser.add_argument("--quiet-batches", type=int, default=1000)
    parser.add_argument("--cap-mib", type=int, default=700)
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.part == "mnist":
        mnist()
    elif options.part == "drift":
        drift(options.quiet_batches)
    else:
        larger_than_memory(options.cap_mib, options.times)


if __name__ == "__main__":
    main()
