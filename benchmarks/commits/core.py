"""The core over the history of the repository, by asv: ``make bench-history``.

It uses only what every version has: the estimator with a few of its parameters.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import numpy as np
from sklearn.datasets import load_digits

from eigenmesh import DecentralizedPCA


class Timed:
    """Processor time of one thread, which other work on the machine changes least."""

    timer = time.process_time
    rounds = 1
    repeat = (3, 9, 5.0)
    warmup_time = 0.2


class Digits(Timed):
    """1,797 x 64 over 20 nodes of a random graph, five components to 1e-6."""

    def setup(self) -> None:
        self.samples = load_digits().data

    def fit(self) -> DecentralizedPCA:
        return DecentralizedPCA(n_components=5, n_nodes=20, random_state=0).fit(self.samples)

    def time_fit(self) -> None:
        self.fit()

    def track_rounds(self) -> int:
        return self.fit().traffic_.rounds

    def track_kilobytes(self) -> float:
        return self.fit().traffic_.bytes / 1e3


class Tall(Timed):
    """60,000 x 200 over 20 nodes of a ring, ten components to 1e-6."""

    def setup(self) -> None:
        rng = np.random.default_rng(0)
        self.samples = rng.standard_normal((60_000, 200)) * np.geomspace(5, 0.5, 200)

    def time_fit(self) -> None:
        DecentralizedPCA(n_components=10, n_nodes=20, topology="cycle", random_state=0).fit(self.samples)


class Import:
    """New processes that import the package and its estimator: the least processor time of five, in seconds."""

    def track_import(self) -> float:
        spent = [_processor_seconds()]
        for _ in range(5):
            subprocess.run([sys.executable, "-c", "from eigenmesh import DecentralizedPCA"], check=True)
            spent.append(_processor_seconds())
        return float(np.diff(spent).min())


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
