"""Attack the certificates of given components: ``python benchmarks/given.py --problems 2000``.

Random problems with components from eight sources: exact ones, the same with small errors, two swapped, one left out,
those of samples that are not centred, of half of the samples, by randomized and by incremental PCA. The truth is in
extended precision. A problem fails if a component is farther from the truth than its bound.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable

import attack
import numpy as np
from sklearn.decomposition import PCA, IncrementalPCA

from eigenmesh import certify

Rng = np.random.Generator
CLASSES = (
    attack.random_problem,
    attack.repeated_beyond,
    attack.close,
    attack.hidden,
    attack.opposed,
    attack.large_means,
    attack.rank_deficient,
    attack.short_fat,
    attack.unlike,
    attack.power_law,
)


def swapped(rng: Rng, rows: np.ndarray, true: np.ndarray, k: int) -> np.ndarray:
    order = np.arange(k)
    i = int(rng.integers(k))
    order[[i, i - 1]] = order[[i - 1, i]]
    return true[order]


def left_out(rng: Rng, rows: np.ndarray, true: np.ndarray, k: int) -> np.ndarray:
    return np.delete(true[: k + 1], rng.integers(min(k + 1, len(true))), axis=0)


SOURCES: dict[str, Callable[[Rng, np.ndarray, np.ndarray, int], np.ndarray]] = {
    "exact": lambda rng, rows, true, k: true[:k] * rng.normal(size=(k, 1)),
    "with errors": lambda rng, rows, true, k: true[:k] + 10 ** rng.uniform(-12, -1) * rng.normal(size=true[:k].shape),
    "swapped": swapped,
    "one left out": left_out,
    "not centred": lambda rng, rows, true, k: np.linalg.svd(rows, full_matrices=False)[2][:k],
    "half of the samples": lambda rng, rows, true, k: PCA(k).fit(rows[::2]).components_,
    "randomized": lambda rng, rows, true, k: (
        PCA(k, svd_solver="randomized", iterated_power=1, random_state=0).fit(rows).components_
    ),
    "incremental": lambda rng, rows, true, k: (
        IncrementalPCA(k, batch_size=max(k, len(rows) // 4)).fit(rows).components_
    ),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first problem")
    options = parser.parse_args(arguments)
    ratios: dict[str, list[float]] = defaultdict(list)
    failed = 0
    for number in range(options.problems):
        seed = options.seed + number
        source, make = list(SOURCES)[number % len(SOURCES)], CLASSES[number // len(SOURCES) % len(CLASSES)]
        rng = np.random.default_rng(seed)
        problem = make(rng)
        rows = np.vstack([np.asarray(part, dtype=float) for part in problem.parts])
        values, vectors = attack.true_eigenpairs(problem)
        k = max(1, min(problem.n_components, len(rows) // 4, rows.shape[1] - 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = SOURCES[source](rng, rows, vectors.T.astype(float), k)
            compared = certify(problem.parts, given, topology="complete", tol=1e-6)
        sines = attack.true_sines(compared.certificate, given[np.newaxis], problem, values, vectors)
        ratio = compared.error_bounds / np.maximum(sines, 1e-16)
        ratios[source] += ratio.tolist()
        if ratio.min() < 1 and sines[ratio.argmin()] > 1e-16:
            failed += 1
            at = int(ratio.argmin())
            found = f"true {sines[at]:.9g}, bound {compared.error_bounds[at]:.9g}"
            print(f"FAILED seed {seed}, {source}, {make.__name__}: component {at + 1}: {found}", flush=True)
    print(f"{'source':20} {'components':>10}  median bound/true, smallest")
    for source, found in ratios.items():
        print(f"{source:20} {len(found):10}  {np.median(found):.3g}, {min(found):.3g}")
    print(f"{options.problems} problems, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
