"""The core over the history of the repository, by asv: ``make bench-history``.

It uses only what every version has: the estimator with a few of its parameters.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from eigenmesh import DecentralizedPCA

ROUNDS = 2


class Digits:
    """1,797 x 64 over 20 nodes of a random graph, five components to 1e-6."""

    rounds = ROUNDS
    version = "1"

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


class Tall:
    """60,000 x 200 over 20 nodes of a ring, ten components to 1e-6."""

    rounds = ROUNDS
    version = "1"

    def setup(self) -> None:
        rng = np.random.default_rng(0)
        self.samples = rng.standard_normal((60_000, 200)) * np.geomspace(5, 0.5, 200)

    def time_fit(self) -> None:
        DecentralizedPCA(n_components=10, n_nodes=20, topology="cycle", random_state=0).fit(self.samples)


class Import:
    """A new process that imports the package and its estimator."""

    rounds = ROUNDS
    version = "1"

    def timeraw_import(self) -> str:
        return "from eigenmesh import DecentralizedPCA"
