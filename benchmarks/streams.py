"""Streams: MNIST in 60 batches over 10 nodes, drift, and a stream larger than memory: ``make bench-streams``."""

from __future__ import annotations

import argparse
import pickle
import resource
import warnings

import numpy as np
from sklearn.decomposition import IncrementalPCA

from eigenmesh import DecentralizedPCA, StreamingPCA
from eigenmesh.data import load

K, NODES, BATCHES = 10, 10, 60
# Samples per batch in the drift part, and in the stream that does not fit into memory.
BATCH, ROWS, FEATURES = 100, 10_000, 128
# Batches after a change in which an alarm is expected.
MOST_BATCHES = 20
RATES = np.arange(1, NODES + 1) / np.sum(np.arange(1, NODES + 1))


def mean_error(components: np.ndarray, truth: np.ndarray) -> float:
    """Mean sin^2 of the angles to the columns of truth: (K, d), (d, K)."""
    along = np.sum(components * truth.T, axis=1)
    beside = components - along[:, np.newaxis] * truth.T
    return float(np.mean(np.sum(beside**2, axis=1)))


def mnist() -> None:
    """Averages to a certified 1e-6, and final errors with a budget, compared with scikit-learn's IncrementalPCA."""
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
            rng, pca = np.random.default_rng(1), StreamingPCA(K, n_nodes=NODES, averages_per_batch=budget)
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
    """False alarms over normal batches, shares above the 1 % limits, and batches until an alarm after a change."""
    X = np.asarray(load("mnist").X, dtype=np.float64)
    labels = np.asarray(load("mnist").labels)
    turned = np.rot90(np.arange(784).reshape(28, 28)).ravel()
    spread = np.array([6.0, 5.0, 4.0, *np.linspace(2, 0.5, 47)])

    def images(rng: np.random.Generator, rows: np.ndarray = X) -> np.ndarray:
        return rows[rng.integers(0, len(rows), BATCH)]

    def normal(rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((BATCH, len(spread))) * spread

    sources = {
        "Gaussian": (3, normal, {"reversed axes": lambda rng: normal(rng)[:, ::-1]}),
        "MNIST": (
            10,
            images,
            {
                "turned by 90 degrees": lambda rng: images(rng)[:, turned],
                "only the digit 1": lambda rng: images(rng, X[labels == 1]),
                "noise of 0.1 on every pixel": lambda rng: images(rng) + 0.1 * rng.standard_normal((BATCH, 784)),
            },
        ),
    }
    print("| samples | quiet batches | false alarms | beyond T2 | beyond SPE | change | batches until alarm | said |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, (k, draw, changes) in sources.items():
        rng, alarms, shares = np.random.default_rng(0), [], []
        pca = StreamingPCA(k, n_nodes=4, averages_per_batch=2, on_alarm=alarms.append)
        for _ in range(quiet):
            pca.partial_fit(draw(rng), nodes=rng.integers(0, 4, BATCH))
            if pca.batch_ is not None:
                shares.append((pca.batch_.t2_share, pca.batch_.spe_share))
        false, (t2, spe) = len(alarms), np.mean(shares[len(shares) // 20 :], axis=0)
        for change, changed in changes.items():
            again, until = pickle.loads(pickle.dumps(pca.set_params(on_alarm=None))), 0
            while until < MOST_BATCHES and not (until and again.batch_.alarm):
                again.partial_fit(changed(rng), nodes=rng.integers(0, 4, BATCH))
                until += 1
            found = str(until) if again.batch_.alarm else f"none in {until}"
            told = f"{quiet} | {false} ({false / quiet:.1%}) | {t2:.2%} | {spe:.2%}"
            print(f"| {name} | {told} | {change} | {found} | {again.batch_.message} |", flush=True)


def larger_than_memory(cap_mib: int, times: int) -> None:
    """A stream many times as large as the memory limit of this process; only its moments are kept."""
    resource.setrlimit(resource.RLIMIT_AS, (cap_mib * 2**20, cap_mib * 2**20))
    n_batches = -(-times * cap_mib * 2**20 // (ROWS * FEATURES * 8))
    rng, total = np.random.default_rng(0), np.zeros((FEATURES, FEATURES))
    mixing = rng.standard_normal((FEATURES, FEATURES)) * np.linspace(3, 0.1, FEATURES)
    mean, pca = np.zeros(FEATURES), StreamingPCA(5, n_nodes=4, averages_per_batch=2)
    for batch in range(n_batches):
        if batch == n_batches - 1:
            pca.set_params(averages_per_batch=None)
        X = rng.random((ROWS, FEATURES)) @ mixing
        total += X.T @ X
        mean += X.sum(axis=0)
        pca.partial_fit(X, nodes=np.arange(ROWS) % 4)
    seen = n_batches * ROWS
    truth = np.linalg.eigh(total - np.outer(mean, mean) / seen)[1][:, ::-1][:, :5]
    size, error = seen * FEATURES * 8 / 2**20, mean_error(pca.components_, truth)
    print(f"{size:,.0f} MiB in {n_batches} batches, {size / cap_mib:.1f} times the limit of {cap_mib} MiB; ", end="")
    print(f"most memory {_memory_mib('VmHWM'):.0f} MiB, mean sin^2 {error:.1e}, ", end="")
    print(f"certified {pca.certificate_.error_bound:.1e}, {pca.n_samples_seen_:,} samples")


def _memory_mib(field: str) -> float:
    """A field of this process in /proc, such as VmHWM, its peak memory."""
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith(field)]
    return int(line.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["mnist", "drift", "memory"])
    parser.add_argument("--quiet-batches", type=int, default=1000)
    parser.add_argument("--cap-mib", type=int, default=640)
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
