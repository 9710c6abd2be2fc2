"""Two solvers on five networks: the cost of a poorly connected graph, and of nodes whose data differ.

12 nodes hold the handwritten digits of scikit-learn, split at random (all nodes alike) or by digit (each node has one
kind of digit). The table shows the rounds until three components are certified to 1e-6, and the megabytes that all
nodes together sent. The results are the same everywhere; the cost is not.
"""

from __future__ import annotations

import warnings

from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from eigenmesh import DecentralizedPCA, graphs

NODES = 12
TOPOLOGIES = ("complete", "erdos_renyi", "star", "cycle", "path")
SOLVERS = ("fast-pca", "block-krylov")
SPLITS = {"random": 14, "label": 12}  # and the width of a column


def main() -> None:
    # The table shows which runs did not converge.
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, digit = load_digits(return_X_y=True)
    print(" " * 28 + "".join(f"{solver + ', alike':>22}{'by digit':>20}" for solver in SOLVERS))
    print(f"{'graph':<12}{'links':>6}{'1 - beta':>10}" + f"{'rounds':>14}{'MB':>8}{'rounds':>12}{'MB':>8}" * 2)
    for name in TOPOLOGIES:
        weights = graphs.metropolis(graphs.topology(name, NODES))
        cells = ""
        for solver in SOLVERS:
            for split, width in SPLITS.items():
                settings = {"topology": weights, "split": split, "max_rounds": 50_000, "random_state": 0}
                pca = DecentralizedPCA(3, solver=solver, **settings).fit(X, digit)
                rounds = f"{pca.traffic_.rounds:,}" if pca.result_.converged else pca.stop_reason_.label
                cells += f"{rounds:>{width}}{pca.traffic_.bytes / 1e6:>8,.1f}"
        print(f"{name:<12}{weights.edges:>6}{weights.spectrum.gap:>10.4f}{cells}")


if __name__ == "__main__":
    main()
